"""One of fifty impressions comes twice, in another partition; each is to be written once.

headrace does it in the state of a step and, without a step, against the table that it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import ClassVar

from rich.console import Console

from bench.cluster import fill_placed
from bench.driver import Open
from bench.events import impressions_topic
from bench.flow import flink_flow, headrace_flow, spark_flow
from bench.flow.events import repeats, with_repeats
from bench.flow.part import ContestPart, System, distinct_ids
from bench.headrace_writer import table_files
from bench.peers import flink_sql
from bench.peers.contest import PARTITIONS
from bench.peers.figures import PER_MESSAGE
from bench.peers.java_program import locked_version
from headrace.runtime.java.installation import Java

HORIZON = timedelta(minutes=10)
"""How long after an event, by event time, a repeat of it is known."""


class Deduplication(ContestPart):
    """One topic, in which some events come twice."""

    benchmark = "dedup"
    topic = "repeated-impressions"
    units: ClassVar[Mapping[str, str]] = {
        **PER_MESSAGE,
        "state_mb": "MB",
        "batch_time_growth": "x",
        "rows": "rows",
        "distinct_ids": "ids",
    }

    @property
    def systems(self) -> Mapping[str, System]:
        """headrace's two ways, and those of the others."""
        step = partial(headrace_flow.open_deduplicated, within=HORIZON)
        unique = partial(headrace_flow.open_unique, within=HORIZON)
        plain = partial(spark_flow.open_deduplicated, within=HORIZON)
        return {
            "headrace": System(
                lambda _: step,
                "exactly once",
                lambda out: distinct_ids(table_files(out)),
                state_folders=headrace_flow.state_folders,
            ),
            "headrace-unique-table": System(
                lambda _: unique,
                "exactly once",
                lambda out: distinct_ids(table_files(out)),
            ),
            "plain-spark": System(
                lambda _: plain,
                "exactly once, for readers of its log",
                lambda out: distinct_ids(spark_flow.table_files(out)),
                spark_flow.STATEFUL,
                spark_flow.state_folders,
            ),
            "flink-sql": System(
                self._flink,
                "exactly once",
                lambda out: distinct_ids(flink_flow.table_files(out)),
                flink_sql.SETTINGS | flink_flow.kept_for(HORIZON),
                flink_flow.state_folders,
            ),
        }

    def _flink(self, java: Java) -> Open:
        return partial(
            flink_flow.open_flow,
            program=flink_sql.prepare(java),
            topics=(self.topic,),
            statements=flink_flow.deduplication_statements,
            settings=flink_flow.kept_for(HORIZON),
        )

    def fill(self, console: Console) -> None:
        """Makes the topic."""
        records = with_repeats(self.events, PARTITIONS)
        topic = impressions_topic(self.topic, PARTITIONS)
        fill_placed(self.broker, topic, records, self.messages, console)

    @property
    def messages(self) -> int:
        """Events and repeats."""
        return self.events + repeats(self.events)

    @property
    def expected(self) -> Mapping[str, int]:
        """Each event once."""
        return {"rows": self.events, "distinct_ids": self.events}

    def work(self) -> str:
        """What there is to do."""
        return f"{self.events:,} impressions and {repeats(self.events):,} repeats"

    def rivals(self) -> Mapping[str, str]:
        """Flink."""
        return {"flink": locked_version("flink", "flink-runtime")}
