"""The columns of RTB House's table, from the runs of each system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction

from bench.results import Row, row
from bench.usage import Usage
from headrace.control.sizing import catch_up

BENCHMARK = "writer-peers"
ARRIVING = Fraction(20_000)
"""Messages a second that come in while a lag is caught up, as RTB House has it."""
LAG = timedelta(days=1)


@dataclass(frozen=True)
class Run:
    """What lay between two commits of one run: messages, seconds, and what was used."""

    messages: int
    seconds: float
    usage: Usage
    broker_cpu_seconds: float
    files: int

    @property
    def messages_per_second(self) -> float:
        """By wall clock."""
        return self.messages / self.seconds

    def __str__(self) -> str:
        cpu = self.usage.cpu_seconds * 1e6 / self.messages
        return (
            f"{self.messages:,} messages in {self.seconds:.1f} s, "
            f"{self.messages_per_second:,.0f} messages/s, {cpu:.2f} CPU s/million"
        )

    def figures(self, threads: int) -> dict[str, float]:
        """By metric; no time to catch up when that is never."""
        millions = self.messages / 1e6
        found = {
            "messages_per_second": self.messages_per_second,
            "messages_per_second_per_thread": self.messages_per_second / threads,
            "catch_up_hours": hours_to_catch_up(self.messages_per_second),
            "cpu_seconds_per_million": self.usage.cpu_seconds / millions,
            "broker_cpu_seconds_per_million": self.broker_cpu_seconds / millions,
            "peak_memory_mb": self.usage.peak_memory_mb,
            "files": float(self.files),
        }
        return {name: value for name, value in found.items() if value is not None}


UNITS = {
    "messages_per_second": "messages/s",
    "messages_per_second_per_thread": "messages/s",
    "catch_up_hours": "h",
    "cpu_seconds_per_million": "s",
    "broker_cpu_seconds_per_million": "s",
    "peak_memory_mb": "MB",
    "files": "files",
}


def hours_to_catch_up(messages_per_second: float) -> float | None:
    """A day's lag at 20,000 messages a second; ``None``: never."""
    needed = catch_up(LAG, ARRIVING, Fraction(messages_per_second))
    return needed / timedelta(hours=1) if needed is not None else None


def rows(runs: Mapping[tuple[str, int], Sequence[Run]]) -> list[Row]:
    """A row a system, number of threads and metric; sorted by system, as they came."""
    order = list(dict.fromkeys(system for system, _ in runs))
    by_system = sorted(runs, key=lambda key: (order.index(key[0]), key[1]))
    return [one for key in by_system for one in _rows(*key, runs[key])]


def _rows(system: str, threads: int, runs: Sequence[Run]) -> Iterator[Row]:
    figures = [run.figures(threads) for run in runs]
    for metric, unit in UNITS.items():
        rounds = [found[metric] for found in figures if metric in found]
        if len(rounds) == len(figures):
            yield row(BENCHMARK, system, metric, unit, rounds, threads=threads)
