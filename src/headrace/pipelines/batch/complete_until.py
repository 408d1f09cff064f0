"""How far a table is complete, which the commits of a pipeline without steps say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from headrace.events.times import earlier, time_of


def event_time_reached(
    positions: Mapping[int, int], ends: Mapping[int, int], clocks: Mapping[int, int]
) -> int | None:
    """Returns the event time that a topic has reached, in microseconds since 1970.

    It is the event clock of the partition that is furthest behind. A partition that is read to its
    end is not behind: it may be idle for days.

    Args:
        positions: the next record to read of each partition.
        ends: the offset after the last record of each partition, as far as known.
        clocks: event clocks of partitions, in microseconds since 1970, as far as known.

    Returns:
        None where it is not known: no event has a time, or a partition that is behind has none.
    """
    behind = [p for p, position in positions.items() if p not in ends or ends[p] > position]
    if not clocks or not clocks.keys() >= set(behind):
        return None
    return min([max(clocks.values()), *(clocks[p] for p in behind)])


def complete_until(reached_us: int, allowed: timedelta) -> datetime:
    """Returns the event time before which only late events may still come; from the year 1 on.

    Args:
        reached_us: the event time that the topic has reached.
        allowed: lateness.
    """
    return earlier(time_of(reached_us), allowed)
