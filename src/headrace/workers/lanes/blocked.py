"""Lanes whose first record is not due, or is not accepted by their task."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Protocol

from headrace.runtime.clock import Clock, now_in_ms

RECHECK_SECONDS = 50e-6
"""Pause after a recheck, for each lane: rechecking one takes about a tenth of it."""
# Due times are of the time of day, which may be set: the loop's clock does not follow that.
_MAX_SLEEP_SECONDS = 60.0


class _Lane(Protocol):
    def recheck(self) -> None:
        """Checks again whether the first record is due and accepted."""


class BlockedLanes:
    """Wakes lanes when there is a reason to, however many wait. All on the event loop.

    Lanes that wait for a due time are in one heap, with one timer. Lanes whose task did not accept
    a record are rechecked when something happened: the more of them, the less often.

    Attributes:
        lanes: those whose task did not accept a record.

    Args:
        clock: the time of day, which due times are compared with.
    """

    def __init__(self, clock: Clock = now_in_ms) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count()
        self.lanes: dict[_Lane, None] = {}
        self._is_scheduled = False
        self._not_before = 0.0
        self._due: list[tuple[int, int, _Lane]] = []
        self._due_lanes: dict[_Lane, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, lane: _Lane) -> None:
        """Keeps a lane whose task did not accept a record, to recheck it."""
        self.lanes[lane] = None

    def recheck(self) -> None:
        """Rechecks the blocked lanes soon, once for all that happens until then."""
        if self.lanes and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_at(max(self._not_before, self._loop.time()), self._recheck_now)

    def wake_at(self, lane: _Lane, due_ms: int) -> None:
        """Keeps a lane whose first record is due at a time, to wake it then."""
        if self._due_lanes.get(lane) == due_ms:
            return
        self._due_lanes[lane] = due_ms
        heapq.heappush(self._due, (due_ms, next(self._numbers), lane))
        if self._due[0][2] is lane:
            self._set_timer()

    def _recheck_now(self) -> None:
        self._is_scheduled = False
        # Taken out first: a lane that is still not accepted adds itself again.
        blocked, self.lanes = self.lanes, {}
        self._not_before = self._loop.time() + RECHECK_SECONDS * len(blocked)
        for lane in blocked:
            lane.recheck()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        seconds = (self._due[0][0] - self._clock()) / 1000
        self._timer = self._loop.call_later(
            min(max(seconds, 0.0), _MAX_SLEEP_SECONDS), self._wake_due
        )

    def _wake_due(self) -> None:
        self._timer = None
        now_ms = self._clock()
        while self._due and self._due[0][0] <= now_ms:
            due_ms, _, lane = heapq.heappop(self._due)
            # An entry with an earlier due time of its lane is left in the heap, and ignored.
            if self._due_lanes.get(lane) == due_ms:
                del self._due_lanes[lane]
            lane.recheck()
        if self._due:
            self._set_timer()
