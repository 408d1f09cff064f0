"""What benchmarks do alike that measure times at a steady rate of events."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from bench.cluster import WORK, Broker, opened_in
from bench.command import exit_code, in_turn, show
from bench.driver import SystemFailedError
from bench.live_traffic import PARTITIONS
from bench.peers.programs import check_running
from bench.results import Row, row
from headrace.runtime.java.installation import find_java

START_SECONDS = 120
ROUNDS = 3


def await_start(
    has_started: Callable[[], bool], programs: Iterable[subprocess.Popen[str]], failure: str
) -> None:
    """Waits until programs do what is measured.

    Args:
        has_started: whether they do.
        programs: that must run meanwhile.
        failure: what has not happened otherwise, without a full stop.

    Raises:
        RuntimeError: if a program has ended.
        SystemFailedError: if they do not after two minutes.
    """
    deadline = time.monotonic() + START_SECONDS
    while not has_started():
        for program in programs:
            check_running(program)
        if time.monotonic() > deadline:
            raise SystemFailedError(f"{failure} within {START_SECONDS} s")


@dataclass(frozen=True)
class LatencyBenchmark:
    """A benchmark of several systems on one broker.

    Attributes:
        name: of the benchmark; its module is ``bench.`` with it, in Python's spelling.
        description: for its help.
        units: of its metrics, by name.
        measure: measures a system for some seconds, with a folder of its own: figures by metric.
        systems: their names.
        rate: of the events, in a second.
        queries: how many are registered.
        seconds: of each system in a round.
        quick_seconds: of each system in a quick run, of one round.
    """

    name: str
    description: str | None
    units: Mapping[str, str]
    measure: Callable[[Broker, str, float, Path], Mapping[str, float]]
    systems: Sequence[str]
    rate: int
    queries: int
    seconds: int
    quick_seconds: int

    def main(self, given: Sequence[str]) -> int:
        """Runs, shows a table, keeps the results unless it was a quick run."""
        chosen = self._arguments(given)
        seconds = self.quick_seconds if chosen.quick else chosen.seconds
        rounds = 1 if chosen.quick else chosen.rounds
        settings = {
            "work": f"{self.rate:,} events/s for {seconds} s, {self.queries:,} queries",
            "rounds": rounds,
            "partitions": PARTITIONS,
        }

        def work(console: Console) -> int:
            rows = self._run(chosen.systems, seconds, rounds, console)
            show(console, self.name, rows, None if chosen.quick else settings)
            return 0

        return exit_code(work)

    def _arguments(self, given: Sequence[str]) -> argparse.Namespace:
        program = f"python -m bench.{self.name.replace('-', '_')}"
        parser = argparse.ArgumentParser(prog=program, description=self.description)
        quick = f"{self.quick_seconds} s of each, one round, nothing kept"
        parser.add_argument("--quick", action="store_true", help=quick)
        parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
        seconds = f"of each in a round, default {self.seconds}"
        parser.add_argument("--seconds", type=int, default=self.seconds, help=seconds)
        systems = list(self.systems)
        parser.add_argument("--systems", nargs="+", choices=systems, default=systems)
        return parser.parse_args(given)

    def _run(
        self, systems: Sequence[str], seconds: float, rounds: int, console: Console
    ) -> list[Row]:
        java = find_java(os.environ)
        shutil.rmtree(WORK, ignore_errors=True)
        runs: dict[str, list[Mapping[str, float]]] = {system: [] for system in systems}
        try:
            with opened_in(WORK / "broker", java) as broker:
                for number, system in in_turn(systems, rounds):
                    console.print(f"{system}: {seconds:.0f} s at {self.rate:,} events/s")
                    figures = self.measure(broker, system, seconds, WORK / f"{system}-{number}")
                    shown = (f"{name} {value:,.4g}" for name, value in figures.items())
                    console.print(", ".join(shown))
                    runs[system].append(figures)
        finally:
            shutil.rmtree(WORK, ignore_errors=True)
        return [
            row(self.name, system, name, unit, [figures[name] for figures in measured])
            for system, measured in runs.items()
            for name, unit in self.units.items()
        ]
