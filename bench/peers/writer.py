"""Kafka to Parquet by hour and category: headrace beside Kafka Workers, Kafka Connect and Flink.

Every system writes the same topic from its start into an empty folder, once to warm up and then
once a round, in turn, with 1, 2 and 4 threads; each run's output is read back and must hold every
event once, otherwise the system has no figures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TaskID

from bench import report
from bench.cluster import Broker, fill, running_broker
from bench.events import events
from bench.keep import keep
from bench.peers.contest import HEAP_MB, PARTITIONS, TOPIC, Bench, Contest, Findings
from bench.peers.figures import BENCHMARK, rows
from bench.peers.java_program import locked_version
from bench.peers.kafka_workers import VERSION as KAFKA_WORKERS
from bench.peers.systems import SYSTEMS, prepared
from headrace.runtime.java import Java, find_java

MESSAGES = 2_000_000
# Fewer, and Iceberg's first commit has nearly all of them.
QUICK_MESSAGES = 1_000_000
QUICK_THREADS = (2,)
ROUNDS = 3
THREADS = (1, 2, 4)
# Kafka's default. Without it a group's first member begins alone, and its work is thrown away as
# soon as the second one joins.
BROKER = {"group.initial.rebalance.delay.ms": "3000"}
WORK = Path(__file__).resolve().parents[1] / ".work"


@contextmanager
def opened(messages: int, java: Java, console: Console) -> Iterator[Bench]:
    """The broker with its topic; gone when the block ends."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    try:
        console.print("starting the broker")
        with running_broker(WORK, java, BROKER) as broker:
            _fill(broker, messages, console)
            yield Bench(broker, java, messages, WORK)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)


def _fill(broker: Broker, messages: int, console: Console) -> None:
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(f"{messages:,} events into topic {TOPIC}", total=messages)
        on_progress = partial(_advance, progress, task)
        fill(broker.bootstrap, TOPIC, PARTITIONS, events(messages), on_progress)


def _advance(progress: Progress, task: TaskID, sent: int) -> None:
    progress.update(task, completed=sent)


def run(
    messages: int, rounds: int, threads: Sequence[int], systems: Sequence[str], console: Console
) -> Findings:
    """The whole benchmark."""
    java = find_java(os.environ)
    starts, missing = prepared(systems, java)
    for system, reason in missing.items():
        console.print(f"without {system}: {reason}", style="yellow", markup=False)
    findings = Findings({}, {}, missing)
    if not starts:
        return findings
    with opened(messages, java, console) as bench:
        for number in threads:
            Contest(bench, number, findings, console).hold(starts, rounds)
    return findings


def settings(messages: int, rounds: int, findings: Findings) -> dict[str, object]:
    """What the figures were measured with, and why some are not there."""
    measured = dict.fromkeys(system for system, _ in findings.runs)
    failed = {
        f"{system} with {threads} threads": reason.splitlines()[-1]
        for (system, threads), reason in findings.failed.items()
    }
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
        "without_figures": findings.missing | failed,
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    systems = list(dict.fromkeys(chosen.systems))
    threads = dict.fromkeys(chosen.threads or (QUICK_THREADS if chosen.quick else THREADS))
    try:
        findings = run(messages, rounds, list(threads), systems, console)
    except KeyboardInterrupt:
        console.print("stopped; nothing was kept")
        return 130
    measured = rows(findings.runs)
    if measured:
        console.print(report.table(BENCHMARK, measured))
        if not chosen.quick:
            chosen_settings = settings(messages, rounds, findings)
            keep(BENCHMARK, measured, chosen_settings, failed=findings.failed)
    return 1 if findings.failed or not measured else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
