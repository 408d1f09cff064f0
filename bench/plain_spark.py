"""The rival: Spark as its own guide has it, tuned as well as we know how.

Kafka connector, ``from_json`` with the same fields, ``to_timestamp``, Parquet by
``partitionBy``. What each setting is for is in docs/benchmarks.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.driver import OnCommit, WriteOnce
from bench.setup import LOOK_SECONDS, Setup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

TABLE = "impressions"
SCHEMA = (
    "event_id string, event_time bigint, category string, campaign string, item_id bigint, "
    "position bigint, clicked boolean, propensity double, user_group string, user_segment string"
)
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def open_plain_spark(setup: Setup) -> WriteOnce:
    """Starts Spark; the function returned writes the whole topic into a fresh table."""
    spark = session(setup)

    def write_once(out: Path, on_commit: OnCommit) -> None:
        writer = partitioned(records(spark, setup)).writeStream.format("parquet")
        writer = writer.partitionBy("day", "hour", "category").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(out / "checkpoint"))
        query = writer.start(str(out / TABLE))
        finish(query, on_commit)

    return write_once


def finish(query: StreamingQuery, on_commit: OnCommit) -> None:
    """Tells of each batch; returns when the query has ended."""
    told = 0
    ended: bool | None = False
    while not ended:
        ended = query.awaitTermination(LOOK_SECONDS)
        if (last := query.lastProgress) and last["batchId"] >= told:
            told = last["batchId"] + 1
            on_commit(sum(one["numInputRows"] for one in query.recentProgress))


def session(setup: Setup) -> SparkSession:
    """A session with Spark's own connector and :data:`SETTINGS`."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("plain-spark").master(setup.master)
    builder = builder.config("spark.driver.memory", f"{setup.heap_mb}m")
    builder = builder.config("spark.jars", ",".join(map(str, setup.connector)))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def records(spark: SparkSession, setup: Setup) -> DataFrame:
    """The topic from its start, in batches as large as everybody's."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", setup.bootstrap)
        .option("subscribe", setup.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", setup.batch_records)
        .load()
    )


def partitioned(records: DataFrame) -> DataFrame:
    """Kafka's records as the event's columns, ``day`` and ``hour``."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = timed(parsed(records))
    return rows.withColumn("day", F.to_date("event_time")).withColumn("hour", F.hour("event_time"))


def parsed(records: DataFrame, schema: str = SCHEMA) -> DataFrame:
    """Kafka's records as the event's columns."""
    from pyspark.sql import functions as F  # noqa: N812

    event = F.from_json(F.col("value").cast("string"), schema)
    return records.select(event.alias("event")).select("event.*")


def timed(rows: DataFrame) -> DataFrame:
    """The rows with their event time as a timestamp."""
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("event_time", F.timestamp_millis("event_time"))


def table_files(out: Path) -> list[Path]:
    """The Parquet files that the stream wrote."""
    return list((out / TABLE).rglob("*.parquet"))
