"""From Kafka to each kind of sink: headrace beside other ways to do that.

Every system writes the same topic from its start into a new topic, table or index, once to warm up
and then once a round, in turn; after each run that must hold every event once, otherwise the system
has no figures.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from bench import headrace_sinks, plain_spark_sinks
from bench.bigquery_target import opened_stand_in
from bench.cluster import Broker, fill, opened
from bench.command import exit_code, show
from bench.driver import Driver, Open
from bench.lake_target import opened_lake
from bench.opensearch_target import opened_node
from bench.peers import figures, jdbc_sink, kafka_connect
from bench.peers.bulk_loader import open_bulk_loader
from bench.peers.contest import (
    BROKER,
    HEAP_MB,
    PARTITIONS,
    THREADS,
    Contest,
    Findings,
    prepared,
    run_once,
    setup_for,
)
from bench.peers.figures import Measurement, Run, Runs
from bench.peers.java_program import locked_version
from bench.setup import Setup
from bench.sink_targets import DATABASE, Target, check, opened_tables, opened_topics
from headrace.runtime.java.installation import Java, find_java

ROUNDS = 3
BATCHES = 5
# Who commits by time: as many messages a commit as the others at 100,000 a second.
MESSAGES_A_MS = 500
SPEED = "messages_per_second"
TIMES_LOADER, TIMES_DELTA = "times_bulk_loader", "times_delta"
UNITS = {
    SPEED: "messages/s",
    "cpu_us_per_message": "us",
    "broker_cpu_us_per_message": "us",
    "database_cpu_us_per_message": "us",
    "peak_memory_mb": "MB",
    TIMES_LOADER: "x",
    TIMES_DELTA: "x",
}
Settings = Mapping[str, Mapping[str, str]]
Opened = Callable[[Broker, Java], AbstractContextManager[Target]]


@dataclass(frozen=True)
class Sink:
    """Where to the systems write.

    Attributes:
        opened: starts what it needs beside the broker.
        messages: of its topic.
        quick_messages: the same, of a quick run.
        rivals: versions of what is measured beside headrace, by name.
        settings: of its server, what is not its default.
        references: by metric and system, the system whose speed it is a multiple of.
    """

    opened: Opened
    messages: int = 600_000
    quick_messages: int = 100_000
    rivals: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    references: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class System:
    """One way to write to a sink.

    Attributes:
        prepare: fetches what it needs; what it gives starts the system. Is given the name of the
            sink, and the tables ``[sinks]`` of a headrace.toml. Raises PeerMissingError or JarError
            where something can't be had.
        guarantees: of delivery, by the sinks that it can write to.
        settings: what is not its default.
    """

    prepare: Callable[[str, Settings, Java], Open]
    guarantees: Mapping[str, str]
    settings: Mapping[str, object] = field(default_factory=dict)


def _headrace(*, with_step: bool) -> System:
    def prepare(sink: str, settings: Settings, _: Java) -> Open:
        return _open_headrace(sink, settings, with_step=with_step)

    exactly = ("postgres-append", "postgres-upsert", "bigquery", "iceberg")
    others = {"kafka": "at least once", "opensearch": "effectively once"}
    return System(prepare, dict.fromkeys(exactly, "exactly once") | others)


def _delta(*, with_step: bool) -> System:
    def prepare(_: str, settings: Settings, __: Java) -> Open:
        return _open_headrace("delta", settings, with_step=with_step)

    return System(prepare, {"iceberg": "exactly once"})


def _once(*, with_step: bool) -> System:
    def prepare(_: str, settings: Settings, __: Java) -> Open:
        return _open_headrace("kafka-once", settings, with_step=with_step)

    return System(prepare, {"kafka": "exactly once"})


def _open_headrace(sink: str, settings: Settings, *, with_step: bool) -> Open:
    return partial(headrace_sinks.open_headrace, sink=sink, settings=settings, with_step=with_step)


def _plain_spark(sink: str, settings: Settings, java: Java) -> Open:
    if sink == "kafka":
        return plain_spark_sinks.open_to_kafka
    if sink == "opensearch":
        return partial(plain_spark_sinks.open_to_opensearch, url=settings["opensearch"]["url"])
    driver = plain_spark_sinks.driver_jars(java)
    url = settings["postgres"]["url"]
    return partial(plain_spark_sinks.open_to_postgres, url=url, jars=driver)


def _jdbc_sink(sink: str, settings: Settings, java: Java) -> Open:
    connect = jdbc_sink.prepare(java)
    url = settings["postgres"]["url"]
    return partial(jdbc_sink.open_jdbc_sink, connect=connect, sink=sink, url=url)


def _iceberg_sink(_: str, __: Settings, java: Java) -> Open:
    return partial(kafka_connect.open_kafka_connect, connect=kafka_connect.prepare(java))


def _bulk_loader(_: str, settings: Settings, __: Java) -> Open:
    return partial(open_bulk_loader, url=settings["opensearch"]["url"])


SYSTEMS = {
    "headrace-fused": _headrace(with_step=False),
    "headrace-spark-step": _headrace(with_step=True),
    "headrace-once-fused": _once(with_step=False),
    "headrace-once-spark-step": _once(with_step=True),
    "headrace-delta-fused": _delta(with_step=False),
    "headrace-delta-spark-step": _delta(with_step=True),
    "plain-spark": System(
        _plain_spark,
        {
            "kafka": "at least once",
            "postgres-append": "at least once",
            "opensearch": "at least once; a document has its event's id",
        },
        plain_spark_sinks.SETTINGS,
    ),
    "kafka-connect-jdbc": System(
        _jdbc_sink,
        {
            "postgres-append": "at least once",
            "postgres-upsert": "at least once; a repeated row replaces itself",
        },
        jdbc_sink.SETTINGS,
    ),
    "kafka-connect-iceberg": System(
        _iceberg_sink, {"iceberg": "exactly once"}, kafka_connect.WORKER | kafka_connect.SETTINGS
    ),
    "bulk-loader": System(_bulk_loader, {"opensearch": "once; it reads no topic"}),
}
CONNECT = {"connect-runtime": locked_version("connect", "connect-runtime")}
TO_POSTGRES = CONNECT | {
    "debezium-connector-jdbc": locked_version("jdbc-sink", "debezium-connector-jdbc"),
    "PostgreSQL's JDBC driver": locked_version("jdbc-sink", "postgresql"),
}
SINKS = {
    "kafka": Sink(opened_topics),
    "postgres-append": Sink(
        partial(opened_tables, is_keyed=False), rivals=TO_POSTGRES, settings=DATABASE
    ),
    "postgres-upsert": Sink(
        partial(opened_tables, is_keyed=True), rivals=TO_POSTGRES, settings=DATABASE
    ),
    "opensearch": Sink(
        opened_node,
        messages=400_000,
        quick_messages=50_000,
        references={
            TIMES_LOADER: dict.fromkeys(
                ("headrace-fused", "headrace-spark-step", "plain-spark"), "bulk-loader"
            )
        },
    ),
    # With fewer, nearly all are in the first commit of Kafka Connect.
    "iceberg": Sink(
        opened_lake,
        messages=2_000_000,
        quick_messages=1_000_000,
        rivals=CONNECT
        | {"iceberg-kafka-connect": locked_version("iceberg", "iceberg-kafka-connect")},
        references={
            TIMES_DELTA: {
                "headrace-fused": "headrace-delta-fused",
                "headrace-spark-step": "headrace-delta-spark-step",
            }
        },
    ),
    "bigquery": Sink(opened_stand_in, messages=200_000, quick_messages=20_000),
}


@dataclass(frozen=True)
class Bench:
    """What a sink's systems read and write.

    Attributes:
        broker: of the topic.
        java: the runtime of all.
        sink: its name.
        target: where to they write.
        messages: in the topic.
        console: where it is told.
    """

    broker: Broker
    java: Java
    sink: str
    target: Target
    messages: int
    console: Console

    def run(self, systems: Sequence[str], rounds: int) -> Findings:
        """All systems that can write to the sink."""
        prepares = {
            name: partial(SYSTEMS[name].prepare, self.sink, self.target.settings)
            for name in systems
            if self.sink in SYSTEMS[name].guarantees
        }
        starts, missing = prepared(prepares, self.java, self.console)
        findings = Findings(missing=missing)
        Contest(self._setup(), THREADS, self._measure, findings, self.console).run(starts, rounds)
        return findings

    def _setup(self) -> Setup:
        return setup_for(
            self.broker,
            self.java,
            f"sink-{self.sink}",
            topic=topic_of(self.messages),
            messages=self.messages,
            batch_records=self.messages // BATCHES,
            commit_every_ms=self.messages // MESSAGES_A_MS,
        )

    def _measure(self, driver: Driver, out: Path) -> Measurement:
        target = self.target
        target.create(out.name)
        found = run_once(driver, out, self.messages, self.broker, target.database_pid)
        check(target, out.name, self.messages)
        target.remove(out.name)
        return Measurement(found, database_figures(found) if target.database_pid else {})


def topic_of(messages: int) -> str:
    """The topic with so many events."""
    return f"impressions-{messages}"


def database_figures(run: Run) -> dict[str, float]:
    """What a run took of the database, by metric."""
    return {"database_cpu_us_per_message": run.database_cpu_seconds * 1e6 / run.messages}


def with_ratios(runs: Runs, references: Mapping[str, Mapping[str, str]]) -> Runs:
    """The runs, with the speed of systems as a multiple of another one's in the same round."""
    found = {key: [dict(figures) for figures in rounds] for key, rounds in runs.items()}
    for metric, systems in references.items():
        for system, reference in systems.items():
            ours, theirs = (found.get((name, THREADS), []) for name in (system, reference))
            for own, other in zip(ours, theirs, strict=False):
                own[metric] = own[SPEED] / other[SPEED]
    return found


