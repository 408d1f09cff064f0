"""Timers of lanes: deadlines, ``punctuate``, and rechecks of blocked lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from headrace.errors import TaskThreadsError
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.partition_set import PartitionSet

_RECHECK_INTERVAL_SECONDS = 1.0  # `accept` may depend on what no lane reports, such as the time
_MIN_INTERVAL_SECONDS = 0.02
_MAX_INTERVAL_SECONDS = 1.0


class LaneTimers:
    """The timers of one instance's lanes. All on the event loop, by the loop's clock.

    Args:
        context: says how long a call may take, and how often ``punctuate`` is called.
        assignments: the lanes.
    """

    def __init__(self, context: LaneContext, assignments: PartitionSet) -> None:
        self._context, self._assignments = context, assignments

    @property
    def loops(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """The loops, to run until cancelled; the end of one is a failure of the instance."""
        punctuating = () if self._context.worker.punctuate_every is None else (self._punctuate,)
        return (self._recheck_blocked, self._expire, *punctuating)

    async def _recheck_blocked(self) -> None:
        while True:
            await asyncio.sleep(_RECHECK_INTERVAL_SECONDS)
            self._context.blocked.recheck()

    async def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        timeout = self._context.worker.processing_timeout.total_seconds()
        # A deadline is noticed late by a quarter of it, and by a second at most.
        interval = min(max(timeout / 4, _MIN_INTERVAL_SECONDS), _MAX_INTERVAL_SECONDS)
        while True:
            await asyncio.sleep(interval)
            for lane in self._assignments.lanes:
                lane.expire(loop.time() - timeout)
            hanging = self._context.threads.all_hang(self._context.timing.hanging_seconds)
            if hanging:
                names = ", ".join(sorted(hanging))
                message = f"all {len(hanging)} threads for tasks hang, in {names}"
                self._context.on_fatal(TaskThreadsError(message))

    async def _punctuate(self) -> None:
        interval = self._context.worker.punctuate_every
        while interval is not None:
            await asyncio.sleep(interval.total_seconds())
            now = datetime.fromtimestamp(self._context.clock() / 1000, UTC)
            for lane in self._assignments.lanes:
                lane.punctuate(now)
