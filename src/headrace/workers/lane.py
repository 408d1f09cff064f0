"""A lane: the records of one subpartition, in their order, through one task."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from headrace.errors import ProcessingTimeoutError
from headrace.workers.handling import CURRENT, Handling
from headrace.workers.placement import PlacedTask
from headrace.workers.policy import FailurePolicy, Retry, retry_delay
from headrace.workers.states import AT_WORK, LANE, LaneState, follow
from headrace.workers.task import WorkerRecord, WorkerSubpartition, arrow_batch

_STEPS_IN_A_ROW = 32


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
    """Runs one task. Its records are handled in order, and one at a time unless it observes them.

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
        *,
        policy: FailurePolicy,
        config: Mapping[str, Any],
        batch_records: int,
    ) -> None:
        self.subpartition = subpartition
        self.bytes = 0
        self.state = LaneState.STARTING
        self._task, self._host, self._policy = task, host, policy
        self._config, self._batch_records = config, batch_records
        self._queue: deque[Handling] = deque()
        self._current: Handling | None = None
        self._observed: set[Handling] = set()
        self._settling: set[asyncio.Task[None]] = set()
        self._again: deque[Handling] = deque()
        self._punctuate_at: datetime | None = None
        self._timed_out = False
        self._steps = 0
        self._draining = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._woken: asyncio.Future[None] | None = None
        self._runner = self._loop.create_task(self._run())

    @property
    def waiting(self) -> int:
        """Records whose turn has not come."""
        return len(self._queue)

    @property
    def in_process(self) -> int:
        """Records that were given to the task and are not done."""
        return len(self._observed) + (self._current is not None)

    def put(self, record: WorkerRecord) -> int:
        """Another record, after those that wait; its weight in bytes."""
        handling = Handling(record, record.weight, self._told)
        self.bytes += handling.weight
        self._queue.append(handling)
        self._wake()
        return handling.weight

    def ask_again(self) -> None:
        """A held record may be accepted now."""
        if self.state is LaneState.HELD:
            self._wake()

    def punctuate(self, now: datetime) -> None:
        """The task's ``punctuate`` is due; twice at once is once."""
        self._punctuate_at = now
        self._wake()

    def expire(self, started_before: float) -> None:
        """Fails what has been in process since before that moment of the loop's clock."""
        for one in [one for one in self._observed if 0 < one.started < started_before]:
            if one.abandon():
                self._settle(one, self._timeout(one))
        current = self._current
        if current is not None and 0 < current.started < started_before:
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
        await asyncio.wait({self._runner, *self._settling}, timeout=seconds)
        for one in self._observed:
            one.abandon()
        for task in (self._runner, *self._settling):
            task.cancel()
        await asyncio.gather(self._runner, *self._settling, return_exceptions=True)
        self._move(LaneState.CLOSED)

    # -- the records, one after the other ---------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._task.init(self.subpartition, self._config)
            self._move(LaneState.RUNNING)
            while self.state in AT_WORK:
                await self._step()
                await self._give_way()
            await self._until_observed()
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
        elif self._task.is_observed:
            await self._begin(handling)
        elif self._task.process_batch is not None:
            await self._handle_batch(handling)
        else:
            await self._handle(handling)

    def _next(self) -> Handling | None:
        if self._again:
            return self._again.popleft()
        if not self._queue:
            return None
        if self._task.accept is not None and not self._task.accept(self._queue[0].record):
            self._move(LaneState.HELD)
            self._host.held(self)
            return None
        self._move(LaneState.RUNNING)
        return self._queue.popleft()

    async def _handle(self, handling: Handling) -> None:
        """Until the record is done, or no attempt is left, or the lane drains."""
        error = await self._attempt(handling)
        while error is not None:
            again = await self._after(handling, error)
            if again is None:
                return
            handling = again
            error = await self._attempt(handling)
        self._finish(handling)

    async def _after(self, handling: Handling, error: BaseException) -> Handling | None:
        """The next attempt, when its time has come; ``None``: there is none."""
        delay = self._retry_delay(handling, error)
        if delay is None:
            await self._host.give_up(handling, error)
            self._finish(handling)
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

    async def _attempt(self, handling: Handling) -> BaseException | None:
        CURRENT.set(handling)
        handling.started = self._loop.time()
        self._current = handling
        try:
            if self._task.is_observed:
                await self._task.process(handling.record, handling)
                return None
            await self._task.process(handling.record)
            if handling.sends:
                await handling.confirm_sends()
        except asyncio.CancelledError:
            if not self._timed_out:
                raise
            return self._timed(handling)
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            return error
        finally:
            self._current = None
        return None

    async def _handle_batch(self, first: Handling) -> None:
        batch = [first]
        while self._queue and len(batch) < self._batch_records:
            batch.append(self._queue.popleft())
        error = await self._attempt_batch(batch)
        for one in batch:
            if error is None:
                self._finish(one)
            elif self.state is not LaneState.DRAINING:
                await self._handle(one)

    async def _attempt_batch(self, batch: list[Handling]) -> BaseException | None:
        first = batch[0]
        CURRENT.set(first)
        first.started = self._loop.time()
        self._current = first
        try:
            await self._task.process_batch(arrow_batch([one.record for one in batch]))  # type: ignore[misc]
            await first.confirm_sends()
        except asyncio.CancelledError:
            if not self._timed_out:
                raise
            return self._timed(first)
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            return error
        finally:
            self._current = None
        return None

    # -- records that an observer ends ------------------------------------------------------------

    async def _begin(self, handling: Handling) -> None:
        self._observed.add(handling)
        error = await self._attempt(handling)
        if error is not None and handling.abandon():
            self._settle(handling, error)

    def _told(self, handling: Handling, error: BaseException | None) -> None:
        """An observer was told, on whatever thread."""
        if threading.get_ident() == self._thread:
            self._hear(handling, error)
        else:
            self._loop.call_soon_threadsafe(self._hear, handling, error)

    def _hear(self, handling: Handling, error: BaseException | None) -> None:
        if error is None and not handling.sends:
            self._end_observed(handling)
        else:
            self._settle(handling, error)

    def _settle(self, handling: Handling, error: BaseException | None) -> None:
        task = self._loop.create_task(self._settled(handling, error))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settled(self, handling: Handling, error: BaseException | None) -> None:
        """The end of an attempt that did not simply succeed."""
        try:
            if error is None:
                error = await _failure_of(handling)
            if error is None:
                self._end_observed(handling)
                return
            await self._after_observed(handling, error)
        except Exception as broken:  # noqa: BLE001 - it stops at failures, or no letter is written
            self._observed.discard(handling)
            self._break(broken)

    async def _after_observed(self, handling: Handling, error: BaseException) -> None:
        delay = self._retry_delay(handling, error)
        if delay is None:
            await self._host.give_up(handling, error)
            self._end_observed(handling)
            return
        handling.started = 0.0
        if await self._delay(delay):
            self._observed.discard(handling)
            self._again.append(handling.again())
            self._wake()

    def _end_observed(self, handling: Handling) -> None:
        if handling in self._observed:
            self._observed.discard(handling)
            self._finish(handling)
            self._wake()

    async def _until_observed(self) -> None:
        while any(one.started for one in self._observed):
            await self._sleep()

    # -- ends and waits ---------------------------------------------------------------------------

    def _finish(self, handling: Handling) -> None:
        self.bytes -= handling.weight
        self._host.finished(self, handling)

    def _timed(self, handling: Handling) -> ProcessingTimeoutError:
        """The runner was cancelled for this attempt's sake, and goes on."""
        self._timed_out = False
        self._runner.uncancel()
        return self._timeout(handling)

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
            await self._task.close()
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            self._host.broke(error)

    def _enter(self, state: LaneState) -> None:
        self.state = follow(self.state, state, LANE)

    def _move(self, state: LaneState) -> None:
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


async def _failure_of(handling: Handling) -> BaseException | None:
    try:
        await handling.confirm_sends()
    except Exception as error:  # noqa: BLE001 - whatever the broker answered
        return error
    return None
