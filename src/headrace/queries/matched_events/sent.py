"""What was sent of events that match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from headrace.model import OffsetRange, TopicPartition
from headrace.transfer.origin import Origin

Match: TypeAlias = tuple[int, str]
"""Offset of an event, and id of a query."""


@dataclass(frozen=True)
class SentOfEvent:
    """An event that was sent, at least to some of the queries that it matches.

    Attributes:
        offset: of the event.
        queries: ids of those that have it.
        target_offset: of the first of its records that was sent.
    """

    offset: int
    queries: Collection[str]
    target_offset: int = 0


@dataclass(frozen=True, slots=True)
class SentEventRecord:
    """A record of the topic of matched events.

    Attributes:
        origin: where the event is.
        query: id of the query that it matches.
        offset: of the record.
    """

    origin: Origin
    query: str
    offset: int

    @property
    def source(self) -> TopicPartition:
        """Returns the partition of the event."""
        return TopicPartition(self.origin.topic, self.origin.partition)


class RecordedMatches:
    """The matches of some events of a partition that are in the topic of matched events.

    Args:
        events: the range of these events.
        max_matches: where there are more, the older half of them is left out, with their events.

    Attributes:
        events: the range without events that are left out.
        matches: how many records there are of each.
    """

    def __init__(self, events: OffsetRange, max_matches: int) -> None:
        self.events = events
        self.matches: Counter[Match] = Counter()
        self._max_matches = max_matches
        self._first: int | None = None

    @property
    def has_records(self) -> bool:
        """Whether there is a record of any event of the partition."""
        return self._first is not None

    def take(self, record: SentEventRecord, *, is_asked_for: bool) -> None:
        """Takes the next record of an event of the partition."""
        offset = record.origin.offset
        if self._first is None:
            self._first = offset
        if is_asked_for and self.events.start <= offset < self.events.end:
            self.matches[offset, record.query] += 1
            if len(self.matches) > self._max_matches:
                offsets = sorted(offset for offset, _ in self.matches)
                self._leave_out_until(offsets[len(offsets) // 2])

    def leave_out_first(self) -> None:
        """Leaves out events up to that of the first record: Kafka may have deleted theirs."""
        if self._first is not None:
            self._leave_out_until(self._first)

    def _leave_out_until(self, last: int) -> None:
        start = min(max(self.events.start, last + 1), self.events.end)
        self.events = replace(self.events, start=start)
        kept = {match: n for match, n in self.matches.items() if match[0] >= start}
        self.matches = Counter(kept)
