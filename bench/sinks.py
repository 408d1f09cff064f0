"""Kafka to Kafka, and Kafka to PostgreSQL: headrace's sinks beside other ways to do that.

Every system writes the same topic from its start into a new topic or table, once to warm up and
then once a round, in turn; after each run that must hold every event once, otherwise the system has
no figures. Plain Spark has no upsert, so it has no figures there.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from tests.integration.postgres_server import PostgresServer

from bench import headrace_sinks, plain_spark_sinks
from bench.cluster import Broker, fill, opened
from bench.command import exit_code, show
from bench.driver import Driver, Open
from bench.peers import figures, jdbc_sink
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
from bench.peers.figures import Measurement, Run
from bench.peers.java_program import locked_version
from bench.setup import Setup
from bench.sink_targets import (
    DATABASE,
    TableTarget,
    Target,
    TopicTarget,
    check,
    database_version,
    opened_database,
)
from headrace.runtime.java import Java, find_java

TOPIC = "impressions"
MESSAGES = 600_000
QUICK_MESSAGES = 100_000
ROUNDS = 3
BATCHES = 5
UNITS = {
    "messages_per_second": "messages/s",
    "cpu_us_per_message": "us",
    "broker_cpu_us_per_message": "us",
    "database_cpu_us_per_message": "us",
    "peak_memory_mb": "MB",
}
Prepare = Callable[[Java], Open]


@dataclass(frozen=True)
class System:
    """One way to write to a sink.

    Attributes:
        prepare: fetches what it needs; what it gives starts the system. Is given the name of the
            sink and PostgreSQL's URL. Raises JarError where something can't be had.
        guarantees: of delivery, by the sinks that it can write to.
        settings: what is not its default.
    """

    prepare: Callable[[str, str, Java], Open]
    guarantees: Mapping[str, str]
    settings: Mapping[str, str]


def _headrace(*, with_step: bool) -> System:
    def prepare(sink: str, url: str, _: Java) -> Open:
        address = "" if sink == "kafka" else url
        return partial(headrace_sinks.open_headrace, sink=sink, url=address, with_step=with_step)

    exactly = dict.fromkeys(("postgres-append", "postgres-upsert"), "exactly once")
    return System(prepare, {"kafka": "at least once"} | exactly, {})


def _plain_spark(sink: str, url: str, java: Java) -> Open:
    if sink == "kafka":
        return plain_spark_sinks.open_to_kafka
    driver = plain_spark_sinks.driver_jars(java)
    return partial(plain_spark_sinks.open_to_postgres, url=url, jars=driver)


def _jdbc_sink(sink: str, url: str, java: Java) -> Open:
    connect = jdbc_sink.prepare(java)
    return partial(jdbc_sink.open_jdbc_sink, connect=connect, sink=sink, url=url)


SYSTEMS = {
    "headrace-fused": _headrace(with_step=False),
    "headrace-spark-step": _headrace(with_step=True),
    "plain-spark": System(
        _plain_spark,
        dict.fromkeys(("kafka", "postgres-append"), "at least once"),
        plain_spark_sinks.TO_KAFKA | plain_spark_sinks.TO_POSTGRES,
    ),
    "kafka-connect-jdbc": System(
        _jdbc_sink,
        {
            "postgres-append": "at least once",
            "postgres-upsert": "at least once; a repeated row replaces itself",
        },
        jdbc_sink.SETTINGS,
    ),
}
SINKS = tuple(headrace_sinks.SINKS)


@dataclass(frozen=True)
class Bench:
    """One topic on one broker, and a database."""

    broker: Broker
    database: PostgresServer
    java: Java
    messages: int
    console: Console

    def run(self, sink: str, systems: Sequence[str], rounds: int) -> Findings:
        """All systems that can write to a sink."""
        prepares = {
            name: partial(SYSTEMS[name].prepare, sink, self.database.url)
            for name in systems
            if sink in SYSTEMS[name].guarantees
        }
        starts, missing = prepared(prepares, self.java, self.console)
        findings = Findings(missing=missing)
        measure = partial(self._measure, self._target(sink))
        Contest(self._setup(sink), THREADS, measure, findings, self.console).run(starts, rounds)
        return findings

    def _target(self, sink: str) -> Target:
        if sink == "kafka":
            return TopicTarget(self.broker, PARTITIONS)
        return TableTarget(self.database, is_keyed=sink == "postgres-upsert")

    def _setup(self, sink: str) -> Setup:
        return setup_for(
            self.broker,
            self.java,
            f"sink-{sink}",
            topic=TOPIC,
            messages=self.messages,
            batch_records=self.messages // BATCHES,
        )

    def _measure(self, target: Target, driver: Driver, out: Path) -> Measurement:
        target.create(out.name)
        found = run_once(driver, out, self.messages, self.broker, target.database_pid)
        check(target, out.name, self.messages)
        target.remove(out.name)
        return Measurement(found, database_figures(found) if target.database_pid else {})


def database_figures(run: Run) -> dict[str, float]:
    """What a run took of the database, by metric."""
    return {"database_cpu_us_per_message": run.database_cpu_seconds * 1e6 / run.messages}


def run(
    sinks: Sequence[str], systems: Sequence[str], messages: int, rounds: int, console: Console
) -> tuple[dict[str, Findings], str]:
    """The whole benchmark: what was found by sink, and PostgreSQL's version."""
    java = find_java(os.environ)
    with ExitStack() as stack:
        broker = stack.enter_context(opened(java, console, BROKER))
        database = stack.enter_context(opened_database())
        fill(broker, TOPIC, PARTITIONS, messages, console)
        bench = Bench(broker, database, java, messages, console)
        findings = {sink: bench.run(sink, systems, rounds) for sink in sinks}
        return findings, database_version(database)


