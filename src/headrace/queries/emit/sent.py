"""The records that were sent for events: what a start and a recount read back from the topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeAlias

from headrace.kafka.origin import Origin
from headrace.model import OffsetRange, TopicPartition

Match: TypeAlias = tuple[int, str]
"""The offset of an event, and the id of a query that it matches."""


@dataclass(frozen=True)
class SentOfEvent:
    """An event whose records were sent, for some of the queries that it matches at least.

    Attributes:
        offset: the offset of the event.
        queries: ids of the queries for which a record was sent.
        target_offset: the offset of the event's first record in the topic of matched events.
    """

    offset: int
    queries: Collection[str]
    target_offset: int = 0


@dataclass(frozen=True, slots=True)
class SentEventRecord:
    """A record of the topic of matched events.

    Attributes:
        origin: site, topic, partition and offset of the event.
        query: id of the query that the event matches.
        offset: the offset of the record.
    """

    origin: Origin
    query: str
    offset: int

    @property
    def source(self) -> TopicPartition:
        """The partition of the event."""
        return TopicPartition(self.origin.topic, self.origin.partition)


class RecordedMatches:
    """The matches of a range of events that have records in the topic of matched events.

    Args:
        events: the range of events.
        max_matches: the largest number of matches; if there are more, the older half of the matches
            is left out, with their events.

    Attributes:
        events: the range of events, without those that are left out.
        matches: number of records of each match.
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
        """Takes the next record of an event of the partition.

        A record counts if its query is asked for, and its event is in the range.
        """
        offset = record.origin.offset
        if self._first is None:
            self._first = offset
        if is_asked_for and self.events.start <= offset < self.events.end:
            self.matches[offset, record.query] += 1
            if len(self.matches) > self._max_matches:
                offsets = sorted(offset for offset, _ in self.matches)
                self._leave_out_until(offsets[len(offsets) // 2])

    def leave_out_first(self) -> None:
        """Leaves out events up to that of the first record: their records may be deleted."""
        if self._first is not None:
            self._leave_out_until(self._first)

    def _leave_out_until(self, last: int) -> None:
        start = min(max(self.events.start, last + 1), self.events.end)
        self.events = replace(self.events, start=start)
        kept = {match: n for match, n in self.matches.items() if match[0] >= start}
        self.matches = Counter(kept)
