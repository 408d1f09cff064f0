"""The query of a route: Spark's own Kafka source and sink, in real-time mode or in batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.dispatcher.declaration import DispatchMode
from headrace.dispatcher.route import Route
from headrace.dispatcher.sent import SentRecords, is_new
from headrace.model import TopicPartition
from headrace.transfer.spark_query import KafkaQuery, OutgoingRows, ReadTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_EVERY = "100 milliseconds"


def route_query(
    spark: SparkSession,
    route: Route,
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

    def outgoing(records: DataFrame) -> DataFrame:
        return route.outgoing(records.where(is_new(sent)))

    name = f"{route.dispatcher}.{route.target_site}"
    source = ReadTopic(route.source, route.topic, starts, route.group)
    written = OutgoingRows(route.target, outgoing)
    return KafkaQuery(spark, name, source, written, _trigger(route, once=once), checkpoint)


def _trigger(route: Route, *, once: bool) -> dict[str, Any]:
    if once:
        return {"availableNow": True}
    if route.mode is DispatchMode.REAL_TIME:
        return {"realTime": f"{route.commit_seconds * 1000:.0f} milliseconds"}
    return {"processingTime": _BATCH_EVERY}
