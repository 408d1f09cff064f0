"""Reads ranges of partitions; the one place that decides what ends a range.

A range ends by position: with a record at or beyond its last offset, or when the brokers say that
the partition ends at or beyond the range's end. An end of partition before that is no end: after a
failover the new leader may, for a moment, know less than the old one had handed out. Offsets have
gaps (compaction, transaction markers, aborted records), so records are never counted.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import confluent_kafka
from confluent_kafka import KafkaError, Message

from headrace.errors import (
    BrokerUnreachableError,
    HeadraceError,
    RecordsDeletedError,
    RecordsUnreadableError,
    TopicMissingError,
)
from headrace.kafka.client.broker_errors import Meaning, forbidden, meaning
from headrace.kafka.client.clients import ClientConfig, consumer
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.client.partitions import client_partition, client_partitions
from headrace.model import OffsetRange, TopicPartition

CHUNK_RECORDS = 10_000  # few enough that a chunk's messages stay in the processor's caches
POLL_SECONDS = 0.2
# An outage of minutes is waited for: a failed task would repeat its range.
SILENCE_LIMIT_SECONDS = 300.0

_SHORT_SILENCE_SECONDS = 30.0
# Where a transaction's marker is the last record, brokers report the end only after this wait.
_READING_WHAT_IS_THERE = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": "10"}
_FEW_RECORDS = 1_000
_LOOK_FACTOR = 10
_SHORT_POLL_SECONDS = 0.02  # gaps can hide the end of a short range: no record comes then


class Record(Protocol):
    """A Kafka record, as confluent-kafka's Message has it."""

    def value(self) -> bytes | None:
        """The payload; ``None`` is a tombstone."""

    def key(self) -> bytes | None:
        """Returns the key."""

    def offset(self) -> int:
        """Returns its place in the partition."""

    def timestamp(self) -> tuple[int, int]:
        """Returns (kind, milliseconds since 1970)."""

    def headers(self) -> Sequence[tuple[str, bytes | None]] | None:
        """Headers in order, repeated names included."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some records of one range in order of offset, and the next offset to read after them.

    The position may be beyond the last record: offsets have gaps. A chunk may have no records.
    """

    partition: TopicPartition
    records: Sequence[Record]
    position: int


def read_ranges(
    reader: confluent_kafka.Consumer,
    ranges: Iterable[OffsetRange],
    config: Mapping[str, str],
    *,
    silence_limit_seconds: float | None = None,
) -> Iterator[Chunk]:
    """The records of ranges, one range a partition; each partition's in order of offset.

    The position of the last chunk of a range is its end. ``reader`` is assigned the ranges; it must
    report ends of partitions (``enable.partition.eof``). Where reading fails it must not be
    used again: librdkafka reports some errors only once.

    Raises:
        BrokerUnreachableError: if no record came within the limit (300 s by default).
        AuthorizationError: if an ACL is missing.
        TopicMissingError: if there is no such topic or partition.
        RecordsDeletedError: if the next record of a range is no longer there.
        RecordsUnreadableError: if records are damaged, the log was cut, or the brokers refuse.
    """
    reading = _Reading(ranges, config, silence_limit_seconds or SILENCE_LIMIT_SECONDS)
    reader.assign(reading.starts())
    while remaining := reading.offsets_left():
        wait = POLL_SECONDS if remaining > _FEW_RECORDS else _SHORT_POLL_SECONDS
        yield from reading.take(reader.consume(min(remaining, CHUNK_RECORDS), wait))
        if done := reading.just_ended():
            reader.incremental_unassign(done)


def read_records(
    config: ClientConfig,
    group: str,
    ranges: Iterable[OffsetRange],
    *,
    silence_limit_seconds: float = _SHORT_SILENCE_SECONDS,
    with_uncommitted: bool = False,
) -> Iterator[Record]:
    """Yields the records of ranges, read by a consumer of their own that is closed at the end.

    Records that retention deletes meanwhile are left out.

    Args:
        config: librdkafka's settings of the cluster.
        group: name by which brokers know the consumer; it joins no group.
        ranges: one range a partition.
        silence_limit_seconds: how long a record is waited for.
        with_uncommitted: read also what is in, and after, transactions that have not ended.

    Raises:
        BrokerUnreachableError, AuthorizationError, TopicMissingError, RecordsUnreadableError: as
            :func:`read_ranges` does.
    """
    # Without ranges, no client is made.
    not_empty = [range_ for range_ in ranges if range_.span > 0]
    if not not_empty:
        return
    isolation = {"isolation.level": "read_uncommitted"} if with_uncommitted else {}
    reader = consumer(config, group, _READING_WHAT_IS_THERE | isolation)
    try:
        for chunk in read_ranges(
            reader, not_empty, config, silence_limit_seconds=silence_limit_seconds
        ):
            yield from chunk.records
    finally:
        reader.close()


