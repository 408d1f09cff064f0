"""The query of a route: Spark's own Kafka source and sink, in real-time mode or in batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.links.dispatcher.declaration import DispatchMode
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.dispatcher.routes.sent import SentRecords, is_new
from headrace.model import TopicPartition
from headrace.spark.header_columns import headers_or_empty
from headrace.spark.topic_query import KafkaQuery, OutgoingRows, ReadTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_EVERY = "100 milliseconds"


def route_query(
    spark: SparkSession,
    route: DispatcherRoute,
    sent: Mapping[TopicPartition, SentRecords],
    checkpoint: Path,
    *,
    once: bool,
    one_by_one: bool = False,
) -> KafkaQuery:
    """Returns a running query of a route.

    Args:
        spark: the session.
        route: what is sent, and where to.
        sent: where the partitions that are read start, and which records are at the target already.
        checkpoint: an empty folder on the driver's machine.
        once: end when what the topic holds now is sent.
        one_by_one: send each record in a batch of its own.
    """
    name = f"{route.dispatcher}.{route.target_site}"
    if one_by_one:
        name += "".join(f".{source.partition}" for source in sent)
    written = OutgoingRows(
        route.target, lambda records: route.outgoing(records.where(is_new(sent))), one_by_one
    )
    trigger = _trigger(route, once=once)
    return KafkaQuery(spark, name, _source(route, sent), written, trigger, checkpoint)


def first_unsent(
    spark: SparkSession, route: DispatcherRoute, sent: Mapping[TopicPartition, SentRecords]
) -> int | None:
    """Returns the offset of the first record that the target wants and has not; ``None``: of none.

    Args:
        spark: the session.
        route: what is sent, and where to.
        sent: where a partition starts, and which records are at the target already.
    """
    from pyspark.sql import functions as f

    source = spark.read.format("kafka").options(**_source(route, sent).options)
    records = source.load().where(is_new(sent))
    row = records.where(route.is_sent(headers_or_empty(f.col("headers")))).select("offset").first()
    return None if row is None else int(row["offset"])


def _source(route: DispatcherRoute, sent: Mapping[TopicPartition, SentRecords]) -> ReadTopic:
    starts = {source: records.first for source, records in sent.items()}
    return ReadTopic(route.source, route.topic, starts, route.group)


def _trigger(route: DispatcherRoute, *, once: bool) -> dict[str, Any]:
    if once:
        return {"availableNow": True}
    if route.mode is DispatchMode.REAL_TIME:
        return {"realTime": f"{route.commit_seconds * 1000:.0f} milliseconds"}
    return {"processingTime": _BATCH_EVERY}
