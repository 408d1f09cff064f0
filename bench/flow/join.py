"""Clicks with their impressions, from two topics: headrace's ``Join`` beside other systems' joins.

With a window of an hour. After each run the rows are counted: with an impression, and without one.
headrace must have the right ones; what the others have is in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

from rich.console import Console

from bench.cluster import Broker, fill_placed
from bench.driver import Driver, Open
from bench.flow import flink_flow, headrace_flow, quix_join, spark_flow
from bench.flow.events import Traffic
from bench.flow.part import ContestPart, System
from bench.flow.times import Times
from bench.peers import flink_sql
from bench.peers.contest import PARTITIONS
from bench.peers.figures import PER_MESSAGE, Run
from bench.peers.java_program import locked_version
from bench.peers.record.python_programs import quix_python, quix_version
from headrace.runtime.java.installation import Java

TIMES = Times(within=timedelta(hours=1), wait=timedelta(minutes=2))


class Join(ContestPart):
    """Two topics, read together."""

    benchmark = "join"
    # Flink writes all of its state at each commit.
    messages_a_ms = 500
    units: ClassVar[Mapping[str, str]] = {
        **PER_MESSAGE,
        "state_bytes_per_impression": "bytes",
        "batch_time_growth": "x",
        "matched_rows": "rows",
        "unmatched_rows": "rows",
    }

    @cached_property
    def traffic(self) -> Traffic:
        """What the topics hold."""
        return Traffic(self.events, PARTITIONS)

    @property
    def systems(self) -> Mapping[str, System]:
        """headrace, and the joins of the others."""
        return {
            "headrace": System(
                lambda _: partial(headrace_flow.open_join, traffic=self.traffic, times=TIMES),
                "exactly once",
                headrace_flow.joined_rows,
                state_folders=headrace_flow.join_state,
            ),
            "plain-spark": System(
                lambda _: partial(spark_flow.open_join, traffic=self.traffic, times=TIMES),
                "exactly once, for readers of its log",
                spark_flow.joined_rows,
                spark_flow.STATEFUL,
                spark_flow.state_folders,
            ),
            "flink-sql": System(
                self._flink,
                "exactly once",
                flink_flow.joined_rows,
                flink_sql.SETTINGS,
                flink_flow.state_folders,
            ),
            "quix-streams": System(
                self._quix,
                "at least once",
                lambda out: quix_join.joined_rows(self.broker, out.name, PARTITIONS),
                quix_join.SETTINGS,
                quix_join.state_folders,
            ),
        }

    def _flink(self, java: Java) -> Open:
        clicks, impressions = self.traffic.clicks_topic.name, self.traffic.impressions_topic.name
        return partial(
            flink_flow.open_flow,
            program=flink_sql.prepare(java),
            topics=(clicks, impressions),
            statements=partial(flink_flow.join_statements, traffic=self.traffic, times=TIMES),
        )

    def _quix(self, _: Java) -> Open:
        return partial(quix_join.open_join, python=quix_python(), traffic=self.traffic, times=TIMES)

    def fill(self, console: Console) -> None:
        """Makes both topics."""
        fill_traffic(self.broker, self.traffic, console)

    @property
    def messages(self) -> int:
        """Of both topics."""
        return self.traffic.messages

    @property
    def topic(self) -> str:
        """That of the impressions."""
        return self.traffic.impressions_topic.name

    @property
    def expected(self) -> Mapping[str, int]:
        """Clicks with an impression and those without one."""
        return expected_rows(self.traffic)

    def others(self, driver: Driver, out: Path, run: Run) -> dict[str, float]:
        """Those of every part, and the state of an impression that is kept."""
        figures = super().others(driver, out, run)
        return figures | state_per_impression(figures, TIMES.kept(self.traffic))

    def work(self) -> str:
        """What there is to do."""
        return work(self.traffic)

    def rivals(self) -> Mapping[str, str]:
        """Flink and Quix Streams."""
        return {"flink": locked_version("flink", "flink-runtime"), "quixstreams": quix_version()}


def expected_rows(traffic: Traffic) -> dict[str, int]:
    """Clicks with an impression and those without one."""
    matched = traffic.clicks - traffic.unmatched
    return {"matched_rows": matched, "unmatched_rows": traffic.unmatched}


def state_per_impression(figures: Mapping[str, float], kept: int) -> dict[str, float]:
    """``state_mb`` by impression that is kept, as a figure."""
    return {"state_bytes_per_impression": figures["state_mb"] * 1e6 / kept}


def work(traffic: Traffic) -> str:
    """What there is to do."""
    matched = traffic.clicks - traffic.unmatched
    return (
        f"{traffic.count:,} impressions, {matched:,} clicks on them "
        f"and {traffic.unmatched:,} on others"
    )


def fill_traffic(broker: Broker, traffic: Traffic, console: Console) -> None:
    """Makes both topics."""
    shown, clicked = traffic.impression_records(), traffic.click_records()
    fill_placed(broker, traffic.impressions_topic, shown, traffic.count, console)
    fill_placed(broker, traffic.clicks_topic, clicked, traffic.clicks, console)
