"""Sums of the records of Kafka topics, by partition, window and fate: Spark counts them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.java_client import java_config
from headrace.ledger.balance import NotCountedError
from headrace.ledger.sums import HASH_MODULUS, Fate, Sums
from headrace.model import OffsetRange, TopicPartition
from headrace.spark.failures import headline
from headrace.spark.header_columns import headers_or_empty

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_HEAD_OFFSETS = 10_000
_REMOVED = "Some data may have been lost"  # of Spark's Kafka source, wherever it ran


class LinkKey(NamedTuple):
    """The key of sums: a partition's number, the start of a window in seconds, a fate.

    A window of ``None`` holds the records whose time is not known.
    """

    partition: int
    window: int | None
    fate: Fate


def read_records(
    spark: SparkSession, config: ClientConfig, group: str, ranges: Iterable[OffsetRange]
) -> DataFrame:
    """Returns the committed records of ranges, each of another partition; one at least.

    Returns:
        Columns of Spark's Kafka source, with ``headers``, an empty array where there are none.
    """
    from pyspark.sql import functions as f

    partitions: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for range_ in ranges:
        topic, number = range_.partition.topic, range_.partition.partition
        partitions.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[str(number)] = range_.start
        ends.setdefault(topic, {})[str(number)] = range_.end
    options = {f"kafka.{name}": value for name, value in java_config(config).items()} | {
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps(partitions),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "groupIdPrefix": group,
        "minPartitions": str(2 * spark.sparkContext.defaultParallelism),
    }
    records = spark.read.format("kafka").options(**options).load()
    return records.withColumn("headers", headers_or_empty(f.col("headers")))


def sums_by_fate(
    records: DataFrame, fate: Column, time_ms: Column, window_seconds: int
) -> dict[LinkKey, Sums]:
    """Counts records: by partition, window and fate, the number, bytes of values, and hashes.

    Args:
        records: of :func:`read_records`.
        fate: of each; null: it is not counted.
        time_ms: of each, in milliseconds since 1970.
        window_seconds: length of the windows.

    Raises:
        NotCountedError: if records were removed meanwhile, or can't be read.
    """
    from pyspark.sql import functions as f

    seconds = f.floor(time_ms / 1000 / window_seconds) * window_seconds
    record_hash = f.xxhash64(
        f.isnull("key"), "key", f.isnull("value"), "value", time_ms.cast("long")
    )
    rows = _collected(
        records.select(
            "partition",
            seconds.alias("window"),
            fate.alias("fate"),
            f.coalesce(f.octet_length("value"), f.lit(0)).alias("bytes"),
            # Sums of 64-bit numbers would overflow.
            record_hash.cast("decimal(20,0)").alias("hash"),
        )
        .where("fate IS NOT NULL")
        .groupBy("partition", "window", "fate")
        .agg(f.count("*").alias("number"), f.sum("bytes").alias("bytes"), f.sum("hash"))
    )
    return {
        LinkKey(partition, window, Fate(fate_)): Sums(number, bytes_, int(hash_) % HASH_MODULUS)
        for partition, window, fate_, number, bytes_, hash_ in rows
    }


def by_partition(values: Mapping[int, int], default: int) -> Column:
    """Returns the number of each record's partition, an integer; ``default``: it has none."""
    from pyspark.sql import functions as f

    pairs = [f.lit(number) for pair in values.items() for number in pair]
    if not pairs:
        return f.lit(default)
    return f.coalesce(f.try_element_at(f.create_map(*pairs), f.col("partition")), f.lit(default))


def heads(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Returns the first 10,000 offsets of ranges that are not empty."""
    return [
        OffsetRange(range_.partition, range_.start, min(range_.start + _HEAD_OFFSETS, range_.end))
        for range_ in ranges
        if range_.start < range_.end
    ]


def first_values(records: DataFrame, value: Column) -> dict[TopicPartition, int]:
    """Returns the value of the first record of each partition that has a value.

    Raises:
        NotCountedError: if records were removed meanwhile, or can't be read.
    """
    from pyspark.sql import functions as f

    return _values(records, value, f.min_by("value", "offset"))


def greatest_values(records: DataFrame, value: Column) -> dict[TopicPartition, int]:
    """Returns the greatest value of each partition's records. Raises as :func:`first_values`."""
    from pyspark.sql import functions as f

    return _values(records, value, f.max("value"))


def _values(records: DataFrame, value: Column, chosen: Column) -> dict[TopicPartition, int]:
    rows = _collected(
        records.select("topic", "partition", "offset", value.cast("long").alias("value"))
        .where("value IS NOT NULL")
        .groupBy("topic", "partition")
        .agg(chosen)
    )
    return {TopicPartition(topic, partition): of_chosen for topic, partition, of_chosen in rows}


def _collected(frame: DataFrame) -> list[Row]:
    try:
        rows: list[Row] = frame.collect()
    except Exception as error:  # py4j's, or one of Spark's
        is_removed = _REMOVED in str(error)
        reason = "records were removed while they were counted" if is_removed else headline(error)
        raise NotCountedError(f"{reason}; run the command again") from error
    return rows
