"""Where the partitions of an instance start, and which wait for their target to take a record."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from headrace.errors import LinkRecordError, RefusedError
from headrace.links.timing import LinkTiming
from headrace.model import TopicPartition

Start = TypeVar("Start")


@dataclass(frozen=True, slots=True)
class Starts(Generic[Start]):
    """Positions of the partitions that the group shares, and reasons why some can't continue.

    Attributes:
        positions: of those that can continue.
        refused: those that can't, and why.
        awaited: those that the source does not have yet.
    """

    positions: Mapping[TopicPartition, Start]
    refused: Mapping[TopicPartition, RefusedError]
    awaited: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class _RefusedRecord:
    """A record that the target does not take.

    Attributes:
        error: names the record.
        retry_at: the time of the next attempt, by the monotonic clock.
        delay: from the last attempt to the next one.
    """

    error: LinkRecordError
    retry_at: float
    delay: float


class RefusedRecords:
    """Records that the target does not take, each retried with exponential backoff.

    Args:
        timing: the first and the longest delay.
    """

    def __init__(self, timing: LinkTiming) -> None:
        self._timing = timing
        self._records: dict[TopicPartition, _RefusedRecord] = {}

    def add(self, partition: TopicPartition, error: LinkRecordError) -> None:
        """Excludes a partition until the next attempt to write its record."""
        before, timing = self._records.get(partition), self._timing
        delay = timing.check_seconds
        if before is not None:
            delay = min(2 * before.delay, max(timing.max_retry_seconds, delay))
        self._records[partition] = _RefusedRecord(error, time.monotonic() + delay, delay)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets the records of partitions: they are attempted without a delay."""
        for partition in partitions:
            self._records.pop(partition, None)

    def left_out_of(self, starts: Starts[Start]) -> Starts[Start]:
        """Returns the starts; partitions whose next attempt is later are refused."""
        now = time.monotonic()
        refused = {
            partition: record.error
            for partition, record in self._records.items()
            if partition in starts.positions and now < record.retry_at
        }
        ready = {at: start for at, start in starts.positions.items() if at not in refused}
        return replace(starts, positions=ready, refused={**starts.refused, **refused})
