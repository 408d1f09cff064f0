"""The query of a route: Spark's own Kafka source and sink, in real-time mode or in batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.dispatcher.declaration import DispatchMode
from headrace.dispatcher.route import Route
from headrace.dispatcher.sent import SentRecords, is_new
from headrace.kafka.client import MAX_MESSAGE_BYTES
from headrace.kafka.java_client import java_config
from headrace.model import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_BATCH_EVERY = "100 milliseconds"
_FOR_EVER = str(2**31 - 1)
_READING = {"isolation.level": "read_committed"}
# A target that is away is waited for: a record that was given up would come behind later ones.
_WRITING = {
    "acks": "all",
    "enable.idempotence": "true",
    "compression.type": "lz4",
    "linger.ms": "0",
    "request.timeout.ms": "10000",
    "delivery.timeout.ms": _FOR_EVER,
    "max.block.ms": _FOR_EVER,
    "max.request.size": str(MAX_MESSAGE_BYTES),
    "buffer.memory": str(2 * MAX_MESSAGE_BYTES),  # no smaller than a record
}


@dataclass(frozen=True)
class Dispatched:
    """What batches that have ended did.

    Attributes:
        batch: the number of the last one.
        read: records that were read.
        sent: records that are at the target.
        positions: the next offsets of the source's partitions.
    """

    batch: int
    read: int
    sent: int
    positions: Mapping[TopicPartition, int]


class RouteQuery:
    """A running query of a route, from given offsets on.

    Args:
        spark: the session.
        route: what is sent, and where to.
        starts: the first offset of each partition that is read.
        sent: which records are at the target already.
        checkpoint: an empty folder on the driver's machine. It is of no use to another query: each
            begins at the offsets that it is given.
        once: end when what the topic holds now is sent.
    """

    def __init__(
        self,
        spark: SparkSession,
        route: Route,
        starts: Mapping[TopicPartition, int],
        sent: Mapping[TopicPartition, SentRecords],
        checkpoint: Path,
        *,
        once: bool,
    ) -> None:
        reader = spark.readStream.format("kafka")
        records = reader.options(**_source_options(route, starts)).load()
        writer = (
            route.outgoing(records.where(is_new(sent)))
            .writeStream.format("kafka")
            .outputMode("update")
        )
        writer = writer.queryName(f"{route.dispatcher}.{route.target_site}")
        writer = writer.options(**_kafka(java_config(route.target) | _WRITING))
        writer = writer.option("checkpointLocation", checkpoint.absolute().as_uri())
        if once:
            writer = writer.trigger(availableNow=True)
        elif route.mode is DispatchMode.REAL_TIME:
            writer = writer.trigger(realTime=f"{route.commit_seconds * 1000:.0f} milliseconds")
        else:
            writer = writer.trigger(processingTime=_BATCH_EVERY)
        self._query: StreamingQuery = writer.start()
        self._acknowledged = -1

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""
        return bool(self._query.isActive)

    @property
    def failure(self) -> Exception | None:
        """Why it has failed; ``None``: it has not."""
        failure: Exception | None = self._query.exception()
        return failure

    def progress(self) -> Dispatched | None:
        """Returns what the batches did that have ended and are not acknowledged; None: none has."""
        batches = [
            batch
            for batch in self._query.recentProgress
            # A trigger without records is reported with the number of the next batch.
            if batch["batchId"] > self._acknowledged and "addBatch" in batch["durationMs"]
        ]
        if not batches:
            return None
        return Dispatched(
            batches[-1]["batchId"],
            sum(batch["numInputRows"] for batch in batches),
            sum(max(batch["sink"]["numOutputRows"], 0) for batch in batches),
            _positions(batches[-1]["sources"][0]["endOffset"]),
        )

    def acknowledge(self, done: Dispatched) -> None:
        """Says that these batches need not be told again."""
        self._acknowledged = done.batch

    def stop(self) -> None:
        """Ends it at once: what was sent since the last batch ended is at the target, or was."""
        self._query.stop()


def _source_options(route: Route, starts: Mapping[TopicPartition, int]) -> dict[str, str]:
    partitions = sorted(source.partition for source in starts)
    offsets = {str(source.partition): offset for source, offset in starts.items()}
    return _kafka(java_config(route.source) | _READING) | {
        "assign": json.dumps({route.topic: partitions}),
        "startingOffsets": json.dumps({route.topic: offsets}),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "groupIdPrefix": route.group,
    }


def _kafka(options: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in options.items()}


def _positions(offsets: Any) -> dict[TopicPartition, int]:
    topics: Iterable[tuple[str, Mapping[str, int]]] = (
        json.loads(offsets) if isinstance(offsets, str) else offsets
    ).items()
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics
        for partition, offset in partitions.items()
    }
