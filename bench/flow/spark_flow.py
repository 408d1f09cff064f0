"""Spark in each part as its own guide has it: streams with watermarks, state in RocksDB."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.driver import OnCommit, WriteOnce
from bench.flow.events import CLICK_EVERY, Traffic
from bench.flow.part import nulls
from bench.flow.times import Times
from bench.plain_spark import SETTINGS, finish, parsed, records, session, timed
from bench.setup import Setup
from bench.sink_targets import table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = "rows"
CLICK = "event_id string, event_time bigint, impression_id string, position bigint"
STATEFUL = SETTINGS | {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def open_join(setup: Setup, *, traffic: Traffic, times: Times) -> WriteOnce:
    """Starts Spark; the function returned joins both topics into a fresh table."""
    spark = stateful_session(setup)

    def write_once(out: Path, on_commit: OnCommit) -> None:
        write_table(joined(spark, setup, traffic, times), out, on_commit)

    return write_once


def open_deduplicated(setup: Setup, *, within: timedelta) -> WriteOnce:
    """Starts Spark; the function returned writes the topic without repeats into a fresh table."""
    spark = stateful_session(setup)
    late = f"{int(within.total_seconds())} seconds"

    def write_once(out: Path, on_commit: OnCommit) -> None:
        rows = timed(parsed(records(spark, setup))).withWatermark("event_time", late)
        write_table(rows.dropDuplicatesWithinWatermark(["event_id"]), out, on_commit)

    return write_once


def open_stats(setup: Setup, *, url: str, upsert: str, seconds: int, late: str) -> WriteOnce:
    """Starts Spark; the function returned counts the topic in a table of PostgreSQL.

    ``upsert`` replaces the row of a window and group; its placeholder is the table.
    """
    from pyspark.sql import functions as F  # noqa: N812

    spark = stateful_session(setup)

    def write_once(out: Path, on_commit: OnCommit) -> None:
        rows = timed(parsed(records(spark, setup))).withWatermark("event_time", late)
        window = F.window("event_time", f"{seconds} seconds").alias("window")
        counted = rows.groupBy(window, "campaign", "category").agg(
            F.count("*").alias("impressions"), F.sum("position").alias("positions")
        )
        totals = counted.select("window.start", "campaign", "category", "impressions", "positions")
        statement = upsert.format(table=table_name(out.name))
        write = partial(_upsert, url=url, statement=statement)
        writer = totals.writeStream.outputMode("update").foreachBatch(write)
        writer = writer.option("checkpointLocation", str(out / "checkpoint"))
        finish(writer.trigger(availableNow=True).start(), on_commit)

    return write_once


def _upsert(totals: DataFrame, _: int, *, url: str, statement: str) -> None:
    import psycopg

    rows = [tuple(row) for row in totals.collect()]
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.executemany(statement, rows)


def stateful_session(setup: Setup) -> SparkSession:
    """A session with :data:`STATEFUL`."""
    spark = session(setup)
    for name in STATEFUL.keys() - SETTINGS.keys() | {"spark.sql.shuffle.partitions"}:
        spark.conf.set(name, STATEFUL[name])
    return spark


def write_table(rows: DataFrame, out: Path, on_commit: OnCommit) -> None:
    """Into Parquet files, until the topics' end."""
    writer = rows.writeStream.format("parquet").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(out / "checkpoint"))
    finish(writer.start(str(out / TABLE)), on_commit)


def joined(spark: SparkSession, setup: Setup, traffic: Traffic, times: Times) -> DataFrame:
    """Each click with its impression, or with null."""
    from pyspark.sql import functions as F  # noqa: N812

    # Of a batch both sides go on by about as much time.
    shown_records = setup.batch_records * CLICK_EVERY // (CLICK_EVERY + 1)
    shown = dataclasses.replace(
        setup, topic=traffic.impressions_topic.name, batch_records=shown_records
    )
    clicked = dataclasses.replace(
        setup, topic=traffic.clicks_topic.name, batch_records=shown_records // CLICK_EVERY
    )
    late = f"{int(times.wait.total_seconds())} seconds"
    impressions = timed(parsed(records(spark, shown))).withWatermark("event_time", late)
    clicks = timed(parsed(records(spark, clicked), CLICK)).withWatermark("event_time", late)
    is_of = F.expr(
        f"impression_id = i.event_id AND i.event_time BETWEEN "
        f"c.event_time - INTERVAL {int(times.within.total_seconds())} SECONDS AND "
        f"c.event_time + INTERVAL {int(times.wait.total_seconds())} SECONDS"
    )
    pairs = clicks.alias("c").join(impressions.alias("i"), is_of, how="leftOuter")
    nested = F.when(F.col("i.event_id").isNotNull(), F.struct("i.*")).alias("impression")
    return pairs.select("c.*", nested)


def joined_rows(out: Path) -> dict[str, int]:
    """The rows with an impression, and those without one."""
    matched, unmatched = nulls(table_files(out), "impression")
    return {"matched_rows": matched, "unmatched_rows": unmatched}


def table_files(out: Path) -> list[Path]:
    """The files that a stream wrote."""
    return list((out / TABLE).rglob("*.parquet"))


def state_folders(out: Path) -> list[Path]:
    """The checkpointed state."""
    return [out / "checkpoint/state"]
