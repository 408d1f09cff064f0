# Every target works from any folder: make -C /path/to/headrace TARGET.
ROOT := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
VENV := $(ROOT).venv
BIN := $(VENV)/bin
PYTHON ?= python3
SEED := $(or $(SEED),$(shell date +%s))
FORM ?= long
PYTEST := $(BIN)/python -m pytest --dist=loadfile --no-loadscope-reorder --max-worker-restart=0 --slowest=30

.PHONY: help env lint docs test drills demo demo-errors demo-sites demo-telemetry bench bench-writer bench-ingest bench-formats bench-sinks bench-sites bench-live-edge bench-batch-end bench-worker-send bench-peers bench-flow bench-queries lock clean

help:
	@echo "make demo    real Kafka, Spark, PostgreSQL and a lake, a week of real ads joined and counted, and the proof"
	@echo "make demo-errors  errors over HTTP and from old files, into a lake and PostgreSQL, and the sums"
	@echo "make demo-sites  two sites and a central one: mirrors, mergers, a dispatcher, profiles, and the proof"
	@echo "make demo-telemetry  page views, errors and transactions, 200 standing queries, and their results beside DuckDB's"
	@echo "make test    every test but the drills, on real servers that it starts and stops; a drill of each engine"
	@echo "make drills  what is killed and cut off, in hours: SEED=n chooses the faults, the report is .drills/SEED.json;"
	@echo "             FORM=short is as in CI, PART=1 to 8 one of the parts that CI runs in turns"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make docs    these pages and the API reference as a site, in build/site"
	@echo "make bench   speed against plain Spark, and against services on Node, FastAPI and Go"
	@echo "make bench-sinks  speed of Kafka to Kafka and to PostgreSQL, beside plain Spark and Kafka Connect"
	@echo "make bench-sites  speed of a mirror, beside MirrorMaker 2, of a merger, a dispatcher and profiles, and a cut link, in an hour"
	@echo "make bench-formats  speed of JSON, nested JSON and Avro, in memory and from Kafka to a lake"
	@echo "make bench-flow  speed of joins, de-duplication, statistics and the ledger, beside others (FLOW=\"join dedup\": parts)"
	@echo "make bench-queries  speed and latency of standing queries, with 1 to 1,000,000 of them, and of a windowed count, in two hours"
	@echo "make bench-peers  speed against Kafka Workers, Kafka Connect, Flink and Quix Streams, in an hour"

env: $(VENV)/.installed

$(VENV)/.installed: $(ROOT)requirements.lock $(ROOT)pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "headrace needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Name one: make env PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement $(ROOT)requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable $(ROOT)
	touch $@

lint: env
	cd $(ROOT) && $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

docs: env
	cd $(ROOT) && $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site -d build/site-cache . build/site

$(VENV)/.quick-java: $(VENV)/.installed
	cd $(ROOT) && $(BIN)/python -m tests.quick_java
	touch $@

test: $(VENV)/.quick-java
	cd $(ROOT) && $(PYTEST) -m "not drill or drill(always=True)" --numprocesses=auto --junitxml=build/test.xml

drills: $(VENV)/.quick-java
	cd $(ROOT) && $(PYTEST) -m drill $(addprefix --part=,$(PART)) -o verbosity_assertions=2 --drills=$(FORM) --seed=$(SEED) \
	  --drill-report=.drills/$(SEED).json --numprocesses=2 --timeout=3600 --junitxml=build/drills.xml

demo: env
	cd $(ROOT) && $(BIN)/python examples/ad_serving/demo.py

demo-errors: env
	cd $(ROOT) && $(BIN)/python examples/error_tracking/demo.py

demo-sites: env
	cd $(ROOT) && $(BIN)/python examples/ad_sites/demo.py

demo-telemetry: env
	cd $(ROOT) && $(BIN)/python examples/telemetry/demo.py

bench: bench-writer bench-ingest

bench-writer: env
	cd $(ROOT) && $(BIN)/python -m bench.writer

bench-ingest: env
	cd $(ROOT) && $(BIN)/python -m bench.ingest

bench-formats: env
	cd $(ROOT) && $(BIN)/python -m bench.formats
	cd $(ROOT) && $(BIN)/python -m bench.formats_lake

bench-sinks: env
	cd $(ROOT) && $(BIN)/python -m bench.sinks

bench-sites: env
	cd $(ROOT) && $(BIN)/python -m bench.mirror
	cd $(ROOT) && $(BIN)/python -m bench.merger
	cd $(ROOT) && $(BIN)/python -m bench.dispatcher
	cd $(ROOT) && $(BIN)/python -m bench.loader
	cd $(ROOT) && $(BIN)/python -m bench.cut_link

bench-live-edge: env
	cd $(ROOT) && $(BIN)/python -m bench.live_edge

bench-worker-send: env
	cd $(ROOT) && $(BIN)/python -m bench.worker_send

bench-batch-end: env
	cd $(ROOT) && $(BIN)/python -m bench.batch_end

bench-peers: env
	cd $(ROOT) && $(BIN)/python -m bench.peers.writer
	cd $(ROOT) && $(BIN)/python -m bench.peers.record

bench-flow: env
	cd $(ROOT) && $(BIN)/python -m bench.flow $(FLOW)

bench-queries: env
	cd $(ROOT) && $(BIN)/python -m bench.queries
	cd $(ROOT) && $(BIN)/python -m bench.windowed_count
	cd $(ROOT) && $(BIN)/python -m bench.match_latency
	cd $(ROOT) && $(BIN)/python -m bench.window_latency

# Resolves pyproject.toml anew; the lock is reviewed like code.
lock: env
	cd $(ROOT) && $(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --group dev --group docs --all-extras pyproject.toml --output-file requirements.lock

clean:
	rm -rf $(VENV) $(ROOT)examples/*/.headrace $(ROOT)bench/.work $(ROOT)bench/.built $(ROOT)build
