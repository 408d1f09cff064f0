"""Positions in topics, and records that could not be processed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition of one topic."""

    topic: str
    partition: int

    @classmethod
    def of(cls, record: Any) -> TopicPartition:
        """Returns the partition that a record of Kafka's client was read from."""
        return cls(record.topic(), record.partition())

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"

    @property
    def path(self) -> str:
        """``topic/partition``, as commands take it and messages show it."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition from ``start`` (included) to ``end`` (excluded).

    Offsets are always "the next record to read". A range may have gaps (compaction,
    transaction markers), so it ends by position, never by count.
    """

    partition: TopicPartition
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.partition} {self.start} to {self.end}"

    @property
    def span(self) -> int:
        """Offsets covered: at least the number of records."""
        return self.end - self.start

    def within(self, wider: OffsetRange) -> bool:
        """Whether all of it is in ``wider``."""
        same = self.partition == wider.partition
        return same and wider.start <= self.start and self.end <= wider.end


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The place of a record that Kafka has acknowledged.

    Attributes:
        topic: name of its topic.
        partition: number of its partition.
        offset: its place there: unique, and larger than those of the records before it.
    """

    topic: str
    partition: int
    offset: int


CONFLICTING_KEY = "conflicting-key"
"""Reason of a dead letter whose key was there before with other values."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be processed, with its original bytes.

    ``reason`` is a stable code (``not-json``, ``wrong-type``, ``out-of-range``,
    ``event-time-out-of-bounds``, ``unsafe-partition-value`` ...), ``detail`` a sentence that
    names the field, the value's type and what was expected. ``attempts`` were made, the first of
    which failed at ``first_failure_ms`` since 1970; -1 for letters of pipelines. Of an event of an
    envelope ``event_index`` is its place there, from 0, and ``value`` is the event alone.
    """

    partition: TopicPartition
    offset: int
    reason: str
    detail: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1
    attempts: int = 1
    first_failure_ms: int = -1
    event_index: int = -1

    @property
    def position(self) -> tuple[TopicPartition, int]:
        """Partition and offset of the record."""
        return self.partition, self.offset

    @property
    def place(self) -> tuple[TopicPartition, int, int]:
        """Partition, offset and event index: no two records or events have the same."""
        return self.partition, self.offset, self.event_index
