"""Positions of reference tables: planned with a batch, announced to its tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.kafka.cluster import Cluster
from headrace.kafka.log_cuts import Seen
from headrace.model import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROPERTY = "headrace.references"
_PLANNED = "headrace.planned_ms"


@dataclass(frozen=True)
class ReferencePosition:
    """A place in a topic.

    Attributes:
        topic_id: of the topic.
        partitions: by partition, the offset after the last record to use.
        epochs: by partition, the epoch of the leader that reported the offset, where it is known.
    """

    topic_id: str
    partitions: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the position as it is kept in a checkpoint."""
        partitions = {str(p): end for p, end in sorted(self.partitions.items())}
        epochs = {str(p): epoch for p, epoch in sorted(self.epochs.items())}
        return {"topic_id": self.topic_id, "partitions": partitions, "epochs": epochs}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ReferencePosition:
        """Reads what :meth:`to_json` wrote."""
        partitions = {int(p): int(end) for p, end in stored["partitions"].items()}
        epochs = {int(p): int(epoch) for p, epoch in stored.get("epochs", {}).items()}
        return cls(stored["topic_id"], partitions, epochs)

    def leads_to(self, later: ReferencePosition, cluster: Cluster, topic: str) -> bool:
        """Whether who has read up to here comes to ``later`` by reading on.

        Not if the log was cut before this position since, after an unclean election. Only a new
        leader cuts a log, so brokers are asked where the leader has changed.

        Raises:
            BrokerUnreachableError: if no leader answers.
        """
        if any(end > later.partitions.get(p, 0) for p, end in self.partitions.items()):
            return False
        newly_led = {
            p: Seen(end, self.epochs[p])
            for p, end in self.partitions.items()
            if self.epochs.get(p) not in {None, later.epochs.get(p)}
        }
        return not newly_led or not cluster.cuts(topic, newly_led)

    def ranges_to(
        self, later: ReferencePosition, topic: str, earliest: Mapping[int, int]
    ) -> list[OffsetRange]:
        """Returns the ranges of offsets between this position and a later one, without empty ones.

        Args:
            later: the position up to which records are read.
            topic: name of the topic.
            earliest: by partition, its first offset; partitions without a position begin there.
        """
        ranges = (
            OffsetRange(TopicPartition(topic, p), self.partitions.get(p, earliest[p]), end)
            for p, end in later.partitions.items()
        )
        return [range_ for range_ in ranges if range_.start < range_.end]


def live_positions(cluster: Cluster, topics: Iterable[str]) -> dict[str, ReferencePosition]:
    """Returns where topics end now, by topic.

    Raises:
        TopicMissingError: if there is no such topic.
        BrokerUnreachableError: if the broker does not respond.
    """
    positions = {}
    for topic in topics:
        live = cluster.live(topic, with_earliest=False)
        positions[topic] = ReferencePosition(live.topic_id, live.latest, live.epochs)
    return positions


def announce(
    spark: SparkSession, positions: Mapping[str, ReferencePosition], planned_ms: int
) -> None:
    """Tells the tasks of the jobs that this thread starts from now on where to look values up.

    Called on the thread that runs the batch, before it starts any job.

    Args:
        spark: the session.
        positions: by topic.
        planned_ms: when the batch was planned, in milliseconds since 1970.
    """
    encoded = {topic: position.to_json() for topic, position in positions.items()}
    spark.sparkContext.setLocalProperty(_PROPERTY, json.dumps(encoded))
    spark.sparkContext.setLocalProperty(_PLANNED, str(planned_ms))


def announced(topic: str) -> ReferencePosition:
    """Returns where the batch of this task looks values of ``topic`` up; called in a task."""
    return ReferencePosition.from_json(json.loads(_local_property(_PROPERTY))[topic])


def announced_ms() -> int:
    """Returns when the batch of this task was planned, in milliseconds since 1970.

    A batch that is repeated has the time that it had before. Called in a task.
    """
    return int(_local_property(_PLANNED))


def _local_property(name: str) -> str:
    from pyspark import TaskContext

    task = TaskContext.get()
    value = None if task is None else task.getLocalProperty(name)
    if value is None:
        raise RuntimeError("looked up outside of a batch of a pipeline")
    return str(value)
