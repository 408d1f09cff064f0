"""A lane whose task reports the end of a record later: many are in process at once."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable

from headrace.runtime.error_text import exc_info
from headrace.workers.lanes.attempt import RecordAttempt
from headrace.workers.lanes.bound_task import BoundTask
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.lane import Lane
from headrace.workers.tasks.task import WorkerSubpartition

_LOG = logging.getLogger("headrace.workers")


class ObservedLane(Lane):
    """Calls ``process`` in order; records end in the order in which their ends are reported.

    A record that is retried comes after those that started meanwhile.
    """

    def __init__(
        self,
        subpartition: WorkerSubpartition,
        task: BoundTask,
        context: LaneContext,
        finished: Callable[[Lane, RecordAttempt], None],
    ) -> None:
        super().__init__(subpartition, task, context, finished)
        self._open: set[RecordAttempt] = set()
        self._settling: set[asyncio.Task[None]] = set()
        self._thread = threading.get_ident()

    @property
    def in_process(self) -> int:
        """The number of records without a reported end, or with unconfirmed sends."""
        return len(self._open)

    @property
    def oldest_start(self) -> float | None:
        """When the oldest record without a reported end was given to the task."""
        return min((attempt.started for attempt in self._open), default=None)

    def expire(self, started_before: float) -> None:
        """Ends what takes too long, also a record whose end is not reported in time."""
        super().expire(started_before)
        # A list: settling an attempt may change the set.
        for attempt in [attempt for attempt in self._open if attempt.started < started_before]:
            if attempt is not self._current and attempt.abandon():
                self._settle(attempt, self._timeout(attempt))

    async def drained(self, seconds: float) -> None:
        """Drains as every lane does; ends that are reported later are ignored."""
        await asyncio.wait({self._runner}, timeout=seconds)
        for attempt in self._open:
            attempt.abandon()
        settling = list(self._settling)
        for task in settling:
            task.cancel()
        await asyncio.gather(*settling, return_exceptions=True)
        await super().drained(0.0)

    async def _handle(self, attempt: RecordAttempt) -> None:
        self._open.add(attempt)
        error = attempt.error
        if error is None:
            error = await self._attempt(attempt, self._task.process(attempt.record, attempt))
        if error is None:
            return
        if not attempt.abandon():
            _LOG.error(
                "%s failed after its task had reported its end",
                attempt.record,
                exc_info=exc_info(error),
            )
        elif self._still_runs_on_thread(attempt, error):
            self._open.discard(attempt)
            await self._failed(attempt, error)
        else:
            self._settle(attempt, error)

    async def _finish_all(self) -> None:
        while self._open:
            await self._sleep()

    def _on_report(self, attempt: RecordAttempt, error: BaseException | None) -> None:
        """Hands the end of a record to the event loop, from whatever thread."""
        if threading.get_ident() == self._thread:
            self._on_report_in_loop(attempt, error)
        else:
            self._loop.call_soon_threadsafe(self._on_report_in_loop, attempt, error)

    def _on_report_in_loop(self, attempt: RecordAttempt, error: BaseException | None) -> None:
        sends = attempt.sends
        if error is None and sends is not None:
            if not sends.are_confirmed:
                sends.when_confirmed(functools.partial(self._on_report_in_loop, attempt, None))
                return
            error = sends.error
        if error is None:
            self._end(attempt)
        else:
            self._settle(attempt, error)

    def _settle(self, attempt: RecordAttempt, error: BaseException) -> None:
        task = self._loop.create_task(self._settled(attempt, error))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settled(self, attempt: RecordAttempt, error: BaseException) -> None:
        """Applies the policy to a failed attempt: another one follows, or the record is done."""
        try:
            self._note_failed(attempt, error)
            delay = self._retry_delay(attempt, error)
            if delay is None:
                await self._end_failed(attempt, error)
                self._end(attempt)
                return
            self._context.counts["retried"] += 1
            # Out of the open ones first: between two attempts its deadline does not run.
            self._leave(attempt)
            if await self._delay(delay):
                self._put_first(attempt.next())
                self._wake()
        except Exception as broken:  # noqa: BLE001 - it stops at failures, or no letter is written
            self._leave(attempt)
            self._fail(broken)

    def _end(self, attempt: RecordAttempt) -> None:
        if attempt in self._open:
            self._leave(attempt)
            self._finish(attempt)

    def _leave(self, attempt: RecordAttempt) -> None:
        self._open.discard(attempt)
        self._wake()
