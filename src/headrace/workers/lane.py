"""A lane: the records of one subpartition, in their order, through one task.

This one takes a record at a time, and the next when that one is done.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from headrace.errors import ProcessingTimeoutError, WorkerError
from headrace.workers.handling import CURRENT, Handling
from headrace.workers.placement import PlacedTask
from headrace.workers.policy import FailurePolicy, Retry, retry_delay
from headrace.workers.received import Received
from headrace.workers.states import AT_WORK, LANE, LaneState, follow
from headrace.workers.task import WorkerSubpartition

_STEPS_IN_A_ROW = 32
_CLOSE_SECONDS = 10.0


class LaneHost(Protocol):
    """What a lane needs of the assignment it belongs to. All on the event loop."""

    def finished(self, lane: Lane, handling: Handling) -> None:
        """The record is done."""

    async def give_up(self, handling: Handling, error: BaseException) -> None:
        """No attempt is left in this lane. Returns when the record is done all the same."""

    def broke(self, error: BaseException) -> None:
        """The lane can't go on."""

    def held(self, lane: Lane) -> None:
        """Its task did not accept a record: it is to be asked again when something happened."""

    def count(self, name: str) -> None:
        """One more of a metric."""


class Lane:
    """Runs one task, until it is drained. A failure that nothing is done about ends it.

    Attributes:
        subpartition: whose records these are.
        bytes: of the records that wait or are in process.
        state: see :class:`LaneState`.
    """

    def __init__(
        self,
        subpartition: WorkerSubpartition,
        task: PlacedTask,
        host: LaneHost,
        policy: FailurePolicy,
        config: Mapping[str, Any],
    ) -> None:
        self.subpartition = subpartition
        self.bytes = 0
        self.state = LaneState.STARTING
        self._task, self._host, self._policy, self._config = task, host, policy, config
        self._queue: deque[Handling] = deque()
        self._current: Handling | None = None
        self._punctuate_at: datetime | None = None
        self._timed_out = False
        self._paused = False
        self._steps = 0
        self._draining = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._woken: asyncio.Future[None] | None = None
        self._runner = self._loop.create_task(self._run())

    @property
    def waiting(self) -> int:
        """Records whose turn has not come."""
        return len(self._queue)

    @property
    def in_process(self) -> int:
        """Records that were given to the task and are not done."""
        return int(self._current is not None)

    @property
    def begun(self) -> float | None:
        """When its oldest record in process was given to the task, by the loop's clock."""
        return None if self._current is None else self._current.started

    def put(self, received: Received) -> int:
        """Another record, after those that wait; its weight in bytes."""
        handling = Handling(received, received.record.weight, self._told)
        self.bytes += handling.weight
        self._queue.append(handling)
        self._wake()
        return handling.weight

    def ask_again(self) -> None:
        """A held record may be accepted now."""
        if self.state is LaneState.HELD:
            self._wake()

    def pause(self, *, paused: bool) -> None:
        """Begin no record while it is paused; what is in process ends."""
        self._paused = paused
        self._wake()

    def punctuate(self, now: datetime) -> None:
        """The task's ``punctuate`` is due; twice at once is once."""
        self._punctuate_at = now
        self._wake()

    def expire(self, started_before: float) -> None:
        """Fails what has been in process since before that moment of the loop's clock."""
        current = self._current
        if current is not None and current.started < started_before:
            self._timed_out = True
            self._runner.cancel()

    def begin_drain(self) -> None:
        """Begin no record from now on."""
        if LaneState.DRAINING in LANE[self.state]:
            self._enter(LaneState.DRAINING)
            self._draining.set()
            self._wake()

    async def drained(self, seconds: float) -> None:
        """Returns when nothing is in process, or after ``seconds``: then what is, is abandoned.

        Its task is closed.
        """
        await asyncio.wait({self._runner}, timeout=seconds)
        self._runner.cancel()
        await asyncio.gather(self._runner, return_exceptions=True)
        self._move(LaneState.CLOSED)

    # -- the records, one after the other ---------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._task.init(self.subpartition, self._config)
            self._move(LaneState.RUNNING)
            while self.state in AT_WORK:
                await self._step()
                await self._give_way()
            await self._finish_all()
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            self._break(error)
        finally:
            await self._close()

    async def _step(self) -> None:
        if self._punctuate_at is not None:
            now, self._punctuate_at = self._punctuate_at, None
            await self._task.punctuate(now)
        handling = self._next()
        if handling is None:
            await self._sleep()
        else:
            await self._handle(handling)

    def _next(self) -> Handling | None:
        if self._paused or not self._queue:
            return None
        if not self._accepts(self._queue[0]):
            self._move(LaneState.HELD)
            self._host.held(self)
            return None
        self._move(LaneState.RUNNING)
        return self._queue.popleft()

    def _accepts(self, handling: Handling) -> bool:
        if handling.due_ms and handling.due_ms > time.time_ns() // 1_000_000:
            return False
        return self._task.accept is None or self._task.accept(handling.record)

    async def _handle(self, handling: Handling) -> None:
        """Until the record is done, or no attempt is left, or the lane drains."""
        error = await self._attempt(handling, self._process(handling))
        while error is not None:
            again = await self._after(handling, error)
            if again is None:
                return
            handling = again
            error = await self._attempt(handling, self._process(handling))
        self._finish(handling)

    async def _process(self, handling: Handling) -> None:
        await self._task.process(handling.record)
        if handling.sends:
            await handling.confirm_sends()

    async def _finish_all(self) -> None:
        """Nothing is begun any more: wait for what is in process."""

    async def _attempt(self, handling: Handling, call: Awaitable[Any]) -> BaseException | None:
        """What ``call`` raised, or that it took too long."""
        CURRENT.set(handling)
        handling.started = self._loop.time()
        self._current, self._timed_out = handling, False
        try:
            await call
        except asyncio.CancelledError:
            if not self._timed_out:
                raise
            self._runner.uncancel()
            return self._timeout(handling)
        except WorkerError:
            raise  # not of the record
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            return error
        finally:
            self._current = None
        return None

    async def _after(self, handling: Handling, error: BaseException) -> Handling | None:
        """The next attempt, when its time has come; ``None``: there is none."""
        delay = self._retry_delay(handling, error)
        if delay is None or self._is_lost(error):
            await self._host.give_up(handling, error)
            self._finish(handling)
            if self._is_lost(error):
                raise error
            return None
        self._move(LaneState.RETRYING)
        if not await self._delay(delay):
            return None
        self._move(LaneState.RUNNING)
        return handling.again()

    def _retry_delay(self, handling: Handling, error: BaseException) -> timedelta | None:
        """Until the next attempt in this lane; ``None``: there is none."""
        handling.failed_at(time.time_ns() // 1_000_000)
        self._host.count("failed")
        if not isinstance(self._policy, Retry):
            return None
        delay = retry_delay(self._policy, error, handling.record.attempt)
        if delay is not None:
            self._host.count("retried")
        return delay

    def _is_lost(self, error: BaseException) -> bool:
        """A thread goes on with a record that timed out: nothing else may run beside it."""
        return isinstance(error, ProcessingTimeoutError) and not self._task.is_interruptible

    def _told(self, handling: Handling, error: BaseException | None) -> None:
        """An observer was told: the task of this lane has none."""

    # -- ends and waits ---------------------------------------------------------------------------

    def _finish(self, handling: Handling) -> None:
        self.bytes -= handling.weight
        self._host.finished(self, handling)

    def _timeout(self, handling: Handling) -> ProcessingTimeoutError:
        self._host.count("timed_out")
        seconds = self._loop.time() - handling.started
        return ProcessingTimeoutError(f"{handling.record} was not done after {seconds:.1f} s")

    def _break(self, error: BaseException) -> None:
        if self.state is not LaneState.FAILED:
            self._enter(LaneState.FAILED)
            self._wake()
            self._host.broke(error)

    async def _close(self) -> None:
        try:
            await asyncio.wait_for(self._task.close(), _CLOSE_SECONDS)
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            self._host.broke(error)

    def _enter(self, state: LaneState) -> None:
        self.state = follow(self.state, state, LANE)

    def _move(self, state: LaneState) -> None:
        """Into ``state``, unless it has ended or drains."""
        if self.state is not state and state in LANE[self.state]:
            self._enter(state)

    async def _give_way(self) -> None:
        """A task that never waits is not to keep the loop from other lanes."""
        self._steps += 1
        if self._steps % _STEPS_IN_A_ROW == 0:
            await asyncio.sleep(0)

    async def _sleep(self) -> None:
        self._woken = self._loop.create_future()
        await self._woken

    async def _delay(self, delay: timedelta) -> bool:
        """``False``: the lane began to drain meanwhile."""
        try:
            await asyncio.wait_for(self._draining.wait(), delay.total_seconds())
        except TimeoutError:
            return True
        return False

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
