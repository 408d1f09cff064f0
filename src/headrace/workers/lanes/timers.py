"""Timers of lanes: deadlines, ``punctuate``, and rechecks of blocked lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from headrace.errors import TaskThreadsError
from headrace.runtime.clock import Clock, now_in_ms
from headrace.workers.declaration import Worker
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.timing import WorkerTiming

_RECHECK_INTERVAL_SECONDS = 1.0
_MIN_INTERVAL_SECONDS = 0.02
_MAX_INTERVAL_SECONDS = 1.0


class LaneTimers:
    """The timers of one instance's lanes. All on the event loop, by the loop's clock.

    Args:
        worker: says how long a call may take, and how often ``punctuate`` is called.
        assignments: the lanes.
        threads: those that ordinary functions run on.
        on_fatal: called when every thread hangs.
        clock: tells the time of day that ``punctuate`` gets.
        timing: how long calls that were given up may hold every thread.
    """

    def __init__(
        self,
        worker: Worker,
        assignments: PartitionSet,
        threads: TaskThreads,
        on_fatal: Callable[[BaseException], None],
        clock: Clock = now_in_ms,
        timing: WorkerTiming = WorkerTiming(),
    ) -> None:
        self._worker, self._assignments, self._threads = worker, assignments, threads
        self._on_fatal, self._clock, self._timing = on_fatal, clock, timing

    @property
    def loops(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        """The loops, to run until cancelled; the end of one is a failure of the instance."""
        punctuating = () if self._worker.punctuate_every is None else (self._punctuate,)
        return (self._recheck_blocked, self._expire, *punctuating)

    async def _recheck_blocked(self) -> None:
        while True:
            await asyncio.sleep(_RECHECK_INTERVAL_SECONDS)
            self._assignments.blocked.recheck()

    async def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        timeout = self._worker.processing_timeout.total_seconds()
        # A deadline is noticed late by a quarter of it, and by a second at most.
        interval = min(max(timeout / 4, _MIN_INTERVAL_SECONDS), _MAX_INTERVAL_SECONDS)
        while True:
            await asyncio.sleep(interval)
            for lane in self._assignments.lanes:
                lane.expire(loop.time() - timeout)
            hanging = self._threads.all_hang(self._timing.hanging_seconds)
            if hanging:
                names = ", ".join(sorted(hanging))
                message = f"all {len(hanging)} threads for tasks hang, in {names}"
                self._on_fatal(TaskThreadsError(message))

    async def _punctuate(self) -> None:
        interval = self._worker.punctuate_every
        while interval is not None:
            await asyncio.sleep(interval.total_seconds())
            now = datetime.fromtimestamp(self._clock() / 1000, UTC)
            for lane in self._assignments.lanes:
                lane.punctuate(now)
