"""Which record does a target not take? Kafka's Java client, which Spark sends with, does not say.

After a query has failed, each partition is sent separately, one record at a time. The record was
in flight, so it is among the first of its partition that the target does not have.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.links.dispatcher.routes.query import first_unsent, route_query
from headrace.links.dispatcher.routes.route import DispatcherRoute
from headrace.links.dispatcher.routes.sent import sent_since
from headrace.links.target import Rejection
from headrace.model import TopicPartition
from headrace.spark.claimed_query import CommittedPosition
from headrace.spark.topic_query import KafkaQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.5
_SETTLE_SECONDS = 1.0  # what a query that was stopped has in flight reaches the target
# A distant target takes few records one by one: the rest is left to the common query.
_APART_SECONDS = 60.0
# Of Kafka's Java client, and the setting of the topic that refuses the record.
_SETTINGS = {
    "RecordTooLargeException": "max.message.bytes",
    "RecordBatchTooLargeException": "max.message.bytes",
    "InvalidTimestampException": "message.timestamp.after.max.ms",
    "InvalidRecordException": "cleanup.policy",
}
_REFUSAL = re.compile(rf"\b({'|'.join(_SETTINGS)})\b.*")


def refusal_of(failure: Exception) -> tuple[str, str] | None:
    """Returns why a query's target does not take a record, and by which setting of its topic.

    ``None``: the query has failed otherwise.
    """
    refusal = _REFUSAL.search(str(failure))
    return None if refusal is None else (refusal[0], _SETTINGS[refusal[1]])


def find_refused(
    spark: SparkSession,
    route: DispatcherRoute,
    positions: Mapping[TopicPartition, CommittedPosition],
    folder: Path,
    wait: Callable[[float], bool],
) -> dict[TopicPartition, Rejection]:
    """Returns records that the target does not take, by partitions; others may follow.

    What the target takes meanwhile is sent. If it takes all records for a minute, none is returned.

    Args:
        spark: the session.
        route: what is sent, and where to.
        positions: of the query that has failed.
        folder: of the driver's machine, for the checkpoints of queries.
        wait: waits so many seconds, and returns whether to end at once.

    Raises:
        AuthorizationError: if an ACL is missing at a site.
        BrokerUnreachableError: if the brokers of a site do not answer.
    """
    wait(_SETTLE_SECONDS)
    refusals = _sent_apart(spark, route, positions, folder, wait)
    wait(_SETTLE_SECONDS)
    rejections: dict[TopicPartition, Rejection] = {}
    for source, (reason, setting) in refusals.items():
        offset = first_unsent(spark, route, sent_since(route, {source: positions[source]}))
        if offset is not None:
            rejections[source] = Rejection(offset, reason, setting)
    return rejections


def _sent_apart(
    spark: SparkSession,
    route: DispatcherRoute,
    positions: Mapping[TopicPartition, CommittedPosition],
    folder: Path,
    wait: Callable[[float], bool],
) -> dict[TopicPartition, tuple[str, str]]:
    """Sends partitions separately until a record is refused; returns why, by partitions."""
    sent = sent_since(route, positions)
    deadline = time.monotonic() + _APART_SECONDS
    queries: dict[TopicPartition, KafkaQuery] = {}
    try:
        for source, records in sent.items():
            checkpoint = folder / f"partition-{source.partition}"
            queries[source] = route_query(
                spark, route, {source: records}, checkpoint, once=True, one_by_one=True
            )
        while True:
            is_active = any(query.is_active for query in queries.values())
            refusals = {
                source: refusal
                for source, query in queries.items()
                if query.failure is not None and (refusal := refusal_of(query.failure))
            }
            if refusals or not is_active or time.monotonic() > deadline or wait(_POLL_SECONDS):
                return refusals
    finally:
        for query in queries.values():
            query.stop()
