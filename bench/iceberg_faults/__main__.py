"""Kafka Connect's Iceberg sink and headrace under the same faults: rows lost, rows doubled.

Each run sends the same events to a new topic and has one system copy them into a new table of a
SQL catalog, while faults are planted. Then the rows of each event are counted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from tests.integration.postgres_server import PostgresServer

from bench.cluster import WORK, Broker, make_topic, opened
from bench.command import exit_code, show
from bench.driver import SystemFailedError
from bench.events import events, impressions_topic
from bench.iceberg_faults.catalog import Catalog, Tally
from bench.iceberg_faults.connect import KafkaConnect
from bench.iceberg_faults.faults import FAULTS, PLANTED, Outcome, Run, losing
from bench.iceberg_faults.headrace_system import Headrace
from bench.iceberg_faults.system import PARTITIONS, Place, System
from bench.peers.java_program import locked_version
from bench.results import Row, row
from headrace.runtime.java.installation import Java, find_java

BENCHMARK = "iceberg-faults"
EVENTS = 50_000
QUICK_EVENTS = 8_000
SEEDS = 3
HEAP_MB = 512
SYSTEMS: Mapping[str, type[System]] = {"headrace": Headrace, "kafka-connect": KafkaConnect}
STATES = [state for system in SYSTEMS.values() for state in system.states]
BROKER = {"group.initial.rebalance.delay.ms": "3000"}


def measured(
    runs: Sequence[tuple[str, str, int]], count: int, console: Console
) -> Iterator[Outcome]:
    """Does runs, and yields the outcome of each, each a (system, fault, seed)."""
    java = find_java(os.environ)
    sent = {json.loads(value)["event_id"]: value for value in events(count)}
    with ExitStack() as stack:
        broker = stack.enter_context(opened(java, console, BROKER))
        server = PostgresServer()
        stack.callback(server.remove)
        server.start()
        catalog = stack.enter_context(closing(Catalog(server, WORK / "warehouse")))
        for system, fault, seed in runs:
            place = _place(system, fault, seed, broker, catalog, java)
            yield _outcome(system, fault, seed, place, sent)


def known(file: Path | None) -> list[Outcome]:
    """Returns the outcomes that a file has, in which :func:`main` noted them."""
    if file is None or not file.exists():
        return []
    lines = map(json.loads, file.read_text().splitlines())
    return [Outcome(**{**line, "tally": Tally(**line["tally"])}) for line in lines]


def _runs(
    systems: Sequence[str], faults: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[str, str, int]]:
    for seed, fault, system in itertools.product(seeds, faults, systems):
        if fault in FAULTS or fault in SYSTEMS[system].states:
            yield system, fault, seed


def _place(
    system: str, fault: str, seed: int, broker: Broker, catalog: Catalog, java: Java
) -> Place:
    name = f"{system}-{fault}-{seed}".replace("-", "_")
    make_topic(broker, impressions_topic(name, PARTITIONS))
    return Place(name, WORK / name, broker, catalog, java, HEAP_MB, catalog.port)


def _outcome(name: str, fault: str, seed: int, place: Place, sent: Mapping[str, bytes]) -> Outcome:
    began = time.monotonic()
    system = SYSTEMS[name](place)
    with ExitStack() as stack:
        run = Run(system, sent, random.Random(f"{fault} {seed}"), stack)
        stack.callback(system.stop)
        try:
            (FAULTS.get(fault) or losing(fault))(run)
        except SystemFailedError as error:
            run.give_up(str(error))
        run.settle()
    seconds = time.monotonic() - began
    counted = run.tally()
    return Outcome(name, fault, seed, counted, system.notes, seconds)


def rows(outcomes: Sequence[Outcome]) -> list[Row]:
    """Returns a row for each (fault, what is counted, system), and one for the number of runs."""
    kept = []
    for fault, system in itertools.product((*FAULTS, *STATES), SYSTEMS):
        tallies = [
            outcome.tally
            for outcome in outcomes
            if (outcome.fault, outcome.system) == (fault, system)
        ]
        if tallies:
            counts = {
                "lost": [tally.lost for tally in tallies],
                "doubled": [tally.doubled for tally in tallies],
            }
            kept += [
                row(BENCHMARK, system, f"{fault}: {what}", "rows", counts[what]) for what in counts
            ]
            kept.append(row(BENCHMARK, system, f"{fault}: runs", "runs", [len(tallies)]))
    return kept


def settings(count: int, seeds: Sequence[int]) -> dict[str, object]:
    """Returns what the figures were measured with."""
    return {
        "work": f"{count:,} events in each run, {PLANTED} faults",
        "rounds": len(seeds),
        "seeds": list(seeds),
        "partitions": PARTITIONS,
        "heap_mb": HEAP_MB,
        "rivals": {
            "connect-runtime": locked_version("connect", "connect-runtime"),
            "iceberg-kafka-connect": locked_version("iceberg", "iceberg-kafka-connect"),
        },
        "peers": {name: dict(system.settings) for name, system in SYSTEMS.items()},
    }


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.iceberg_faults", description=__doc__)
    parser.add_argument("--events", type=int, default=EVENTS, help=f"default {EVENTS:,}")
    parser.add_argument("--seed", type=int, default=1, help="the first one; default 1")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many; default {SEEDS}")
    for option, choices in (("--systems", tuple(SYSTEMS)), ("--faults", (*FAULTS, *STATES))):
        parser.add_argument(
            option, nargs="+", choices=choices, default=list(choices), help="default: all of them"
        )
    parser.add_argument(
        "--json", type=Path, help="a file for each run's outcome; runs that it has are not repeated"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{QUICK_EVENTS:,} events, one seed, nothing kept: does it still run?",
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Runs, shows a table, keeps the results unless it was a quick run."""
    chosen = _arguments(arguments)
    count, number = (QUICK_EVENTS, 1) if chosen.quick else (chosen.events, chosen.seeds)
    seeds = range(chosen.seed, chosen.seed + number)

    def work(console: Console) -> int:
        outcomes = known(chosen.json)
        done = {(outcome.system, outcome.fault, outcome.seed) for outcome in outcomes}
        runs = [run for run in _runs(chosen.systems, chosen.faults, seeds) if run not in done]
        for outcome in measured(runs, count, console) if runs else ():
            outcomes.append(outcome)
            console.print(outcome)
            if chosen.json:
                with chosen.json.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
        show(console, BENCHMARK, rows(outcomes), None if chosen.quick else settings(count, seeds))
        return 0

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
