"""The order of merged records, and how far a partition of the target has come.

Records are sorted by time, then by the place of their topic in the merger's sources, then by
offset. *Time* is the timestamp of a Kafka record, in milliseconds since 1970.

Each source has a *watermark*: the time before which nothing more of it will come, with its place.
The output advances to the lowest one, since a record is written once no record that can still come
sorts before it. So the order of the output is a function of the sources alone, however they are
read, unless a source is declared idle, or a record comes later than the allowed lateness or is too
far ahead of the clock.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from typing import Any, NamedTuple, TypeAlias


class OrderKey(NamedTuple):
    """A place in the order: a watermark, or the last record that was written.

    Attributes:
        time_ms: of a record; -1: before all.
        place: of its topic in the sources.
    """

    time_ms: int
    place: int


NOTHING_REACHED = OrderKey(-1, -1)

Pending: TypeAlias = tuple[int, int, int, Any]
"""A record that waits for its turn: time, place of its topic, offset, message of the client.

A plain tuple, since there is one for each record; they are sorted as tuples are.
"""


class SortedOutput:
    """The records that wait for one partition of the target, by source.

    Args:
        sources: how many there are.
        reached: the last record that was written.
    """

    def __init__(self, sources: int, reached: OrderKey = NOTHING_REACHED) -> None:
        self.reached = reached
        self._waiting: list[list[Pending]] = [[] for _ in range(sources)]

    def put(self, place: int, records: list[Pending]) -> None:
        """Takes records of a source, none of which the output has passed."""
        waiting = self._waiting[place]
        records.sort()
        if waiting and records and records[0] < waiting[-1]:
            # Only what overlaps is sorted again: a whole list for a few records would take longer.
            first = bisect_left(waiting, records[0])
            records = sorted(waiting[first:] + records)
            del waiting[first:]
        waiting += records

    def take(self, upto: OrderKey, limit: int) -> list[Pending]:
        """Returns the first records whose turn has come, in order.

        Args:
            upto: the lowest watermark.
            limit: about how many; those of one time and topic are taken together.
        """
        # What equals the last record that was written can be written, too. So no record waits that
        # the output has passed, which is how those that were written are known.
        upto = max(upto, self.reached)
        first = sorted(
            record
            for waiting in self._waiting
            for record in waiting[: min(_count(waiting, upto), limit)]
        )
        if len(first) > limit:
            upto = OrderKey(*first[limit - 1][:2])
        ready: list[Pending] = []
        for waiting in self._waiting:
            count = _count(waiting, upto)
            ready += waiting[:count]
            del waiting[:count]
        ready.sort()  # of runs that are sorted: in linear time
        if ready:
            # No further, though nothing should come that sorts before a watermark: what does can
            # still be put in order.
            self.reached = max(self.reached, OrderKey(*ready[-1][:2]))
        return ready

    @property
    def first(self) -> OrderKey | None:
        """The place of the first record that waits; ``None``: none does."""
        firsts = [waiting[0][:2] for waiting in self._waiting if waiting]
        return OrderKey(*min(firsts)) if firsts else None

    def newest(self, place: int, latest_ms: int) -> int:
        """Returns the newest time of a source's waiting records up to a time; -1: none waits."""
        waiting = self._waiting[place]
        count = _count(waiting, OrderKey(latest_ms, place))
        return waiting[count - 1][0] if count else -1

    def after(self, place: int, time_ms: int) -> list[Pending]:
        """Returns a source's waiting records that are later than a time."""
        waiting = self._waiting[place]
        return waiting[_count(waiting, OrderKey(time_ms, sys.maxsize)) :]

    def first_offset(self, place: int) -> int | None:
        """Returns the least offset of a source's records that wait; ``None``: none does."""
        return min((offset for _, _, offset, _ in self._waiting[place]), default=None)

    def waiting(self, place: int) -> int:
        """Returns how many records of a source wait."""
        return len(self._waiting[place])


def _count(waiting: list[Pending], upto: OrderKey) -> int:
    """Returns how many of sorted records are not behind a place in the order."""
    return bisect_right(waiting, (*upto, sys.maxsize, None))
