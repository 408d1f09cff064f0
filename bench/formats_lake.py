"""Records of each format from Kafka into a lake, by a pipeline without steps.

The events, classes and formats are those of ``bench.formats``. Each format has a topic, and a warm
pipeline that writes it from its start into an empty folder, once to warm up and then once a round,
in turn; each run's files are read back and must hold every event once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from tests.integration.schema_registry_server import VERSION as REGISTRY_VERSION
from tests.integration.schema_registry_server import SchemaRegistryServer

from bench import headrace_writer
from bench.cluster import WORK, Broker, fill_with, opened
from bench.command import exit_code, show
from bench.driver import Driver, WriteOnce
from bench.events import Impression, events
from bench.formats import NestedImpression, nested
from bench.headrace_writer import batch_limits, lake_sink, open_pipelines
from bench.peers import figures
from bench.peers.contest import (
    BROKER,
    HEAP_MB,
    PARTITIONS,
    THREADS,
    Contest,
    Findings,
    run_once,
    setup_for,
)
from bench.peers.figures import Measurement
from bench.setup import Setup
from bench.writer import check
from headrace import Avro, Json, Pipeline, Protobuf, Topic
from headrace.events.avro.values import AvroWriter, avro_schema
from headrace.events.protobuf.writing import ProtobufWriter, protobuf_text
from headrace.kafka.admin.schema_registry import register
from headrace.model import Format, RegisteredSchema, event_schema
from headrace.runtime.java.installation import find_java
from headrace.settings import SchemaRegistrySettings

BENCHMARK = "formats-lake"
FORMATS: dict[str, Format] = {"json": Json(), "avro": Avro(), "protobuf": Protobuf()}
MESSAGES = 1_000_000
QUICK_MESSAGES = 100_000
ROUNDS = 3
BATCHES = 5


def topic(name: str) -> Topic:
    """The topic of a format."""
    record_format, _, shape = name.partition("-")
    return Topic(
        name,
        event=NestedImpression if shape == "nested" else Impression,
        format=FORMATS[record_format],
        event_time="event_time",
        partitions=PARTITIONS,
    )


def encoders(registry: SchemaRegistrySettings) -> dict[str, Callable[[bytes], bytes]]:
    """By format: what makes the value of a record from an event as flat JSON."""
    flat, deep = event_schema(Impression), event_schema(NestedImpression)
    avro = {
        name: AvroWriter(
            schema, register(registry, f"{name}-value", "AVRO", json.dumps(avro_schema(schema)))
        )
        for name, schema in (("avro-flat", flat), ("avro-nested", deep))
    }
    text = protobuf_text(flat)
    registered = RegisteredSchema(
        "PROTOBUF", text, id=register(registry, "protobuf-flat-value", "PROTOBUF", text)
    )
    return {
        "json-flat": bytes,
        "json-nested": nested,
        "avro-flat": avro["avro-flat"],
        "avro-nested": lambda value: avro["avro-nested"](nested(value)),
        "protobuf-flat": ProtobufWriter(flat, registered),
    }


def open_format(
    setup: Setup, *, name: str, registry: SchemaRegistrySettings | None = None
) -> WriteOnce:
    """Starts Spark; the function returned writes the topic of a format into a fresh lake."""
    pipeline = partial(_pipeline, setup, name)
    return open_pipelines(setup, name, pipeline, schema_registry=registry)


def _pipeline(setup: Setup, name: str, out: Path) -> Pipeline:
    return Pipeline(out.name, source=topic(name), sink=lake_sink(), limits=batch_limits(setup))


@contextmanager
def opened_registry() -> Iterator[SchemaRegistrySettings]:
    """A schema registry; gone when the block ends."""
    server = SchemaRegistryServer(WORK)
    try:
        server.start()
        yield server.settings
    finally:
        server.stop()


def measure(broker: Broker, messages: int, driver: Driver, out: Path) -> Measurement:
    """One run of one warm pipeline, checked."""
    found = run_once(driver, out, messages, broker)
    check(headrace_writer.table_files(out), messages)
    return Measurement(found)


def run(messages: int, rounds: int, console: Console) -> Findings:
    """The whole benchmark."""
    java = find_java(os.environ)
    findings = Findings()
    with ExitStack() as stack:
        broker = stack.enter_context(opened(java, console, BROKER))
        registry = stack.enter_context(opened_registry())
        starts = {}
        for name, encode in encoders(registry).items():
            fill_with(broker, topic(name), map(encode, events(messages)), messages, console)
            starts[name] = partial(open_format, name=name, registry=registry)
        measured = partial(measure, broker, messages)
        setup = setup_for(
            broker, java, "formats", topic="", messages=messages, batch_records=messages // BATCHES
        )
        Contest(setup, THREADS, measured, findings, console).run(starts, rounds)
    return findings


def settings(messages: int, rounds: int, findings: Findings) -> dict[str, object]:
    """What the figures were measured with, and why some are not there."""
    return {
        "work": f"{messages:,} events",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "batch_records": messages // BATCHES,
        "heap_mb": HEAP_MB,
        "rivals": {"Apicurio Registry": REGISTRY_VERSION},
        "without_figures": findings.without_figures("threads"),
    }


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    parser = argparse.ArgumentParser(prog="python -m bench.formats_lake", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"default {MESSAGES:,}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="few events, one round; not kept")
    chosen = parser.parse_args(given)
    messages, rounds = (QUICK_MESSAGES, 1) if chosen.quick else (chosen.messages, chosen.rounds)

    def work(console: Console) -> int:
        findings = run(messages, rounds, console)
        measured = figures.rows(BENCHMARK, "threads", figures.PER_MESSAGE, findings.runs)
        told = None if chosen.quick else settings(messages, rounds, findings)
        show(console, BENCHMARK, measured, told, findings.failed)
        return 1 if findings.failed or not findings.runs else 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
