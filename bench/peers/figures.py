"""What a run of a system gave, and the rows that its runs make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.results import Row, row
from headrace.runtime.process_tree import Usage

Runs = Mapping[tuple[str, int], Sequence[Mapping[str, float]]]
"""By system and size, a round's figures by metric."""

UNITS = {
    "messages_per_second": "messages/s",
    "cpu_seconds_per_million": "s",
    "broker_cpu_seconds_per_million": "s",
    "peak_memory_mb": "MB",
}
PER_MESSAGE = {
    "messages_per_second": "messages/s",
    "cpu_us_per_message": "us",
    "broker_cpu_us_per_message": "us",
    "peak_memory_mb": "MB",
}


@dataclass(frozen=True)
class Run:
    """What lay between two commits of one run: messages, seconds, and what was used."""

    messages: int
    seconds: float
    usage: Usage
    broker_cpu_seconds: float
    database_cpu_seconds: float = 0.0

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

    @classmethod
    def of_stretches(cls, runs: Sequence[Run]) -> Run:
        """What lay between the first commit and the last of stretches that follow each other."""
        usages = [run.usage for run in runs]
        return cls(
            sum(run.messages for run in runs),
            sum(run.seconds for run in runs),
            Usage(
                sum(usage.cpu_seconds for usage in usages),
                max(usage.peak_memory_mb for usage in usages),
                max(usage.peak_worker_memory_mb for usage in usages),
            ),
            sum(run.broker_cpu_seconds for run in runs),
            sum(run.database_cpu_seconds for run in runs),
        )

    def figures(self) -> dict[str, float]:
        """By metric of :data:`UNITS`."""
        millions = self.messages / 1e6
        return {
            "messages_per_second": self.messages_per_second,
            "cpu_seconds_per_million": self.usage.cpu_seconds / millions,
            "broker_cpu_seconds_per_million": self.broker_cpu_seconds / millions,
            "peak_memory_mb": self.usage.peak_memory_mb,
        }


@dataclass(frozen=True)
class Measurement:
    """A run, with its figures by message, and others that a benchmark has of it by metric."""

    run: Run
    others: Mapping[str, float] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """By metric: those of :data:`PER_MESSAGE`, and the others."""
        per_message = 1e6 / self.run.messages
        return {
            "messages_per_second": self.run.messages_per_second,
            "cpu_us_per_message": self.run.usage.cpu_seconds * per_message,
            "broker_cpu_us_per_message": self.run.broker_cpu_seconds * per_message,
            "peak_memory_mb": self.run.usage.peak_memory_mb,
            **self.others,
        }

    def __str__(self) -> str:
        others = (f"{name} {value:,.4g}" for name, value in self.others.items())
        return ", ".join((str(self.run), *others))


def rows(benchmark: str, kind: str, units: Mapping[str, str], runs: Runs) -> list[Row]:
    """A row a system, size and metric; sorted by system, as they came.

    Args:
        benchmark: its name.
        kind: of size: ``threads`` or ``lanes``.
        units: by metric, in the order of the columns.
        runs: a metric that one of a system's rounds lacks has no row.
    """
    order = list(dict.fromkeys(system for system, _ in runs))
    by_system = sorted(runs, key=lambda key: (order.index(key[0]), key[1]))
    return [
        row(benchmark, system, metric, unit, rounds, **{kind: size})
        for system, size in by_system
        for metric, unit, rounds in _measured(units, runs[system, size])
    ]


def _measured(
    units: Mapping[str, str], runs: Sequence[Mapping[str, float]]
) -> Iterator[tuple[str, str, list[float]]]:
    for metric, unit in units.items():
        rounds = [found[metric] for found in runs if metric in found]
        if len(rounds) == len(runs):
            yield metric, unit, rounds