def run(
    messages: Mapping[str, int], systems: Sequence[str], rounds: int, console: Console
) -> Iterator[tuple[str, Findings, Mapping[str, str]]]:
    """Yields each sink, once it is measured, with the versions of its server.

    ``messages`` are those of each sink's topic.
    """
    java = find_java(os.environ)
    with opened(java, console, BROKER) as broker:
        for count in dict.fromkeys(messages.values()):
            fill(broker, topic_of(count), PARTITIONS, count, console)
        for sink, count in messages.items():
            with SINKS[sink].opened(broker, java) as target:
                bench = Bench(broker, java, sink, target, count, console)
                yield sink, bench.run(systems, rounds), target.versions


def settings(
    sink: str, messages: int, rounds: int, findings: Findings, versions: Mapping[str, str]
) -> dict[str, object]:
    """What the figures of a sink were measured with, and why some are not there."""
    measured = dict.fromkeys(system for system, _ in findings.runs)
    return {
        "work": f"{messages:,} events",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "batch_records": messages // BATCHES,
        "heap_mb": HEAP_MB,
        "database": dict(SINKS[sink].settings),
        "rivals": {**SINKS[sink].rivals, **versions},
        "guarantees": {name: SYSTEMS[name].guarantees[sink] for name in measured},
        "peers": {name: dict(SYSTEMS[name].settings) for name in measured},
        "without_figures": findings.without_figures("threads"),
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.sinks", description=__doc__)
    parser.add_argument("--messages", type=int, help="default: each sink has its own number")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    for option, choices in (("--sinks", SINKS), ("--systems", SYSTEMS)):
        parser.add_argument(
            option, nargs="+", choices=choices, default=list(choices), help="default: all of them"
        )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="few events, one round, nothing kept: does it still run?",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs; of each sink shows a table, and keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    numbers = {
        name: sink.quick_messages if chosen.quick else sink.messages for name, sink in SINKS.items()
    }
    messages = {name: chosen.messages or numbers[name] for name in chosen.sinks}
    rounds = 1 if chosen.quick else chosen.rounds

    def work(console: Console) -> int:
        is_whole = True
        for sink, findings, versions in run(messages, chosen.systems, rounds, console):
            benchmark = f"sinks-{sink}"
            runs = with_ratios(findings.runs, SINKS[sink].references)
            measured = figures.rows(benchmark, "threads", UNITS, runs)
            told = settings(sink, messages[sink], rounds, findings, versions)
            show(console, benchmark, measured, None if chosen.quick else told, findings.failed)
            is_whole = is_whole and bool(findings.runs) and not findings.failed
        return 0 if is_whole else 1

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