def settings(
    sink: str, messages: int, rounds: int, findings: Findings, version: str
) -> dict[str, object]:
    """What the figures of a sink were measured with, and why some are not there."""
    measured = dict.fromkeys(system for system, _ in findings.runs)
    return {
        "work": f"{messages:,} events",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "batch_records": messages // BATCHES,
        "heap_mb": HEAP_MB,
        "database": DATABASE,
        "rivals": {
            "connect-runtime": locked_version("connect", "connect-runtime"),
            "debezium-connector-jdbc": locked_version("jdbc-sink", "debezium-connector-jdbc"),
            "PostgreSQL's JDBC driver": locked_version("jdbc-sink", "postgresql"),
            "PostgreSQL": version,
        },
        "guarantees": {name: SYSTEMS[name].guarantees[sink] for name in measured},
        "peers": {name: dict(SYSTEMS[name].settings) for name in measured},
        "without_figures": findings.without_figures("threads"),
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.sinks", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"default {MESSAGES:,}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    for option, choices in (("--sinks", SINKS), ("--systems", tuple(SYSTEMS))):
        parser.add_argument(
            option, nargs="+", choices=choices, default=list(choices), help="default: all of them"
        )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_MESSAGES:,} events, one round, nothing kept: does it still run?",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs, shows a table for each sink, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    messages, rounds = (QUICK_MESSAGES, 1) if chosen.quick else (chosen.messages, chosen.rounds)

    def work(console: Console) -> int:
        found, version = run(chosen.sinks, chosen.systems, messages, rounds, console)
        for sink, findings in found.items():
            benchmark = f"sinks-{sink}"
            measured = figures.rows(benchmark, "threads", UNITS, findings.runs)
            told = settings(sink, messages, rounds, findings, version)
            show(console, benchmark, measured, None if chosen.quick else told, findings.failed)
        is_whole = all(findings.runs and not findings.failed for findings in found.values())
        return 0 if is_whole else 1

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
