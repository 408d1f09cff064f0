"""The query of a route: Spark's own Kafka source and sink, in real-time mode or in batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.links.dispatcher.declaration import DispatchMode
from headrace.links.dispatcher.route import DispatcherRoute
from headrace.links.dispatcher.sent import SentRecords, is_new
from headrace.model import TopicPartition
from headrace.spark.header_columns import headers_or_empty
from headrace.spark.topic_query import KafkaQuery, OutgoingRows, ReadTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_EVERY = "100 milliseconds"


def route_query(
    spark: SparkSession,
    route: DispatcherRoute,
    starts: Mapping[TopicPartition, int],
    sent: Mapping[TopicPartition, SentRecords],
    checkpoint: Path,
    *,
    once: bool,
) -> KafkaQuery:
    """Returns a running query of a route, from given offsets on.

    Args:
        spark: the session.
        route: what is sent, and where to.
        starts: the first offset of each partition that is read.
        sent: which records are at the target already.
        checkpoint: an empty folder on the driver's machine.
        once: end when what the topic holds now is sent.
    """
    name = f"{route.dispatcher}.{route.target_site}"
    source = ReadTopic(route.source, route.topic, starts, route.group)
    written = OutgoingRows(route.target, _outgoing(route, sent))
    return KafkaQuery(spark, name, source, written, _trigger(route, once=once), checkpoint)


def partition_query(
    spark: SparkSession,
    route: DispatcherRoute,
    start: tuple[TopicPartition, int],
    sent: Mapping[TopicPartition, SentRecords],
    checkpoint: Path,
) -> KafkaQuery:
    """Returns a running query of one partition: it sends what the topic holds now, one by one.

    Args:
        spark: the session.
        route: what is sent, and where to.
        start: the partition, and its first offset that is read.
        sent: which records are at the target already.
        checkpoint: an empty folder on the driver's machine.
    """
    source, offset = start
    name = f"{route.dispatcher}.{route.target_site}.{source.partition}"
    topic = ReadTopic(route.source, route.topic, {source: offset}, route.group)
    written = OutgoingRows(route.target, _outgoing(route, sent), one_by_one=True)
    return KafkaQuery(spark, name, topic, written, _trigger(route, once=True), checkpoint)


def first_unsent(
    spark: SparkSession,
    route: DispatcherRoute,
    start: tuple[TopicPartition, int],
    sent: Mapping[TopicPartition, SentRecords],
) -> int | None:
    """Returns the offset of the first record that the target wants and has not; ``None``: of none.

    Args:
        spark: the session.
        route: what is sent, and where to.
        start: the partition, and its first offset that is read.
        sent: which records are at the target already.
    """
    from pyspark.sql import functions as f

    topic = ReadTopic(route.source, route.topic, dict([start]), route.group)
    records = spark.read.format("kafka").options(**topic.options).load().where(is_new(sent))
    row = records.where(route.is_sent(headers_or_empty(f.col("headers")))).select("offset").first()
    return None if row is None else int(row["offset"])


def _outgoing(
    route: DispatcherRoute, sent: Mapping[TopicPartition, SentRecords]
) -> Callable[[DataFrame], DataFrame]:
    return lambda records: route.outgoing(records.where(is_new(sent)))


def _trigger(route: DispatcherRoute, *, once: bool) -> dict[str, Any]:
    if once:
        return {"availableNow": True}
    if route.mode is DispatchMode.REAL_TIME:
        return {"realTime": f"{route.commit_seconds * 1000:.0f} milliseconds"}
    return {"processingTime": _BATCH_EVERY}
