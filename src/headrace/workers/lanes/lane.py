"""A lane: the records of one subpartition, in their order, through one task.

::

    +-------------------------------------+
    | starting ---> running <---> blocked |
    |                  ^                  |
    |                  +--------> retrying|
    +-------------------------------------+
          |                         |
          v                         v
       draining ---------------> failed
          |                         |
          +--------> closed <-------+

    starting > running    ``_run``: ``init`` has returned
    running > blocked     ``_next``: the first record is not due, or not accepted
    blocked > running     ``_next``: it is due and accepted
    running > retrying    ``_failed``: the policy allows another attempt
    retrying > running    ``_failed``: the delay until that attempt is over
    all four > draining   ``begin_drain``: the partition is revoked, or the instance stops
    all four > failed     ``_fail``: no policy handles an error, which ends the instance
    draining > failed     ``_fail``: an error of the last records
    draining > closed     ``drained``: nothing is in process, or what is was abandoned
    failed > closed       ``drained``: the instance ends

This lane hands its task the next record when the task has returned from the last one. Records whose
sends are not confirmed yet are put aside; they are done when the last confirmation comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from headrace.errors import (
    LaneEndedError,
    ProcessingFailedError,
    ProcessingTimeoutError,
    TaskTimeoutError,
)
from headrace.runtime.error_text import error_text, exc_info, is_error
from headrace.runtime.suspended import where_suspended
from headrace.workers.lanes.attempt import CURRENT, Call, OwnCall, RecordAttempt
from headrace.workers.lanes.bound_task import BoundTask
from headrace.workers.lanes.context import LaneContext
from headrace.workers.states import ACTIVE_STATES, LANE, LaneState
from headrace.workers.tasks.policy import Retry, retry_delay
from headrace.workers.tasks.record import ConsumedRecord
from headrace.workers.tasks.task import WorkerSubpartition
from headrace.workers.tasks.timers import TimerRecord

_LOG = logging.getLogger("headrace.workers")
_YIELD_EVERY_STEPS = 32
_EXPECTED_ENDS: frozenset[LaneState] = frozenset(
    {LaneState.DRAINING, LaneState.FAILED, LaneState.CLOSED}
)


class Lane:
    """Runs one task, until it is drained. A failure that no policy handles ends it.

    Attributes:
        subpartition: whose records these are.
        bytes: of the records that wait or are in process.
        state: see :class:`LaneState`.
        has_room: whether what a timer sends can be held: no record that was read bounds that.
        due_timer: returns a timer that comes before the record of an offset, or, without one, is
            due by now; ``None``: the worker keeps no state.
        on_own_call: called when ``init``, ``punctuate`` or ``close`` has ended without an error.
        max_unconfirmed: records whose sends are not confirmed: bounds memory, and what a restart
            repeats.
    """

    max_unconfirmed = 1000

    def __init__(
        self,
        subpartition: WorkerSubpartition,
        task: BoundTask,
        context: LaneContext,
        finished: Callable[[Lane, RecordAttempt], None],
    ) -> None:
        self.subpartition = subpartition
        self.bytes = 0
        self.state = LaneState.STARTING
        self._task, self._context, self._finished = task, context, finished
        self._queue: deque[RecordAttempt] = deque()
        self._unconfirmed: dict[RecordAttempt, None] = {}
        self._failed_later: deque[RecordAttempt] = deque()
        self._current: Call | None = None
        self._accepting = OwnCall("accept")
        self._punctuate_at: datetime | None = None
        self._lost: Call | None = None
        self._paused = self._is_cut_off = False
        self.on_own_call: Callable[[Call], None] | None = None
        self.has_room: Callable[[], bool] = lambda: True
        self.due_timer: Callable[[int | None], TimerRecord | None] | None = None
        self._steps = 0
        self._draining = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._coroutine = self._run()
        self._runner = self._loop.create_task(self._coroutine)
        self._runner.add_done_callback(self._check_end)

    @property
    def waiting(self) -> int:
        """The number of records whose turn has not come."""
        return len(self._queue)

    @property
    def in_process(self) -> int:
        """The number of records that were given to the task and are not done."""
        return (
            isinstance(self._current, RecordAttempt)
            + len(self._unconfirmed)
            + len(self._failed_later)
        )

    @property
    def oldest_start(self) -> float | None:
        """When the oldest record in process was given to the task, by the loop's clock."""
        oldest = next(iter(self._unconfirmed), self._current)
        return oldest.started if isinstance(oldest, RecordAttempt) else None

    def put(self, record: ConsumedRecord) -> int:
        """Adds a record after those that wait; returns its size in bytes."""
        attempt = RecordAttempt(record, record.record.weight, self._on_report)
        self.bytes += attempt.weight
        self._queue.append(attempt)
        # A blocked lane waits for its first record, which a new one does not change.
        if self.state is not LaneState.BLOCKED:
            self._wake()
        return attempt.weight

    def recheck(self) -> None:
        """Checks again whether the first record is due and accepted."""
        if self.state is LaneState.BLOCKED:
            self._wake()

    def check_timers(self) -> None:
        """Looks whether a timer is due."""
        self._wake()

    def pause(self, *, paused: bool) -> None:
        """Starts no record while it is paused; records in process end."""
        self._paused = paused
        self._wake()

    def punctuate(self, now: datetime) -> None:
        """Calls the task's ``punctuate`` before the next record."""
        self._punctuate_at = now
        self._wake()

    def expire(self, started_before: float) -> None:
        """Ends the call that has run since before that moment of the loop's clock.

        It is cancelled once, and has a grace period to clean up. A coroutine that swallows this is
        abandoned with its record, and ends the instance.
        """
        current, now = self._current, self._loop.time()
        if current is None or current is self._lost:
            return
        # A drain waits for `close`, so it gets no longer than its own limit; `init` may connect to
        # services, and gets at least its own.
        if isinstance(current, OwnCall) and current.name == "close":
            started_before = max(started_before, now - self._context.timing.close_seconds)
        elif isinstance(current, OwnCall) and current.name == "init":
            started_before = min(started_before, now - self._context.timing.init_seconds)
        if not current.expired_at and current.started < started_before:
            current.expired_at = now
            self._runner.cancel()
        elif current.expired_at and current.expired_at < now - self._context.timing.grace_seconds:
            self._lose(current)

    def begin_drain(self) -> None:
        """Starts no record from now on."""
        if self._move(LaneState.DRAINING):
            self._draining.set()
            self._wake()

    async def drained(self, seconds: float) -> None:
        """Returns when nothing is in process, or after ``seconds``: then what is, is abandoned.

        Its task is closed. A call that ignores its cancellation too is abandoned, and logged with
        its stack.
        """
        # asyncio.wait, not wait_for: that would cancel the runner at its timeout, and wait for it.
        await asyncio.wait({self._runner}, timeout=seconds)
        if not self._runner.done() and not self._is_closing:
            self._is_cut_off = True
            self._runner.cancel()
            await asyncio.wait({self._runner}, timeout=self._context.timing.grace_seconds)
        if self._is_closing:
            close_seconds = max(seconds, self._context.timing.close_seconds)
            await asyncio.wait({self._runner}, timeout=close_seconds)
        if not self._runner.done():
            _LOG.error("%s does not end and is abandoned:\n%s", self, self._stack())
        self._move(LaneState.CLOSED)

    def __str__(self) -> str:
        return f"subpartition {self.subpartition}"

    # -- the records, one after the other ---------------------------------------------------------

    async def _run(self) -> None:
        is_initialised = False
        try:
            config = self._context.worker.config
            await self._call_own("init", self._task.init(self.subpartition, config))
            is_initialised = True
            self._move(LaneState.RUNNING)
            while self.state in ACTIVE_STATES:
                await self._step()
            await self._finish_all()
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            self._fail(error)
        finally:
            await self._close(is_initialised=is_initialised)

    async def _step(self) -> None:
        if self._punctuate_at is not None:
            now, self._punctuate_at = self._punctuate_at, None
            await self._call_own("punctuate", self._task.punctuate(now))
        while self._failed_later:
            await self._end_failed_later()
        if self.state not in ACTIVE_STATES:  # a drain may have started meanwhile
            return
        attempt = self._next()
        # Between `_next` and `_sleep` nothing is awaited, so no wake-up is missed.
        if attempt is not None:
            await self._handle(attempt)
        elif self._punctuate_at is None:
            await self._sleep()
        # A task that never awaits anything would never yield the event loop to other lanes.
        self._steps += 1
        if self._steps % _YIELD_EVERY_STEPS == 0:
            await asyncio.sleep(0)

    def _next(self) -> RecordAttempt | None:
        if self._paused or len(self._unconfirmed) >= self.max_unconfirmed:
            return None
        if self.due_timer is not None and (timer := self._next_timer(self.due_timer)) is not None:
            # No record overtakes it meanwhile.
            return timer if self.has_room() else None
        if not self._queue:
            return None
        # The record stays in the queue until its turn: a revoked lane has started none of it.
        attempt = self._queue[0]
        is_waiting = attempt.due_ms or self._task.accept is not None
        if is_waiting and not attempt.is_timer and not self._accepts(attempt):
            self._move(LaneState.BLOCKED)
            return None
        if self.state is not LaneState.RUNNING:
            self._move(LaneState.RUNNING)
        return self._queue.popleft()

    def _next_timer(
        self, due_timer: Callable[[int | None], TimerRecord | None]
    ) -> RecordAttempt | None:
        """Returns a timer that comes before the first record, or that is due without one."""
        first = self._queue[0] if self._queue else None
        if first is not None and first.is_timer:  # it is retried
            return None
        timer = due_timer(None if first is None else first.offset)
        if timer is None:
            return None
        self._move(LaneState.RUNNING)
        received = ConsumedRecord(timer, timer.topic_partition, timer.offset)
        return RecordAttempt(received, 0, self._on_report)

    def _accepts(self, attempt: RecordAttempt) -> bool:
        """Whether its turn has come; a failure of ``accept`` is kept as the attempt's."""
        if attempt.due_ms > self._context.clock():
            self._context.blocked.wake_at(self, attempt.due_ms)
            return False
        try:
            accept = self._task.accept
            if self.on_own_call is not None:
                # Else what it sends would be of the last record, which may not have ended.
                CURRENT.set(self._accepting)
            if attempt.error is not None or accept is None or accept(attempt.record):
                return True
        except BaseException as error:  # noqa: BLE001 - whatever the user's code raises
            # Kept, not raised: a failing accept meets the policy of its record, as process does.
            attempt.error = self._classify(attempt, error)
            return True
        self._context.blocked.add(self)
        return False

    async def _handle(self, attempt: RecordAttempt) -> None:
        """Processes a record; returns when the task has returned, or the policy was applied."""
        error = attempt.error
        if error is None:
            call = self._task.on_timer if attempt.is_timer else self._task.process
            error = await self._attempt(attempt, call(attempt.record))
        sends = attempt.sends
        if error is None and sends is not None:
            if not sends.are_confirmed:
                self._unconfirmed[attempt] = None
                sends.when_confirmed(functools.partial(self._confirmed, attempt))
                return
            error = sends.error
        if error is None:
            self._finish(attempt)
        else:
            await self._failed(attempt, error)

    def _confirmed(self, attempt: RecordAttempt) -> None:
        """Ends a record whose sends were confirmed, or failed, after its task had returned."""
        del self._unconfirmed[attempt]
        if attempt.sends is None or attempt.sends.error is None:
            self._finish(attempt)
        else:
            self._failed_later.append(attempt)
        if (
            self._failed_later
            or self._draining.is_set()
            or len(self._unconfirmed) + 1 == self.max_unconfirmed
        ):
            self._wake()

    async def _end_failed_later(self) -> None:
        """Applies the policy to a record whose sends failed after its task had returned."""
        attempt = self._failed_later.popleft()
        if attempt.sends is not None and attempt.sends.error is not None:
            await self._failed(attempt, attempt.sends.error)

    async def _finish_all(self) -> None:
        """Waits for the records in process, when no more are started."""
        while self._unconfirmed or self._failed_later:
            if self._failed_later:
                await self._end_failed_later()
            else:
                await self._sleep()

    async def _attempt(self, attempt: RecordAttempt, call: Awaitable[Any]) -> BaseException | None:
        """Returns what ``call`` raised, or that it took too long; ``None``: it succeeded."""
        CURRENT.set(attempt)
        attempt.started = self._loop.time()
        self._current = attempt
        try:
            await call
        except BaseException as error:  # noqa: BLE001 - whatever the user's code raises
            return self._classify(attempt, error)
        finally:
            self._current = None
        return self._classify(attempt, None) if attempt.expired_at else None

    def _classify(self, call: Call, error: BaseException | None) -> BaseException | None:
        """Returns why an attempt failed, when ``error`` came out of the user's code.

        Raises:
            BaseException: if the lane was cancelled, or the instance has to end.
        """
        # The record of a lost call has ended already, and that of a cut-off one is the next
        # instance's: what comes out of them now meets no policy.
        if call is self._lost or (self._is_cut_off and isinstance(call, RecordAttempt)):
            raise asyncio.CancelledError if error is None else error
        if call.expired_at:
            # Else the task would count as being cancelled from now on, and a CancelledError of the
            # user's code would be taken for one of the lane.
            self._runner.uncancel()
            return self._timeout(call)
        if is_error(error, KeyboardInterrupt, SystemExit):
            raise ProcessingFailedError(self._raised(call, error)) from error
        if self._is_ended and is_error(error, asyncio.CancelledError, GeneratorExit):
            raise error  # the lane was cancelled
        return error

    async def _failed(self, attempt: RecordAttempt, error: BaseException) -> None:
        """Applies the policy: another attempt follows after a delay, or the record is done."""
        self._note_failed(attempt, error)
        is_running = self._still_runs_on_thread(attempt, error)
        delay = None if is_running else self._retry_delay(attempt, error)
        if delay is None:
            # In this order: a crash in between repeats the record, and its dead letter is
            # recognised as written. The other way round, the record could be committed without its
            # letter.
            await self._end_failed(attempt, error)
            self._finish(attempt)
            if is_running:
                raise error
            return
        self._context.counts["retried"] += 1
        self._move(LaneState.RETRYING)
        if await self._delay(delay):
            self._put_first(attempt.next())
            self._move(LaneState.RUNNING)

    def _note_failed(self, attempt: RecordAttempt, error: BaseException) -> None:
        attempt.failed_at(self._context.clock())
        self._context.counts["failed"] += 1
        self._context.failures.attempt_failed(attempt.record, error)

    async def _end_failed(self, attempt: RecordAttempt, error: BaseException) -> None:
        """Ends a record without further attempts in this lane; returns when it is done."""
        self._context.counts[await self._context.failures.end(attempt, error)] += 1
        attempt.is_given_up = True

    def _retry_delay(self, attempt: RecordAttempt, error: BaseException) -> timedelta | None:
        """Returns the delay until the next attempt in this lane; ``None``: there is none."""
        policy = self._context.worker.on_failure
        if not isinstance(policy, Retry):
            return None
        return retry_delay(policy, error, attempt.record.attempt)

    def _still_runs_on_thread(self, attempt: RecordAttempt, error: BaseException) -> bool:
        """Whether a thread still processes a record that timed out: nothing may run beside it."""
        task = self._task
        is_ended = task.is_timer_interruptible if attempt.is_timer else task.is_interruptible
        return is_error(error, ProcessingTimeoutError) and not is_ended

    def _put_first(self, attempt: RecordAttempt) -> None:
        """The next attempt comes before new records, and after those of lower offsets."""
        lower: list[RecordAttempt] = []
        # Other records that are retried may wait with lower offsets.
        while self._queue and self._queue[0].offset < attempt.offset:
            lower.append(self._queue.popleft())
        self._queue.appendleft(attempt)
        self._queue.extendleft(reversed(lower))

    def _on_report(self, attempt: RecordAttempt, error: BaseException | None) -> None:
        """Called by an observer; the tasks of this lane have none."""

    # -- what is no record ------------------------------------------------------------------------

    async def _call_own(self, name: str, call: Awaitable[Any]) -> None:
        """Calls ``init``, ``punctuate`` or ``close``, and waits for its sends.

        Raises:
            TaskTimeoutError: if it took too long.
            ProcessingFailedError: if it raised what is no ``Exception``.
            Exception: what it raised, or why something was not written.
        """
        own = OwnCall(name)
        CURRENT.set(own)
        own.started = self._loop.time()
        self._current = own
        error: BaseException | None = None
        try:
            await call
        except BaseException as raised:  # noqa: BLE001 - whatever the user's code raises
            error = raised
        finally:
            self._current = None
        error = self._classify(own, error)
        if error is not None and self.on_own_call is not None:
            own.sending().take_held()  # dropped, and what is still sent in it raises
        if is_error(error, Exception):
            raise error
        if error is not None:
            raise ProcessingFailedError(self._raised(own, error)) from error
        await own.confirm_sends()
        if self.on_own_call is not None:
            self.on_own_call(own)

    async def _close(self, *, is_initialised: bool) -> None:
        try:
            await self._call_own("close", self._task.close())
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            if is_initialised:
                self._context.on_fatal(error)
            else:  # it may lack what the failed init did not create
                _LOG.warning(
                    "close of %s failed, and its init did not end", self, exc_info=exc_info(error)
                )

    @property
    def _is_ended(self) -> bool:
        """Whether the lane itself was cancelled, or its coroutine is closed outside of its task."""
        is_closed = asyncio.current_task(self._loop) is not self._runner
        return is_closed or self._runner.cancelling() > 0

    @property
    def _is_closing(self) -> bool:
        current = self._current
        return isinstance(current, OwnCall) and current.name == "close"

    # -- ends and waits ---------------------------------------------------------------------------

    def _finish(self, attempt: RecordAttempt) -> None:
        self.bytes -= attempt.weight
        self._finished(self, attempt)

    def _timeout(self, call: Call) -> BaseException:
        seconds = self._loop.time() - call.started
        if isinstance(call, RecordAttempt):
            self._context.counts["timed_out"] += 1
            return ProcessingTimeoutError(f"{call.record} was not done after {seconds:.1f} s")
        return TaskTimeoutError(f"{self._name_of(call)} did not end within {seconds:.1f} s")

    def _name_of(self, call: Call) -> str:
        is_timer = isinstance(call, RecordAttempt) and call.is_timer
        name = call.name if isinstance(call, OwnCall) else "on_timer" if is_timer else "process"
        what = f" at {call.record}" if isinstance(call, RecordAttempt) else ""
        return f"{name} of {self}{what}"

    def _raised(self, call: Call, error: BaseException) -> str:
        return f"{self._name_of(call)} raised {error_text(error)}"

    def _lose(self, call: Call) -> None:
        """Abandons the record of a call that ignores its cancellation, and ends the instance."""
        self._lost = call
        _LOG.error("%s ignores its cancellation:\n%s", self._name_of(call), self._stack())
        self._ending = self._loop.create_task(self._end_lost(call))

    async def _end_lost(self, call: Call) -> None:
        error = self._timeout(call)
        try:
            if isinstance(call, RecordAttempt):
                await self._end_failed(call, error)
                self._finish(call)
        except Exception as broken:  # noqa: BLE001 - it stops at failures, or no letter is written
            error = broken
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._move(LaneState.FAILED):
            self._wake()
            self._context.on_fatal(error)

    def _check_end(self, runner: asyncio.Task[None]) -> None:
        """Ends the instance when a lane ends that was neither drained nor failed."""
        if self.state in _EXPECTED_ENDS:
            return
        error = None if runner.cancelled() else runner.exception()
        reason = "it was cancelled" if error is None else error_text(error)
        self._fail(LaneEndedError(f"{self} ended by itself: {reason}"))

    def _stack(self) -> str:
        return where_suspended(self._coroutine)

    def _move(self, state: LaneState) -> bool:
        """Changes to ``state`` if it may follow the present one; returns whether it does."""
        if state not in LANE[self.state]:
            return False
        self.state = state
        return True

    async def _sleep(self) -> None:
        self._woken = self._loop.create_future()
        await self._woken

    async def _delay(self, delay: timedelta) -> bool:
        """Waits; returns whether the lane still runs, and does not drain."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._draining.wait(), delay.total_seconds())
        return not self._draining.is_set()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
