"""A cluster in memory. The contract suite for sources runs on it and on real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import RecordsDeletedError, TopicMissingError
from headrace.kafka.dead_letters.replayed import PartitionId, Window, addressees
from headrace.kafka.read.cluster import LivePositions
from headrace.kafka.read.log_cuts import Seen
from headrace.kafka.read.range_reader import Chunk
from headrace.model import OffsetRange, TopicPartition

CHUNK_RECORDS = 1_000


@dataclass(frozen=True)
class MemoryRecord:
    """A record with the methods of confluent-kafka's Message."""

    at: int
    payload: bytes | None
    name: bytes | None = None
    timestamp_ms: int = 0
    header: tuple[tuple[str, bytes | None], ...] = ()

    def value(self) -> bytes | None:
        """Returns the payload."""
        return self.payload

    def key(self) -> bytes | None:
        """Returns the key."""
        return self.name

    def offset(self) -> int:
        """Returns its place in the partition."""
        return self.at

    def timestamp(self) -> tuple[int, int]:
        """Returns (1, milliseconds): the producer's time."""
        return 1, self.timestamp_ms

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        """Returns the headers, or ``None``."""
        return list(self.header) or None


@dataclass
class _Topic:
    topic_id: str
    partitions: list[dict[int, MemoryRecord]]
    earliest: list[int]
    latest: list[int]
    epochs: list[list[int]]  # by partition, the first offset of each leader's epoch


@dataclass
class MemoryCluster:
    """Topics in this process; see :class:`headrace.kafka.read.cluster.Cluster` for the contract."""

    _topics: dict[str, _Topic] = field(default_factory=dict)
    _groups: dict[tuple[str, str], dict[int, Seen]] = field(default_factory=dict)
    _replays: dict[str, dict[int, Window]] = field(default_factory=dict)
    _delete_retentions: dict[str, int | None] = field(default_factory=dict)

    def create(self, topic: str, partitions: int = 1) -> None:
        """A new, empty topic with an id of its own; one of that name is deleted first."""
        empty = [0] * partitions
        self._topics[topic] = _Topic(
            uuid.uuid4().hex, [{} for _ in empty], list(empty), list(empty), [[0] for _ in empty]
        )

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Adds partitions, up to ``partitions``."""
        stored = self._topics[topic]
        for _ in range(partitions - len(stored.partitions)):
            stored.partitions.append({})
            stored.earliest.append(0)
            stored.latest.append(0)
            stored.epochs.append([0])

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp_ms: int = 0,
    ) -> int:
        """Append a record; returns its offset."""
        stored = self._topics[topic]
        at = stored.latest[partition]
        # By offset, for offsets have gaps: of markers, compaction and retention.
        stored.partitions[partition][at] = MemoryRecord(at, value, key, timestamp_ms, headers)
        stored.latest[partition] = at + 1
        return at

    def compact(self, topic: str, delete_retention_ms: int | None) -> None:
        """Declares a topic as compacted, or with None as not; removes nothing."""
        self._delete_retentions[topic] = delete_retention_ms

    def skip(self, topic: str, partition: int) -> None:
        """Use up one offset without a record, as a transaction marker does."""
        self._topics[topic].latest[partition] += 1

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """What retention does."""
        stored = self._topics[topic]
        stored.earliest[partition] = offset
        for at in [at for at in stored.partitions[partition] if at < offset]:
            del stored.partitions[partition][at]

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """What an unclean election does: the next leader has no records from ``offset`` on."""
        stored = self._topics[topic]
        for at in [at for at in stored.partitions[partition] if at >= offset]:
            del stored.partitions[partition][at]
        stored.latest[partition] = offset
        stored.epochs[partition] = [
            *(min(first, offset) for first in stored.epochs[partition]),
            offset,
        ]

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets for a consumer group."""
        epochs = self.live(topic).epochs
        self._groups[group, topic] = {p: Seen(at, epochs[p]) for p, at in offsets.items()}

    def live(self, topic: str, *, with_earliest: bool = True) -> LivePositions:
        """See the contract."""
        if topic not in self._topics:
            raise TopicMissingError(topic)
        stored = self._topics[topic]
        return LivePositions(
            stored.topic_id,
            dict(enumerate(stored.earliest)) if with_earliest else {},
            dict(enumerate(stored.latest)),
            {p: len(firsts) - 1 for p, firsts in enumerate(stored.epochs)},
        )

    def cuts(self, topic: str, seen: Mapping[int, Seen]) -> Mapping[int, int]:
        """See the contract."""
        stored = self._topics[topic]
        # An epoch ends where the next one starts, or at the end of the log.
        ends = {p: [*stored.epochs[p], stored.latest[p]][at.epoch + 1] for p, at in seen.items()}
        return {p: end for p, end in ends.items() if end < seen[p].offset}

    def committed(self, group: str, topic: str) -> Mapping[int, Seen]:
        """See the contract."""
        return self._groups.get((group, topic), {})

    def delete_retention_ms(self, topic: str) -> int | None:
        """See the contract."""
        return self._delete_retentions.get(topic)

    def offsets_since(self, topic: str, timestamp_ms: int) -> Mapping[int, int]:
        """See the contract."""
        later = {
            p: [at for at, record in records.items() if record.timestamp_ms >= timestamp_ms]
            for p, records in enumerate(self._topics[topic].partitions)
        }
        return {p: min(offsets) for p, offsets in later.items() if offsets}

    def replay(self, topic: str, partition: int, value: bytes, *readers: str) -> int:
        """Append a record that is replayed for ``readers``; returns its offset."""
        place = PartitionId(TopicPartition(topic, partition), self._topics[topic].topic_id)
        at = self.append(topic, partition, value, headers=(addressees(readers, place),))
        first = self._replays.setdefault(topic, {}).get(partition, Window(at, at)).first
        self._replays[topic][partition] = Window(first, at + 1)
        return at

    def replay_windows(self, topic: str) -> Mapping[int, Window]:
        """See the contract."""
        return self._replays.get(topic, {})

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Chunk]:
        """See the contract."""
        for range_ in ranges:
            stored = self._topics[range_.partition.topic]
            p = range_.partition.partition
            if range_.start < stored.earliest[p]:
                raise RecordsDeletedError(str(range_.partition), range_.start)
            records = [stored.partitions[p][at] for at in sorted(stored.partitions[p])]
            inside = [record for record in records if range_.start <= record.at < range_.end]
            for first in range(0, len(inside), CHUNK_RECORDS):
                chunk = inside[first : first + CHUNK_RECORDS]
                yield Chunk(range_.partition, chunk, chunk[-1].at + 1)
            # The range ends by position, also when its last offsets hold no record.
            yield Chunk(range_.partition, (), range_.end)
