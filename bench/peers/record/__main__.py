"""Work for each record: headrace workers beside Kafka Workers, a plain loop and Quix Streams.

A call that is answered after 5 ms, and 1 ms of a processor, at 4 partitions and with 4, 64 and 512
lanes. Every system works through the same topic from its start, once to warm up and then once a
round, in turn. Systems without lanes have a process a partition, and one line.
"""

from __future__ import annotations

import argparse
import itertools
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
from bench.peers.figures import Run
from bench.peers.kafka_workers import VERSION as KAFKA_WORKERS
from bench.peers.record.job import COMMIT_SECONDS, WORK_US, Job
from bench.peers.record.python_programs import quix_version
from bench.peers.record.systems import SYSTEMS, OpenJob
from bench.setup import Setup
from headrace.runtime.java.installation import Java, find_java

LANES = (4, 64, 512)
QUICK_LANES = (64,)
ROUNDS = 3
THREADS = os.cpu_count() or 1
SECONDS = 10
QUICK_SECONDS = 3
MAX_PER_SECOND = 30_000
"""More than any of these systems does, so that no run is much longer than the others."""


def benchmark(kind: str) -> str:
    """The name of its results."""
    return f"worker-peers-{kind}"


def ideal(kind: str, lanes: int) -> float:
    """Records a second, if nothing took time but the work."""
    at_once = lanes if kind == "call" else min(lanes, THREADS)
    return at_once / (WORK_US[kind] / 1e6)


def messages_of(kind: str, lanes: int, seconds: int) -> int:
    """So many that a run takes about so long."""
    return int(min(ideal(kind, lanes), MAX_PER_SECOND) * seconds)


UNITS = {**figures.UNITS, "of_ideal": "%"}


@dataclass(frozen=True)
class Worked:
    """A run, and what would have been possible."""

    run: Run
    ideal: float

    def figures(self) -> dict[str, float]:
        """By metric of :data:`UNITS`."""
        return {
            **self.run.figures(),
            "of_ideal": 100 * self.run.messages_per_second / self.ideal,
        }

    def __str__(self) -> str:
        return str(self.run)


@dataclass(frozen=True)
class Bench:
    """Topics on one broker; ``seconds`` is about how long a run takes."""

    broker: Broker
    java: Java
    seconds: int
    rounds: int
    console: Console

    def contest(
        self, kind: str, lanes: int, starts: Mapping[str, OpenJob], findings: Findings
    ) -> None:
        """All systems at one number of lanes."""
        setup = self._setup(kind, lanes)
        fill(self.broker, setup.topic, PARTITIONS, setup.messages, self.console)
        job = Job(setup.bootstrap, setup.topic, kind, lanes // PARTITIONS, THREADS)
        chosen = {
            name: partial(start, job=job)
            for name, start in starts.items()
            if SYSTEMS[name].has_lanes or lanes == PARTITIONS
        }
        measure = partial(self._measure, setup, ideal(kind, lanes))
        Contest(setup, lanes, measure, findings, self.console).run(chosen, self.rounds)

    def _setup(self, kind: str, lanes: int) -> Setup:
        name = f"{kind}-{lanes}-lanes"
        return setup_for(
            self.broker,
            self.java,
            name,
            topic=name,
            messages=messages_of(kind, lanes, self.seconds),
            threads=THREADS,
            batch_records=0,
        )

    def _measure(self, setup: Setup, ideal: float, driver: Driver, out: Path) -> Worked:
        return Worked(run_once(driver, out, setup.messages, self.broker), ideal)


def run(
    kinds: Sequence[str],
    lanes: Sequence[int],
    systems: Sequence[str],
    seconds: int,
    rounds: int,
    console: Console,
) -> dict[str, Findings]:
    """The whole benchmark, by kind of work."""
    java = find_java(os.environ)
    starts, missing = prepared({name: SYSTEMS[name].prepare for name in systems}, java, console)
    found = {kind: Findings(missing=missing) for kind in kinds}
    if not starts:
        return found
    with opened(java, console, BROKER) as broker:
        bench = Bench(broker, java, seconds, rounds, console)
        for kind, number in itertools.product(kinds, lanes):
            bench.contest(kind, number, starts, found[kind])
    return found


def settings(kind: str, seconds: int, rounds: int, findings: Findings) -> dict[str, object]:
    """What the figures were measured with, and why some are not there."""
    measured = dict.fromkeys(system for system, _ in findings.runs)
    return {
        "work": f"{WORK_US[kind] / 1000:g} ms of {kind} a record, about {seconds} s a run",
        "rounds": rounds,
        "partitions": PARTITIONS,
        "threads": THREADS,
        "heap_mb": HEAP_MB,
        "commit_seconds": COMMIT_SECONDS,
        "rivals": {"kafka-workers": KAFKA_WORKERS, "quixstreams": quix_version()},
        "guarantees": dict.fromkeys(measured, "at least once"),
        "peers": {name: dict(SYSTEMS[name].settings) for name in measured},
        "without_figures": findings.without_figures("lanes"),
    }


def _arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.record", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--work", nargs="+", choices=WORK_US, default=list(WORK_US))
    parser.add_argument("--lanes", nargs="+", type=int, choices=LANES, help="default: all of them")
    parser.add_argument(
        "--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="default: all of them"
    )
    parser.add_argument(
        "--quick", action="store_true", help="short runs, nothing kept: does it still run?"
    )
    return parser.parse_args(given)


def main(given: Sequence[str]) -> int:
    """Runs, shows a table a kind of work, keeps the results unless it was a quick run."""
    chosen = _arguments(given)
    seconds, rounds = (QUICK_SECONDS, 1) if chosen.quick else (SECONDS, chosen.rounds)
    lanes = chosen.lanes or (QUICK_LANES if chosen.quick else LANES)

    def work(console: Console) -> int:
        found = run(chosen.work, lanes, chosen.systems, seconds, rounds, console)
        for kind, findings in found.items():
            measured = figures.rows(benchmark(kind), "lanes", UNITS, findings.runs)
            told = None if chosen.quick else settings(kind, seconds, rounds, findings)
            show(console, benchmark(kind), measured, told, findings.failed)
        return 1 if any(one.failed or not one.runs for one in found.values()) else 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
