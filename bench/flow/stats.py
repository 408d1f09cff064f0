"""Counts and sums of windows of 15 s by campaign and category, into a table of PostgreSQL.

headrace adds to what is there, in the transaction that holds its positions. Spark and Flink keep
the totals in their state and write them again as they grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar

import msgspec
import psycopg
from rich.console import Console
from tests.integration.postgres_server import PostgresServer

from bench.cluster import fill
from bench.driver import Driver, Open
from bench.events import events
from bench.flow import flink_flow, headrace_flow, spark_flow
from bench.flow.part import ContestPart, System
from bench.peers import flink_sql
from bench.peers.contest import PARTITIONS
from bench.peers.figures import PER_MESSAGE, Measurement, Run
from bench.peers.java_program import locked_version, peer_jars
from bench.plain_spark_sinks import driver_jars
from bench.sink_targets import database_version, opened_database, table_name
from bench.sinks import database_figures
from headrace import Count, Stats, Sum
from headrace.runtime.java.installation import Java

EVERY = timedelta(seconds=15)
LATE = "2 minutes"
STATS = Stats(
    "counts",
    by=("campaign", "category"),
    every=EVERY,
    measures={"impressions": Count(), "positions": Sum("position")},
)
TABLE = """\
CREATE TABLE {table} (
  window_start timestamp, campaign text, category text, impressions bigint, positions bigint,
  PRIMARY KEY (window_start, campaign, category)
)"""
UPSERT = """\
INSERT INTO {table} VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (window_start, campaign, category)
DO UPDATE SET impressions = excluded.impressions, positions = excluded.positions"""
COUNTS = "SELECT count(*), sum(impressions), sum(positions) FROM {table}"


class _Counted(msgspec.Struct):
    event_time: int
    campaign: str
    category: str
    position: int


class StatsCounter(ContestPart):
    """The topic of the writer's benchmark."""

    benchmark = "stats"
    topic = "impressions"
    units: ClassVar[Mapping[str, str]] = {
        **PER_MESSAGE,
        "database_cpu_us_per_message": "us",
        "batch_time_growth": "x",
        "groups": "rows",
        "counted_events": "events",
    }
    database: PostgresServer

    @property
    def systems(self) -> Mapping[str, System]:
        """headrace, and the aggregations of the others."""
        return {
            "headrace": System(
                lambda _: partial(headrace_flow.open_stats, url=self.database.url, stats=STATS),
                "exactly once",
                self._counts,
            ),
            "plain-spark": System(
                lambda _: partial(
                    spark_flow.open_stats,
                    url=self.database.url,
                    upsert=UPSERT,
                    seconds=int(EVERY.total_seconds()),
                    late=LATE,
                ),
                "at least once; a repeated row replaces itself",
                self._counts,
                spark_flow.STATEFUL,
            ),
            "flink-sql": System(
                self._flink,
                "at least once; a repeated row replaces itself",
                self._counts,
                flink_sql.SETTINGS | flink_flow.MINI_BATCH,
            ),
        }

    def _flink(self, java: Java) -> Open:
        connectors = (*peer_jars("flink-jdbc", java), *driver_jars(java))
        return partial(
            flink_flow.open_flow,
            program=flink_sql.prepare(java, connectors),
            topics=(self.topic,),
            statements=partial(flink_flow.stats_statements, url=self.database.url, every=EVERY),
            settings=flink_flow.MINI_BATCH,
        )

    def open(self, stack: ExitStack) -> None:
        """Starts PostgreSQL."""
        self.database = stack.enter_context(opened_database())
        self.database_pid = self.database.pid
        self._version = database_version(self.database)

    def fill(self, console: Console) -> None:
        """Makes the topic."""
        fill(self.broker, self.topic, PARTITIONS, self.events, console)

    def measure(self, driver: Driver, out: Path) -> Measurement:
        """As every part does, into a table of the run."""
        if driver.name != "headrace":  # which makes its own
            self._execute(TABLE, out)
        measurement = super().measure(driver, out)
        self._execute("DROP TABLE {table}", out)
        self._execute("CHECKPOINT", out)
        return measurement

    def others(self, driver: Driver, out: Path, run: Run) -> dict[str, float]:
        """Those of every part, and the database's."""
        return super().others(driver, out, run) | database_figures(run)

    def _execute(self, statement: str, out: Path) -> None:
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            connection.execute(statement.format(table=table_name(out.name)))

    def _counts(self, out: Path) -> Mapping[str, int]:
        with psycopg.connect(self.database.url) as connection:
            [row] = connection.execute(COUNTS.format(table=table_name(out.name))).fetchall()
        return dict(zip(("groups", "counted_events", "positions"), map(int, row), strict=True))

    @cached_property
    def expected(self) -> Mapping[str, int]:
        """Of a table that is right."""
        return expected_counts(self.events)

    @property
    def messages(self) -> int:
        """Of the topic."""
        return self.events

    def work(self) -> str:
        """What there is to do."""
        return f"{self.events:,} impressions"

    def rivals(self) -> Mapping[str, str]:
        """Flink, its connector, and PostgreSQL."""
        return {
            "flink": locked_version("flink", "flink-runtime"),
            "flink-connector-jdbc": locked_version("flink-jdbc", "flink-connector-jdbc-core"),
            "PostgreSQL": self._version,
        }


def expected_counts(count: int) -> dict[str, int]:
    """Rows of the table, events counted in it, and the sum of their positions."""
    decoder, every_ms = msgspec.json.Decoder(_Counted), EVERY // timedelta(milliseconds=1)
    groups, positions = set(), 0
    for event in map(decoder.decode, events(count)):
        groups.add((event.event_time // every_ms, event.campaign, event.category))
        positions += event.position
    return {"groups": len(groups), "counted_events": count, "positions": positions}
