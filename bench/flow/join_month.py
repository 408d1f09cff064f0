"""The join with a window of 30 days, all of whose impressions are kept, beside one of an hour.

Event times of the month's topics are spread over 30 days, and one click in ten comes up to 29 days
after its impression. The window of an hour has topics of its own, of two hours, as in ``join``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from bench.driver import Driver, Open
from bench.flow import headrace_flow
from bench.flow.events import Traffic
from bench.flow.join import TIMES, expected_rows, fill_traffic, state_per_impression, work
from bench.flow.part import OURS, ContestPart, System
from bench.flow.times import Times
from bench.peers.contest import PARTITIONS, Findings, run_in_stretches
from bench.peers.figures import PER_MESSAGE, Measurement, Run
from bench.results import Row
from headrace.runtime.java.installation import Java

HOUR = f"{OURS}-hour"
MONTH = timedelta(days=30)
TIMES_OF_MONTH = replace(TIMES, within=MONTH)
MOST_OF_HOUR = 2_000_000
STRETCHES = (0.2, 0.4, 0.6, 0.8)
"""Of a run: memory in the last is compared with memory in the first."""
RATE = "rate_of_hour_percent"


class JoinMonth(ContestPart):
    """Two topics of a month, and two of two hours."""

    benchmark = "join-month"
    count = 50_000_000
    quick_count = 400_000
    rounds = 1
    has_warm_up = False
    units: ClassVar[Mapping[str, str]] = {
        **PER_MESSAGE,
        RATE: "%",
        "memory_growth": "x",
        "state_bytes_per_impression": "bytes",
        "batch_time_growth": "x",
        "matched_rows": "rows",
        "unmatched_rows": "rows",
    }

    def __init__(self, events: int) -> None:
        super().__init__(events)
        month = Traffic(events, PARTITIONS, MONTH, timedelta(days=29), name="month")
        hour = Traffic(min(events, MOST_OF_HOUR), PARTITIONS, name="hour")
        self.traffic = {OURS: month, HOUR: hour}

    @property
    def systems(self) -> Mapping[str, System]:
        """headrace with both windows."""
        return {
            name: System(
                partial(_prepare, self.traffic[name], times),
                "exactly once",
                headrace_flow.joined_rows,
                state_folders=headrace_flow.join_state,
            )
            for name, times in {OURS: TIMES_OF_MONTH, HOUR: TIMES}.items()
        }

    def fill(self, console: Console) -> None:
        """Makes the topics."""
        for traffic in self.traffic.values():
            fill_traffic(self.broker, traffic, console)

    @property
    def messages(self) -> int:
        """Of the topics of the hour: batches have a tenth of them with both windows."""
        return self.traffic[HOUR].messages

    @property
    def topic(self) -> str:
        """That of the hour's impressions."""
        return self.traffic[HOUR].impressions_topic.name

    @property
    def expected(self) -> Mapping[str, int]:
        """Of the month."""
        return self.expected_of(OURS)

    def expected_of(self, system: str) -> Mapping[str, int]:
        """Each has topics of its own."""
        return expected_rows(self.traffic[system])

    def measure(self, driver: Driver, out: Path) -> Measurement:
        """As every part does, by stretches of the topics."""
        messages = self.traffic[driver.name].messages
        runs = run_in_stretches(driver, out, messages, self.broker, STRETCHES)
        run = Run.of_stretches(runs)
        first, last = runs[0].usage.peak_memory_mb, runs[-1].usage.peak_memory_mb
        return Measurement(run, {"memory_growth": last / first, **self.others(driver, out, run)})

    def others(self, driver: Driver, out: Path, run: Run) -> dict[str, float]:
        """Those of every part, and the state of an impression that is kept."""
        figures, times = super().others(driver, out, run), TIMES
        if driver.name == OURS:
            times = TIMES_OF_MONTH
        return figures | state_per_impression(figures, times.kept(self.traffic[driver.name]))

    def rows(self, findings: Findings) -> list[Row]:
        """A row a system and metric; the month's speed beside the hour's is a ratio by round."""
        return super().rows(replace(findings, runs=with_rates(findings.runs)))

    def work(self) -> str:
        """What there is to do."""
        return f"of a month: {work(self.traffic[OURS])}; of two hours: {work(self.traffic[HOUR])}"


def with_rates(
    runs: Mapping[tuple[str, int], list[dict[str, float]]],
) -> dict[tuple[str, int], list[dict[str, float]]]:
    """The runs, those of the month with their rate as a share of the hour's."""
    rated = dict(runs)
    for (name, size), rounds in runs.items():
        if name == OURS and (hours := runs.get((HOUR, size))):
            rated[name, size] = [
                month | {RATE: 100 * month["messages_per_second"] / hour["messages_per_second"]}
                for month, hour in zip(rounds, hours, strict=True)
            ]
    return rated


def _prepare(traffic: Traffic, times: Times, _: Java) -> Open:
    return partial(headrace_flow.open_join, traffic=traffic, times=times)
