"""What a source asks of a cluster: where topics begin and end, and the records of a range."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headrace.errors import BrokerUnreachableError, RecordsGoneError, TopicMissingError
from headrace.kafka.client import LiveTopic, describe, group_offsets, task_consumer, watermarks
from headrace.model import OffsetRange

CHUNK_RECORDS = 10_000  # few enough that a chunk's messages stay in the processor's caches
POLL_SECONDS = 0.2
SILENCE_LIMIT_SECONDS = 300.0

# librdkafka's own events have names with an underscore, public all the same.
_NO_SUCH_OFFSET = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
_PARTITION_END = KafkaError._PARTITION_EOF  # noqa: SLF001


class Record(Protocol):
    """A Kafka record, as confluent-kafka's Message has it."""

    def value(self) -> bytes | None:
        """The payload; ``None`` is a tombstone."""

    def key(self) -> bytes | None:
        """What the record was partitioned by."""

    def offset(self) -> int:
        """Its place in the partition."""

    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds since 1970)."""

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        """Headers in order, repeated names included."""


@dataclass(frozen=True, slots=True)
class LivePositions:
    """A topic as it is now: its id, and by partition the first offset and the one after the last.

    ``latest`` is the last stable offset: records of an open transaction are not counted.
    """

    topic_id: str
    earliest: Mapping[int, int]
    latest: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some records of a range in order of offset, and the next offset to read behind them.

    The position may be beyond the last record: offsets have gaps. A chunk may have no records.
    """

    records: Sequence[Record]
    position: int


class Cluster(Protocol):
    """The planner calls ``live`` and ``committed`` on the driver, tasks call ``read``.

    An implementation is picklable and opens its connections lazily, in the process that uses
    them. ``read`` may be repeated for the same range after a crash and then gives the same
    records, as long as retention has not removed them.
    """

    def live(self, topic: str) -> LivePositions:
        """Raises TopicMissingError; BrokerUnreachableError when nobody answers."""

    def committed(self, group: str, topic: str) -> Mapping[int, int]:
        """Committed offsets of a consumer group by partition, where it has any."""

    def read(self, range_: OffsetRange) -> Iterator[Chunk]:
        """Committed records of a range in order of offset, in chunks; it may have gaps.

        The position of the last chunk is the end of the range.

        Raises RecordsGoneError when the start of the range is no longer there.
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

    def read(self, range_: OffsetRange) -> Iterator[Chunk]:
        """See :class:`Cluster`."""
        consumer = task_consumer(self.client)
        partition = range_.partition
        consumer.assign([TopicPartition(partition.topic, partition.partition, range_.start)])
        try:
            yield from _until_end(consumer, range_, self.client["bootstrap.servers"])
        finally:
            consumer.unassign()

    def _described(self, topic: str) -> LiveTopic:
        found = describe(self.client, [topic]).get(topic)
        if found is None:
            raise TopicMissingError(topic)
        return found


def _until_end(consumer: Consumer, range_: OffsetRange, servers: str) -> Iterator[Chunk]:
    heard = time.monotonic()
    ended = False
    while not ended:
        got = consumer.consume(CHUNK_RECORDS, timeout=POLL_SECONDS)
        if got:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE_LIMIT_SECONDS:
            reason = f"silent for {SILENCE_LIMIT_SECONDS:.0f} s while reading {range_.partition}"
            raise BrokerUnreachableError(servers, reason)
        records, ended = _within(got, range_)
        if records or ended:
            yield Chunk(records, range_.end if ended else records[-1].offset() + 1)


def _within(got: Sequence[Message], range_: OffsetRange) -> tuple[Sequence[Message], bool]:
    """The records before the range's end, and whether the end was reached.

    The end is a position: with gaps (compaction, transaction markers) the record just before it
    may not exist, so a later record or the end of the partition ends the range as well.
    """
    ended = False
    if any(message.error() is not None for message in got):
        ended = any(_is_end(message, range_) for message in got)
        got = [message for message in got if message.error() is None]
    if not got or got[-1].offset() < range_.end - 1:
        return got, ended
    if got[-1].offset() >= range_.end:
        got = [message for message in got if message.offset() < range_.end]
    return got, True


def _is_end(message: Message, range_: OffsetRange) -> bool:
    """Whether an event of librdkafka is the end of the partition; transient ones are not.

    librdkafka reconnects by itself, and the limit of silence bounds the wait.
    """
    error = message.error()
    if error is None:
        return False
    if error.code() in (_NO_SUCH_OFFSET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise RecordsGoneError(str(range_.partition), range_.start)
    return bool(error.code() == _PARTITION_END)
