"""What a source asks of a cluster: where topics begin and end, and the records of a range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.errors import TopicMissingError
from headrace.kafka.client import (
    LiveTopic,
    describe,
    discard_task_consumers,
    group_offsets,
    task_consumer,
    watermarks,
)
from headrace.kafka.range_reader import Chunk, read_ranges
from headrace.kafka.replayed import Window, windows
from headrace.model import OffsetRange


@dataclass(frozen=True, slots=True)
class LivePositions:
    """A topic as it is now: its id, and by partition the first offset and the one after the last.

    ``latest`` is the last stable offset: records of an open transaction are not counted.
    """

    topic_id: str
    earliest: Mapping[int, int]
    latest: Mapping[int, int]


class Cluster(Protocol):
    """The planner calls ``live`` and ``committed`` on the driver, tasks call ``read``.

    An implementation is picklable and opens its connections lazily, in the process that uses
    them. ``read`` may be repeated for the same ranges after a crash and then gives the same
    records, as long as retention has not removed them.
    """

    def live(self, topic: str) -> LivePositions:
        """Raises TopicMissingError; BrokerUnreachableError when nobody answers."""

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Committed offsets of a consumer group by partition, where it has any."""

    def replay_windows(self, topic: str) -> Mapping[int, Window]:
        """Offsets between which replayed records lie, by partition, where there may be any."""

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Chunk]:
        """Committed records of ranges, one range a partition, each in order of offset.

        The position of a range's last chunk is its end. Raises RecordsGoneError when the start of
        a range is no longer there; see :func:`headrace.kafka.range_reader.read_ranges`.
        """


@dataclass(frozen=True)
class KafkaCluster:
    """The real one. ``client``: librdkafka settings, secrets revealed, hence not in its repr."""

    client: Mapping[str, str] = field(repr=False)

    def live(self, topic: str) -> LivePositions:
        """See :class:`Cluster`."""
        found = self._described(topic)
        marks = watermarks(self.client, found.all_partitions)
        return LivePositions(
            found.topic_id,
            {one.partition: earliest for one, (earliest, _) in marks.items()},
            {one.partition: latest for one, (_, latest) in marks.items()},
        )

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """See :class:`Cluster`."""
        offsets = group_offsets(self.client, group, self._described(topic).all_partitions)
        return {one.partition: at for one, at in offsets.items()}

    def replay_windows(self, topic: str) -> Mapping[int, Window]:
        """See :class:`Cluster`."""
        return windows(self.client, topic, self._described(topic).all_partitions)

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Chunk]:
        """See :class:`Cluster`."""
        consumer = task_consumer(self.client)
        try:
            yield from read_ranges(consumer, ranges, self.client)
        except Exception:
            discard_task_consumers()
            raise
        finally:
            consumer.unassign()

    def _described(self, topic: str) -> LiveTopic:
        found = describe(self.client, [topic]).get(topic)
        if found is None:
            raise TopicMissingError(topic)
        return found
