"""A running query of Spark that reads topics with Spark's own source, and writes with its own sink.

Its positions are those of who starts it: a query begins at the offsets that it is given, and its
checkpoint is of no use to another one. Real-time mode runs no Python, so that what it does with
records is written in functions that Spark knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.kafka.admin.record_limits import MAX_MESSAGE_BYTES
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.java_client import java_config, java_reader, java_writer
from headrace.model import TopicPartition
from headrace.spark.checkpoints import start_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

_FOR_EVER = str(2**31 - 1)
_READING = {"isolation.level": "read_committed"}
_ONE_BY_ONE = {"batch.size": "0"}
# An unreachable target is waited for: a record sent again later would come after later ones.
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
class ReadTopic:
    """What a query reads.

    Attributes:
        config: librdkafka's settings of its cluster, secrets revealed.
        topic: its name.
        starts: the first offset of each partition that is read.
        group: Spark's readers have groups that begin with it.
    """

    config: ClientConfig = field(repr=False)
    topic: str
    starts: Mapping[TopicPartition, int]
    group: str

    @property
    def options(self) -> dict[str, str]:
        """Returns the options of Spark's source."""
        partitions = sorted(source.partition for source in self.starts)
        offsets = {str(source.partition): offset for source, offset in self.starts.items()}
        return _kafka(java_config(self.config) | java_reader(self.config) | _READING) | {
            "assign": json.dumps({self.topic: partitions}),
            "startingOffsets": json.dumps({self.topic: offsets}),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "groupIdPrefix": self.group,
        }


@dataclass(frozen=True)
class OutgoingRows:
    """What a query writes.

    Attributes:
        config: librdkafka's settings of the cluster, secrets revealed.
        of: makes rows for Spark's Kafka sink of rows of its Kafka source.
        one_by_one: send each record in a batch of its own: brokers refuse a batch as a whole.
    """

    config: ClientConfig = field(repr=False)
    of: Callable[[DataFrame], DataFrame]
    one_by_one: bool = False

    @property
    def options(self) -> dict[str, str]:
        """Returns the options of Spark's sink."""
        batches = _ONE_BY_ONE if self.one_by_one else {}
        return _kafka(java_config(self.config) | _WRITING | java_writer(self.config) | batches)


@dataclass(frozen=True)
class DoneBatches:
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


class KafkaQuery:
    """A running query from a topic to topics.

    Args:
        spark: the session.
        name: of the query.
        source: what it reads.
        written: what it writes.
        trigger: as of ``DataStreamWriter.trigger``.
        checkpoint: an empty folder on the driver's machine.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        source: ReadTopic,
        written: OutgoingRows,
        trigger: Mapping[str, Any],
        checkpoint: Path,
    ) -> None:
        records = spark.readStream.format("kafka").options(**source.options).load()
        writer = written.of(records).writeStream.format("kafka").outputMode("update")
        writer = writer.queryName(name).options(**written.options)
        writer = writer.trigger(**trigger)
        self._query: StreamingQuery = start_query(spark, writer, str(checkpoint.absolute()))
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

    def progress(self) -> DoneBatches | None:
        """Returns what the batches did that have ended and are not acknowledged; None: none has."""
        batches = [
            batch
            for batch in self._query.recentProgress
            # A trigger without records is reported with the number of the next batch.
            if batch["batchId"] > self._acknowledged and "addBatch" in batch["durationMs"]
        ]
        if not batches:
            return None
        offsets = batches[-1]["sources"][0]["endOffset"]
        topics: Iterable[tuple[str, Mapping[str, int]]] = (
            json.loads(offsets) if isinstance(offsets, str) else offsets
        ).items()
        return DoneBatches(
            batches[-1]["batchId"],
            sum(batch["numInputRows"] for batch in batches),
            sum(max(batch["sink"]["numOutputRows"], 0) for batch in batches),
            {
                TopicPartition(topic, int(partition)): offset
                for topic, partitions in topics
                for partition, offset in partitions.items()
            },
        )

    def acknowledge(self, done: DoneBatches) -> None:
        """Leaves these batches out of :meth:`progress` from now on."""
        self._acknowledged = done.batch

    def stop(self) -> None:
        """Ends it at once: what was sent since the last batch ended is at the target, or was."""
        self._query.stop()


def _kafka(options: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in options.items()}
