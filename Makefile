# Every target works from any folder: make -C /path/to/headrace TARGET.
ROOT := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
VENV := $(ROOT).venv
BIN := $(VENV)/bin
# The examples need half of what development needs. Where there is an environment for that, it has everything.
DEMO_VENV := $(ROOT)build/demo-env
DEMO_ENV := $(if $(wildcard $(VENV)/.installed),$(VENV),$(DEMO_VENV))
DEMO := cd $(ROOT) && env -u PYTHONDONTWRITEBYTECODE $(DEMO_ENV)/bin/python
PYTHON ?= python3
SEED := $(or $(SEED),$(shell date +%s))
FORM ?= long
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --no-loadscope-reorder --max-worker-restart=0 --slowest=30

.PHONY: help env lint docs test drills demo demo-errors demo-sinks demo-sites demo-telemetry bench bench-writer bench-ingest bench-formats bench-sinks bench-iceberg-faults bench-sites bench-live-edge bench-batch-end bench-worker-send bench-peers bench-flow bench-queries bench-standby bench-offline-files bench-catch-up bench-scale chart recording lock clean

help:
	@echo "make demo    real Kafka, Spark, PostgreSQL and a lake, a week of real ads joined and counted, and the proof"
	@echo "make demo-errors  errors over HTTP and from old files, into a lake and PostgreSQL, and the sums"
	@echo "make demo-sinks  the same week in OpenSearch, BigQuery (a stand-in) and Iceberg, each event once, though the pipelines are killed"
	@echo "make demo-sites  two sites and a central one: mirrors, mergers, a dispatcher, profiles, and the proof"
	@echo "make demo-telemetry  page views, errors and transactions, 200 standing queries, and their results beside DuckDB's"
	@echo "make test    every test but most drills, on real servers that it starts and stops; one kill of each engine"
	@echo "make drills  what is killed and cut off, demos, and what needs a machine of its own, in hours: SEED=n chooses the faults, the report is .drills/SEED.json;"
	@echo "             FORM=short is as in CI, PART=1 to 8 one of the parts that CI runs in turns"
	@echo "make lint    ruff, mypy, import-linter"
	@echo "make docs    these pages and the API reference as a site, in build/site"
	@echo "make bench   speed against plain Spark, and against services on Node, FastAPI and Go"
	@echo "make bench-sinks  speed of Kafka to Kafka, PostgreSQL, OpenSearch, Iceberg and BigQuery, beside plain Spark and Kafka Connect"
	@echo "make bench-iceberg-faults  rows that Kafka Connect's Iceberg sink and headrace lose and double under the same faults, in two hours"
	@echo "make bench-sites  speed of a mirror, beside MirrorMaker 2, of a merger, a dispatcher and profiles, and a cut link, in an hour"
	@echo "make bench-formats  speed of JSON, nested JSON and Avro, in memory and from Kafka to a lake"
	@echo "make bench-flow  speed of joins, de-duplication, statistics and the ledger, beside others (FLOW=\"join dedup\": parts)"
	@echo "make bench-queries  speed and latency of standing queries, with 1 to 1,000,000 of them, and of a windowed count, in two hours"
	@echo "make bench-standby  how long a pipeline stands still when its driver dies, freezes or hands over, in ten minutes"
	@echo "make bench-offline-files  speed of the loader of offline files beside COPY, produce and plain clients, in half an hour"
	@echo "make bench-catch-up  speed and CPU of a pipeline with 1 to 8 tasks a partition, on threads and on a cluster, in an hour and a half"
	@echo "make bench-scale  CPU and memory of commands with 50, 500 and 5,000 partitions, and with 800 components, in ten minutes"
	@echo "make chart   the README's chart of speeds, from bench/results.json"
	@echo "make recording  the quickstart in a terminal as a picture, from a run of its page"
	@echo "make bench-peers  speed against Kafka Workers, Kafka Connect, Flink and Quix Streams, in an hour"

env: $(VENV)/.installed

# Makes the environment $(1) of what the lock $(2) names. Bytecode is compiled for what runs in it, since CI may forbid to write it later.
# uv reads no pip.conf: where it reaches no index, pip installs the same files.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "headrace needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Name one: make env PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --clear $(1)
	sed -n '/^uv==/,/[^\]$$/p' $(2) > $(1)/uv.lock
	$(1)/bin/python -m pip install --quiet --no-compile --require-hashes --requirement $(1)/uv.lock
	$(1)/bin/uv pip install --quiet --python $(1)/bin/python --require-hashes --requirement $(2) $(STORED) $(3) || \
	  $(1)/bin/python -m pip install --quiet --require-hashes --requirement $(2)
	$(1)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable $(ROOT)
	$(1)/bin/python -m compileall -q $(ROOT)src
	touch $(1)/.installed
