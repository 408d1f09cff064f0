"""Spark's count as its own guide has it: a watermark, ``groupBy(window, key)``, its Kafka sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench import plain_spark
from bench.driver import OnCommit, WriteOnce
from bench.plain_spark_sinks import TO_KAFKA
from bench.setup import Setup
from bench.windowed_count.counts import follow_counts
from bench.windowed_count.traffic import ALLOWED_LATENESS, WINDOW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = f"advertiser string, {plain_spark.SCHEMA}"
SETTINGS = plain_spark.SETTINGS | TO_KAFKA


def open_counts(setup: Setup, *, results: int) -> WriteOnce:
    """Starts Spark; the function returned counts the whole topic into that of its run."""
    spark = plain_spark.session(setup)

    def count_once(out: Path, on_commit: OnCommit) -> None:
        counted = _counted(plain_spark.records(spark, setup))
        writer = counted.writeStream.outputMode("append").format("kafka").options(**TO_KAFKA)
        writer = writer.option("kafka.bootstrap.servers", setup.bootstrap).option("topic", out.name)
        writer = writer.option("checkpointLocation", str(out / "checkpoint"))
        query = writer.trigger(availableNow=True).start()

        def check() -> None:
            if (error := query.exception()) is not None:
                raise error

        follow_counts(setup, out.name, results, on_commit, check)
        query.awaitTermination()

    return count_once


def _counted(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    rows = plain_spark.timed(plain_spark.parsed(records, SCHEMA))
    rows = rows.withWatermark("event_time", f"{ALLOWED_LATENESS.seconds} seconds")
    window = F.window("event_time", f"{WINDOW.seconds} seconds").alias("window")
    counts = rows.groupBy(window, "advertiser").count()
    begin = F.unix_millis("window.start").alias("begin_ms")
    return counts.select(F.to_json(F.struct("advertiser", begin, "count")).alias("value"))
