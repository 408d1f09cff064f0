"""What a source needs of a cluster: the offsets of topics, and the records of ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.errors import TopicMissingError
from headrace.kafka.admin.topics import delete_retention_ms
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.clients import task_consumer
from headrace.kafka.client.offsets import (
    committed,
    earliest_offsets,
    high_watermarks,
    latest_offsets,
    leader_epoch,
    offsets_since,
)
from headrace.kafka.dead_letters.replayed import Window, windows
from headrace.kafka.read.log_cuts import Seen, find_cuts
from headrace.kafka.read.range_reader import Chunk, read_ranges
from headrace.kafka.read.resume import UNKNOWN_EPOCH, LogState
from headrace.model import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class LivePositions:
    """A topic as it is now: its id, and by partition the first offset and the one after the last.

    ``latest`` is the last stable offset: records of an open transaction are not counted.
    ``earliest`` is empty when it was not asked for. ``epochs`` are those of the leaders that gave
    the latest offsets; a partition is left out whose leader does not say.
    """

    topic_id: str
    earliest: Mapping[int, int]
    latest: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)

    def log(self, partition: int) -> LogState:
        """Returns the state of a partition's log; without its first offset, that is 0."""
        epoch = self.epochs.get(partition, UNKNOWN_EPOCH)
        first, end = self.earliest.get(partition, 0), self.latest.get(partition, 0)
        return LogState(self.topic_id, first, end, epoch)


class Cluster(Protocol):
    """The planner calls ``live`` and ``committed`` on the driver, tasks call ``read``.

    An implementation is picklable and opens its connections lazily, in the process that uses
    them. ``read`` may be repeated for the same ranges after a crash and then gives the same
    records, as long as retention has not removed them.
    """

    def live(self, topic: str, *, with_earliest: bool = True) -> LivePositions:
        """Raises TopicMissingError; BrokerUnreachableError if no broker answers."""

    def cuts(self, topic: str, seen: Mapping[int, Seen]) -> Mapping[int, int]:
        """Partitions whose log was cut before a position that was seen, and where it was cut.

        Raises BrokerUnreachableError if no leader answers.
        """

    def committed(self, group: str, topic: str) -> Mapping[int, Seen]:
        """Returns the committed offsets of a consumer group, by partition."""

    def delete_retention_ms(self, topic: str) -> int | None:
        """Returns how long compaction leaves tombstones; None: the topic is not compacted."""

    def offsets_since(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        """Returns the first record at or after a time, by partition, where there is one."""

    def replay_windows(self, topic: str) -> Mapping[int, Window]:
        """Offsets between which replayed records lie, by partition, where there may be any."""

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Chunk]:
        """Yields the committed records of ranges, one for each partition, in order of offset.

        The position of a range's last chunk is its end. Raises RecordsDeletedError when the start
        of a range is no longer there; see :func:`headrace.kafka.read.range_reader.read_ranges`.
        """


@dataclass(frozen=True)
class KafkaCluster:
    """A real cluster. ``client``: librdkafka settings; not in its repr, as secrets are revealed."""

    client: Mapping[str, str] = field(repr=False)

    def live(self, topic: str, *, with_earliest: bool = True) -> LivePositions:
        """See :class:`Cluster`."""
        topic_now = self._described(topic)
        partitions = topic_now.all_partitions
        earliest = earliest_offsets(self.client, partitions) if with_earliest else {}
        return _positions(topic_now.topic_id, earliest, latest_offsets(self.client, partitions))

    def live_unless_open(self, topic: str) -> LivePositions | None:
        """Returns a topic without its earliest offsets; None: a transaction is open in it.

        Raises:
            TopicMissingError: if the topic does not exist.
            BrokerUnreachableError: if no broker answers.
        """
        topic_now = self._described(topic)
        # In this order: a transaction that ends in between is not open.
        high = high_watermarks(self.client, topic_now.all_partitions)
        ends = latest_offsets(self.client, topic_now.all_partitions)
        if any(ends[partition][0] < offset for partition, offset in high.items()):
            return None
        return _positions(topic_now.topic_id, {}, ends)

    def cuts(self, topic: str, seen: Mapping[int, Seen]) -> Mapping[int, int]:
        """See :class:`Cluster`."""
        return find_cuts(self.client, topic, seen)

    def committed(self, group: str, topic: str) -> Mapping[int, Seen]:
        """See :class:`Cluster`."""
        offsets = committed(self.client, group, self._described(topic).all_partitions)
        return {offset.partition: Seen(offset.offset, leader_epoch(offset)) for offset in offsets}

    def delete_retention_ms(self, topic: str) -> int | None:
        """See :class:`Cluster`."""
        return delete_retention_ms(self.client, topic)

    def offsets_since(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        """See :class:`Cluster`."""
        partitions = self._described(topic).all_partitions
        offsets = offsets_since(self.client, partitions, timestamp_ms)
        return {partition.partition: offset for partition, offset in offsets.items()}

    def replay_windows(self, topic: str) -> Mapping[int, Window]:
        """See :class:`Cluster`."""
        return windows(self.client, topic, self._described(topic).all_partitions)

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Chunk]:
        """See :class:`Cluster`."""
        with task_consumer(self.client) as consumer:
            yield from read_ranges(consumer, ranges, self.client)

    def _described(self, topic: str) -> LiveTopic:
        description = describe(self.client, [topic]).get(topic)
        if description is None:
            raise TopicMissingError(topic)
        return description


def _positions(
    topic_id: str,
    earliest: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, tuple[int, int]],
) -> LivePositions:
    return LivePositions(
        topic_id,
        {partition.partition: offset for partition, offset in earliest.items()},
        {partition.partition: offset for partition, (offset, _) in ends.items()},
        {partition.partition: epoch for partition, (_, epoch) in ends.items() if epoch >= 0},
    )