endef
# The wheel that is built of pyspark lives for a minute: its 400 MB of jars are not compressed.
STORED := --config-settings-package pyspark:--build-option=--compression=stored

$(VENV)/.installed: $(ROOT)requirements.lock $(ROOT)pyproject.toml
	$(call install,$(VENV),$(ROOT)requirements.lock,--compile-bytecode)

$(DEMO_VENV)/.installed: $(ROOT)requirements-demo.lock $(ROOT)pyproject.toml
	$(call install,$(DEMO_VENV),$(ROOT)requirements-demo.lock)

lint: env
	cd $(ROOT) && $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

docs: env
	cd $(ROOT) && $(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site -d build/site-cache . build/site

# What the processes of a run load is made once: archives of Java's classes, and the bytecode of tests.
$(VENV)/.quick-start: $(VENV)/.installed
	cd $(ROOT) && { $(BIN)/python -m tests.quick_java & $(PYTEST) --collect-only >/dev/null; wait $$!; }
	touch $@

test: $(VENV)/.quick-start
	cd $(ROOT) && $(PYTEST) -m "not drill or drill(always=True)" --numprocesses=auto --junitxml=build/test.xml

drills: $(VENV)/.quick-start
	cd $(ROOT) && $(PYTEST) -m drill $(addprefix --part=,$(PART)) -o verbosity_assertions=2 --drills=$(FORM) --seed=$(SEED) \
	  --drill-report=.drills/$(SEED).json --numprocesses=2 --timeout=3600 --junitxml=build/drills.xml

demo: $(DEMO_ENV)/.installed
	$(DEMO) examples/ad_serving/demo.py

demo-errors: $(DEMO_ENV)/.installed
	$(DEMO) examples/error_tracking/demo.py

# It starts the servers of the tests.
demo-sinks: $(DEMO_ENV)/.installed
	cd $(ROOT) && env -u PYTHONDONTWRITEBYTECODE PYTHONPATH=$(ROOT) $(DEMO_ENV)/bin/python examples/ad_serving/demo_sinks.py

demo-sites: $(DEMO_ENV)/.installed
	$(DEMO) examples/ad_sites/demo.py

demo-telemetry: $(DEMO_ENV)/.installed
	$(DEMO) examples/telemetry/demo.py

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

bench-iceberg-faults: env
	cd $(ROOT) && $(BIN)/python -m bench.iceberg_faults

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

bench-standby: env
	cd $(ROOT) && $(BIN)/python -m bench.standby

bench-scale: env
	cd $(ROOT) && $(BIN)/python -m bench.scale

bench-offline-files: env
	cd $(ROOT) && $(BIN)/python -m bench.offline_files

bench-catch-up: env
	cd $(ROOT) && $(BIN)/python -m bench.catch_up

bench-queries: env
	cd $(ROOT) && $(BIN)/python -m bench.queries
	cd $(ROOT) && $(BIN)/python -m bench.windowed_count
	cd $(ROOT) && $(BIN)/python -m bench.match_latency
	cd $(ROOT) && $(BIN)/python -m bench.window_latency

chart: env
	cd $(ROOT) && $(BIN)/python -m bench.chart

recording: env
	cd $(ROOT) && PYTHONPATH=$(ROOT) $(BIN)/python -m tests.docs.quickstart_recording

# Resolves pyproject.toml again; the lock is reviewed like code. That of the demos is a part of it.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml
DEMO_EXTRAS := bigquery iceberg ingest opensearch queries recount redis spark stats
lock: env
	cd $(ROOT) && $(COMPILE) --group dev --group docs --all-extras --output-file requirements.lock
	cd $(ROOT) && $(COMPILE) --group demo $(DEMO_EXTRAS:%=--extra %) --constraint requirements.lock --output-file requirements-demo.lock

clean:
	rm -rf $(VENV) $(ROOT)examples/*/.headrace $(ROOT)examples/*/*/.headrace $(ROOT)bench/.work $(ROOT)bench/.built $(ROOT)build