def read_backwards(
    config: ClientConfig,
    group: str,
    partition: TopicPartition,
    max_offsets: int,
    first_part_offsets: int = 1_000,
    max_part_offsets: int = 100_000,
) -> Iterator[Record]:
    """Yields the records of a partition, the newest first, a part at a time.

    Readers stop when they have what they look for.

    Args:
        config: librdkafka's settings of the cluster.
        group: name by which brokers know the consumer; it joins no group.
        partition: whose end is read.
        max_offsets: how far back.
        first_part_offsets: the offsets of the first part; others have ten times as many each.
        max_part_offsets: the offsets of a part at most: its records are held in memory.

    Raises:
        BrokerUnreachableError, AuthorizationError, TopicMissingError, RecordsUnreadableError: as
            :func:`read_ranges` does.
    """
    first, end = watermarks(config, [partition])[partition]
    first = max(first, end - max_offsets)
    look = first_part_offsets
    reader = consumer(config, group, _READING_WHAT_IS_THERE)
    try:
        while end > first:
            range_ = OffsetRange(partition, max(first, end - look), end)
            chunks = read_ranges(
                reader, [range_], config, silence_limit_seconds=_SHORT_SILENCE_SECONDS
            )
            # Kafka reads forwards only, so a part is held in memory and reversed.
            for chunk in reversed(list(chunks)):
                yield from reversed(chunk.records)
            end, look = range_.start, min(look * _LOOK_FACTOR, max_part_offsets)
    finally:
        reader.close()


class _Reading:
    """How far the reading of some ranges has come."""

    def __init__(
        self, ranges: Iterable[OffsetRange], config: Mapping[str, str], silence_limit: float
    ) -> None:
        self._config = config
        self._silence_limit = silence_limit
        self._open = {range_.partition: range_ for range_ in ranges if range_.span > 0}
        self._positions = {p: range_.start for p, range_ in self._open.items()}
        self._ended: list[TopicPartition] = []
        self._heard = time.monotonic()
        self._last_error = ""

    def starts(self) -> list[confluent_kafka.TopicPartition]:
        """Returns the partitions to assign, with their offsets."""
        return [client_partition(p, offset) for p, offset in self._positions.items()]

    def offsets_left(self) -> int:
        """Returns at most how many records are to come; 0 once every range has ended."""
        return sum(range_.end - self._positions[p] for p, range_ in self._open.items())

    def just_ended(self) -> list[confluent_kafka.TopicPartition]:
        """Drops what comes of partitions whose range has ended while others are still read."""
        ended, self._ended = self._ended, []
        return client_partitions(ended) if self._open else []

    def take(self, got: Sequence[Message]) -> Iterator[Chunk]:
        """The chunks that the messages of a poll hold."""
        if any(message.error() is not None for message in got):
            events = [message for message in got if message.error() is not None]
            got = [message for message in got if message.error() is None]
        else:
            events = []
        if got:
            yield from self._chunks(got)
            self._heard = time.monotonic()  # a caller that held a chunk was no silence
        for event in events:
            yield from self._heed(event.error(), event)
        if self._open and time.monotonic() - self._heard > self._silence_limit:
            read = ", ".join(f"{p} at {self._positions[p]}" for p in sorted(self._open)[:3])
            silence = f"no record for {self._silence_limit:.0f} s while reading {read}"
            reason = f"{silence}; {self._last_error}" if self._last_error else silence
            raise BrokerUnreachableError(self._config.get("bootstrap.servers", ""), reason)

    def _chunks(self, got: Sequence[Message]) -> Iterator[Chunk]:
        # One partition, as most tasks have: nothing to group.
        if len(self._positions) == 1:
            (partition,) = self._positions
            yield from self._within(partition, got)
            return
        for (topic, number), messages in itertools.groupby(
            got, lambda message: (message.topic(), message.partition())
        ):
            yield from self._within(TopicPartition(topic, number), list(messages))

    def _within(self, partition: TopicPartition, got: Sequence[Message]) -> Iterator[Chunk]:
        """The records before the range's end; the record just before it may not exist."""
        range_ = self._open.get(partition)
        if range_ is None:
            return
        reached = min(got[-1].offset() + 1, range_.end)
        if got[-1].offset() >= range_.end:
            got = [message for message in got if message.offset() < range_.end]
        yield self._moved(range_, got, reached)

    def _heed(self, error: KafkaError, event: Message) -> Iterator[Chunk]:
        """Handles an error between records. librdkafka reconnects by itself; the wait has a limit.

        Raises:
            HeadraceError: if waiting would not help.
        """
        partition = TopicPartition(event.topic() or "", event.partition())
        range_ = self._open.get(partition)
        means = meaning(error)
        if range_ is None or means in {Meaning.UNREACHABLE, Meaning.TRANSIENT}:
            self._last_error = error.str()
        elif means is not Meaning.END:
            raise self._failure(partition, error, event.offset())
        elif event.offset() >= range_.end:
            yield self._moved(range_, (), range_.end)
            self._heard = time.monotonic()
        else:
            self._last_error = f"{partition} ends at {event.offset()}, {range_.end} was planned"

    def _moved(self, range_: OffsetRange, records: Sequence[Message], position: int) -> Chunk:
        self._positions[range_.partition] = position
        if position >= range_.end:
            del self._open[range_.partition]
            self._ended.append(range_.partition)
        return Chunk(range_.partition, records, position)

    def _failure(self, partition: TopicPartition, error: KafkaError, offset: int) -> HeadraceError:
        match meaning(error):
            case Meaning.FORBIDDEN:
                return forbidden(self._config, "READ", f"topic {partition.topic}")
            case Meaning.MISSING:
                return TopicMissingError(partition.topic)
            case Meaning.NO_RECORD:
                return RecordsDeletedError(str(partition), self._positions[partition])
        return RecordsUnreadableError(str(partition), offset, error.str())
