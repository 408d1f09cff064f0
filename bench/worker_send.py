"""Consume, transform, produce: what a worker reaches that sends something for each record.

Every system reads the same topic from its start and writes each record to another one; a record
counts when its offset is committed, which no system does before the broker has what was sent. With
1 and 16 lanes a partition; systems without lanes have a process a partition, and one line. Those
with ``-once`` send and commit in transactions.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from bench.cluster import Broker, fill, opened
from bench.command import exit_code, show
from bench.driver import Driver
from bench.events import impressions_topic
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
from bench.peers.figures import Measurement
from bench.peers.kafka_workers import VERSION as KAFKA_WORKERS
from bench.peers.record.job import COMMIT_SECONDS, SEND, Job
from bench.peers.record.python_programs import quix_version
from bench.peers.record.systems import SENDING, OpenJob
from bench.setup import Setup
from headrace.kafka.admin.topics import apply_changes, plan_topics
from headrace.kafka.client.clients import client_config
from headrace.runtime.java.installation import Java, find_java
from headrace.settings.model import KafkaSettings

BENCHMARK = "worker-send"
LANES = (PARTITIONS, 16 * PARTITIONS)
MESSAGES = 300_000
QUICK_MESSAGES = 60_000
ROUNDS = 3
THREADS = os.cpu_count() or 1
UNITS = {"messages_per_second": "messages/s", "cpu_us_per_message": "us"}


@dataclass(frozen=True)
class Bench:
    """Topics on one broker, each of ``messages`` records."""

    broker: Broker
    java: Java
    messages: int
    rounds: int
    console: Console

    def contest(self, lanes: int, starts: Mapping[str, OpenJob], findings: Findings) -> None:
        """All systems at one number of lanes."""
        setup = self._setup(lanes)
        fill(self.broker, setup.topic, PARTITIONS, setup.messages, self.console)
        out = impressions_topic(f"{setup.topic}-out", PARTITIONS)
        config = client_config(KafkaSettings(), self.broker.bootstrap)
        apply_changes(config, plan_topics([out], {}))
        lanes_each = lanes // PARTITIONS
        job = Job(setup.bootstrap, setup.topic, SEND, lanes_each, THREADS, out=out.name)
        chosen = {
            name: partial(start, job=job)
            for name, start in starts.items()
            if SENDING[name].has_lanes or lanes == PARTITIONS
        }
        measure = partial(self._measure, setup)
        Contest(setup, lanes, measure, findings, self.console).run(chosen, self.rounds)

    def _setup(self, lanes: int) -> Setup:
        name = f"send-{lanes}-lanes"
        return setup_for(
            self.broker,
            self.java,
            name,
            topic=name,
            messages=self.messages,
            threads=THREADS,
            batch_records=0,
        )

    def _measure(self, setup: Setup, driver: Driver, out: Path) -> Measurement:
        return Measurement(run_once(driver, out, setup.messages, self.broker))


def run(systems: Sequence[str], messages: int, rounds: int, console: Console) -> Findings:
    """The whole benchmark."""
    java = find_java(os.environ)
    starts, missing = prepared({name: SENDING[name].prepare for name in systems}, java, console)
    findings = Findings(missing=missing)
    if starts:
        with opened(java, console, BROKER) as broker:
            bench = Bench(broker, java, messages, rounds, console)
            for lanes in LANES:
                bench.contest(lanes, starts, findings)
    return findings


def settings(messages: int, rounds: int, findings: Findings) -> dict[str, object]:
    """What the figures were measured with, and why some are not there."""
    measured = dict.fromkeys(system for system, _ in findings.runs)
    return {
        "work": f"{messages:,} records a run, each sent on to another topic",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "threads": THREADS,
        "heap_mb": HEAP_MB,
        "commit_seconds": COMMIT_SECONDS,
        "rivals": {"kafka-workers": KAFKA_WORKERS, "quixstreams": quix_version()},
        "guarantees": {name: SENDING[name].guarantee for name in measured},
        "peers": {name: dict(SENDING[name].settings) for name in measured},
        "without_figures": findings.without_figures("lanes"),
    }


def main(given: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    parser = argparse.ArgumentParser(prog="python -m bench.worker_send", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--messages", type=int, default=MESSAGES, help=f"default {MESSAGES:,}")
    parser.add_argument("--systems", nargs="+", choices=SENDING, default=list(SENDING))
    parser.add_argument("--quick", action="store_true", help="one short round, nothing kept")
    chosen = parser.parse_args(given)
    rounds = 1 if chosen.quick else chosen.rounds
    messages = QUICK_MESSAGES if chosen.quick else chosen.messages

    def work(console: Console) -> int:
        findings = run(chosen.systems, messages, rounds, console)
        measured = figures.rows(BENCHMARK, "lanes", UNITS, findings.runs)
        told = None if chosen.quick else settings(messages, rounds, findings)
        show(console, BENCHMARK, measured, told, findings.failed)
        return 1 if findings.failed or not findings.runs else 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
