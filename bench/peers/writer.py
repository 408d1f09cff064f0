"""Kafka to Parquet by hour and category: headrace beside Kafka Workers, Kafka Connect and Flink.

Every system writes the same topic from its start into an empty folder, once to warm up and then
once a round, in turn, with 1, 2 and 4 threads; each run's output is read back and must hold every
event once, otherwise the system has no figures.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.cluster import Broker, fill, opened
from bench.command import exit_code, show
from bench.driver import Driver
from bench.peers import figures
from bench.peers.contest import (
    BROKER,
    HEAP_MB,
    PARTITIONS,
    Contest,
    Findings,
    prepared,
    run_once,
    setup_for,
)
from bench.peers.figures import Run, Runs
from bench.peers.java_program import locked_version
from bench.peers.kafka_workers import VERSION as KAFKA_WORKERS
from bench.peers.systems import SYSTEMS
from bench.results import Row
from bench.setup import Setup
from bench.writer import check
from headrace.operations.sizing.sizes import catch_up
from headrace.runtime.java.installation import Java, find_java

BENCHMARK = "writer-peers"
TOPIC = "impressions"
MESSAGES = 2_000_000
# Fewer, and Iceberg's first commit has nearly all of them.
QUICK_MESSAGES = 1_000_000
QUICK_THREADS = (2,)
ROUNDS = 3
THREADS = (1, 2, 4)
BATCHES = 5
# Who commits by time: as many messages a commit as the others at 100,000 a second.
MESSAGES_A_MS = 500
ARRIVING = Fraction(20_000)
"""Messages a second that come in while a lag is caught up, as RTB House has it."""
LAG = timedelta(days=1)
UNITS = {
    "messages_per_second": "messages/s",
    "messages_per_second_per_thread": "messages/s",
    "catch_up_hours": "h",
    **figures.UNITS,
    "files": "files",
}
"""Metrics, in the order of RTB House's columns."""


@dataclass(frozen=True)
class Written:
    """A run of so many threads, and how many files it left."""

    run: Run
    threads: int
    files: int

    def figures(self) -> dict[str, float]:
        """By metric of :data:`UNITS`; no time to catch up when that is never."""
        speed = self.run.messages_per_second
        found = {
            **self.run.figures(),
            "messages_per_second_per_thread": speed / self.threads,
            "catch_up_hours": hours_to_catch_up(speed),
            "files": float(self.files),
        }
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        return str(self.run)


def hours_to_catch_up(messages_per_second: float) -> float | None:
    """A day's lag at 20,000 messages a second; ``None``: never."""
    needed = catch_up(LAG, ARRIVING, Fraction(messages_per_second))
    return needed / timedelta(hours=1) if needed is not None else None


def rows(runs: Runs) -> list[Row]:
    """A row a system, number of threads and metric."""
    return figures.rows(BENCHMARK, "threads", UNITS, runs)


@dataclass(frozen=True)
class Bench:
    """One topic on one broker."""

    broker: Broker
    java: Java
    messages: int

    def setup(self, threads: int) -> Setup:
        """What every system is given."""
        return setup_for(
            self.broker,
            self.java,
            f"{threads}-threads",
            topic=TOPIC,
            messages=self.messages,
            threads=threads,
            batch_records=self.messages // BATCHES,
            commit_every_ms=self.messages // MESSAGES_A_MS,
        )

    def measure(self, threads: int, driver: Driver, out: Path) -> Written:
        """One run of one warm system, checked.

        Raises:
            SystemFailedError: it did not do its work.
            OutputWrongError: its files do not hold every event once.
        """
        found = run_once(driver, out, self.messages, self.broker)
        files = SYSTEMS[driver.name].files(out)
        check(files, self.messages)
        return Written(found, threads, len(files))


def run(
    messages: int, rounds: int, threads: Sequence[int], systems: Sequence[str], console: Console
) -> Findings:
    """The whole benchmark."""
    java = find_java(os.environ)
    starts, missing = prepared({name: SYSTEMS[name].prepare for name in systems}, java, console)
    findings = Findings(missing=missing)
    if not starts:
        return findings
    with opened(java, console, BROKER) as broker:
        fill(broker, TOPIC, PARTITIONS, messages, console)
        bench = Bench(broker, java, messages)
        for number in threads:
            measure = partial(bench.measure, number)
            Contest(bench.setup(number), number, measure, findings, console).run(starts, rounds)
    return findings


def settings(messages: int, rounds: int, findings: Findings) -> dict[str, object]:
    """What the figures were measured with, and why some are not there."""
    measured = dict.fromkeys(system for system, _ in findings.runs)
    return {
        "work": f"{messages:,} events",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "heap_mb": HEAP_MB,
        "topic_compression": "lz4",
        "parquet_compression": "zstd",
        "rivals": {
            "kafka-workers": KAFKA_WORKERS,
            "connect-runtime": locked_version("connect", "connect-runtime"),
            "iceberg-kafka-connect": locked_version("iceberg", "iceberg-kafka-connect"),
            "flink": locked_version("flink", "flink-runtime"),
        },
        "guarantees": {name: SYSTEMS[name].guarantee for name in measured},
        "peers": {name: dict(SYSTEMS[name].settings) for name in measured},
        "without_figures": findings.without_figures("threads"),
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.writer", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"default {MESSAGES}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--threads", nargs="+", type=int, help="default 1 2 4; 2 with --quick")
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all of them"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_MESSAGES} events, one round, nothing kept: does it still run?",
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    messages, rounds = (QUICK_MESSAGES, 1) if chosen.quick else (chosen.messages, chosen.rounds)
    systems = list(dict.fromkeys(chosen.systems))
    threads = dict.fromkeys(chosen.threads or (QUICK_THREADS if chosen.quick else THREADS))

    def work(console: Console) -> int:
        findings = run(messages, rounds, list(threads), systems, console)
        told = None if chosen.quick else settings(messages, rounds, findings)
        show(console, BENCHMARK, rows(findings.runs), told, findings.failed)
        return 1 if findings.failed or not findings.runs else 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
