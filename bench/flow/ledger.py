"""What the ledger costs: a pipeline from a topic into a lake, with the ledger and without.

Each round has a run with it and a run without it. ``overhead_percent`` is the CPU of the first
above that of the second, of the system alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

from rich.console import Console

from bench.cluster import fill
from bench.flow.part import OURS, ContestPart, System, distinct_ids
from bench.headrace_writer import open_headrace, table_files
from bench.peers.contest import PARTITIONS, Findings
from bench.peers.figures import PER_MESSAGE
from bench.results import Row
from headrace.settings.model import LedgerSettings

WITHOUT = "-without-ledger"
OVERHEAD = "overhead_percent"


class Ledger(ContestPart):
    """The topic of the writer's benchmark."""

    benchmark = "ledger"
    topic = "impressions"
    rounds = 7
    units: ClassVar[Mapping[str, str]] = {**PER_MESSAGE, OVERHEAD: "%"}

    @property
    def systems(self) -> Mapping[str, System]:
        """Fused, and behind a step; with the ledger, and without."""
        steps = {OURS: False, f"{OURS}-spark-step": True}
        return {
            name + ("" if enabled else WITHOUT): _system(with_step=with_step, has_ledger=enabled)
            for name, with_step in steps.items()
            for enabled in (True, False)
        }

    def fill(self, console: Console) -> None:
        """Makes the topic."""
        fill(self.broker, self.topic, PARTITIONS, self.events, console)

    @property
    def messages(self) -> int:
        """Of the topic."""
        return self.events

    @property
    def expected(self) -> Mapping[str, int]:
        """Each event once."""
        return {"rows": self.events, "distinct_ids": self.events}

    def work(self) -> str:
        """What there is to do."""
        return f"{self.events:,} impressions"

    def rows(self, findings: Findings) -> list[Row]:
        """A row a system and metric, of the ledger's systems what it costs."""
        runs = dict(findings.runs)
        for (name, size), rounds in findings.runs.items():
            if without := findings.runs.get((name + WITHOUT, size)):
                runs[name, size] = [
                    figures | {OVERHEAD: overhead_percent(figures, others)}
                    for figures, others in zip(rounds, without, strict=True)
                ]
        return super().rows(replace(findings, runs=runs))


def overhead_percent(figures: Mapping[str, float], others: Mapping[str, float]) -> float:
    """The CPU of a message, above that of another run."""
    return 100 * (figures["cpu_us_per_message"] / others["cpu_us_per_message"] - 1)


def _system(*, with_step: bool, has_ledger: bool) -> System:
    settings = LedgerSettings(enabled=has_ledger)
    return System(
        lambda _: partial(open_headrace, with_step=with_step, ledger=settings),
        "exactly once",
        lambda out: distinct_ids(table_files(out)),
        {"ledger.enabled": str(has_ledger).lower()},
    )
