"""An event loop whose clock stands still until it is moved."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_ORIGIN = 1_000.0  # lanes read a time of 0 as "never"
# Below that, a timer is a pause between two steps, such as of rechecks, not a time that tests mean.
_SOON_SECONDS = 0.001


class SteppedLoop(asyncio.SelectorEventLoop):
    """Runs everything that can happen now, then stops. Its clock is moved by :meth:`advance` alone.

    What runs outside the loop takes real time: threads of ``asyncio.to_thread``, and whatever
    ``is_busy`` knows. The loop waits for it, for ``patience`` seconds without an event at most,
    before it moves its clock or stops. Timers of less than a millisecond are due at once.

    Attributes:
        is_busy: called with whether sockets are open; says whether something outside is awaited.
    """

    def __init__(self, patience: float) -> None:
        self.is_busy: Callable[[bool], bool] = lambda _: False
        self._patience = patience
        # Two clocks: the loop's own, and the one that tests see, which is without rounding (moved).
        self._now = self._target = _ORIGIN
        self._rounded_up = self._waits_until = 0.0
        self._executing: set[asyncio.Future[Any]] = set()
        self._idle_selector = _IdleSelector(self._next_wait, self._extend_wait)
        super().__init__(self._idle_selector)
        self._own_files = len(self._idle_selector.get_map())

    def time(self) -> float:
        """Returns seconds on the loop's clock."""
        return self._now

    @property
    def moved(self) -> float:
        """Seconds that the clock was moved by since the loop was made."""
        return self._now - _ORIGIN - self._rounded_up

    def advance(self, seconds: float = 0.0) -> None:
        """Moves the clock; each timer runs at its own time, with all that follows from it."""
        self._target = self._now + seconds
        self._extend_wait()
        self.run_forever()

    def complete(self, coroutine: Coroutine[Any, Any, Result], seconds: float = 0.0) -> Result:
        """Returns what ``coroutine`` returned; its timers may move the clock by ``seconds``.

        Raises:
            TimeoutError: if it has not ended then; it is cancelled.
        """
        task = self.create_task(coroutine)
        task.add_done_callback(lambda _: self.stop())
        self.advance(seconds)
        if not task.done():
            task.cancel()
            self.advance()
            raise TimeoutError(f"{coroutine!r} did not end")
        return task.result()

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[Arguments]], Result],
        *args: *Arguments,
    ) -> asyncio.Future[Result]:
        """Runs ``func`` on a thread, which the loop waits for."""
        future = super().run_in_executor(executor, func, *args)
        self._executing.add(future)
        future.add_done_callback(self._executing.discard)
        return future

    def _next_wait(self, until_timer: float | None) -> float:
        """Nothing can happen now: moves the clock, stops, or returns how long to wait in fact."""
        # The clock is moved, not waited for: code that compares times before and after a pause must
        # see it pass. `moved` subtracts what was added.
        if until_timer is not None and until_timer <= _SOON_SECONDS:
            self._now += until_timer
            self._rounded_up += until_timer
            return 0.0
        has_sockets = len(self._idle_selector.get_map()) > self._own_files
        # Threads and sockets first: if the clock were moved past them, they would miss deadlines
        # that they are in time for.
        patience_left = self._waits_until - time.monotonic()
        if patience_left > 0 and (self._executing or self.is_busy(has_sockets)):
            return patience_left
        left = self._target - self._now
        if left > 0:
            # To the next timer and no further: it may set another, before those that follow.
            self._now += left if until_timer is None else min(until_timer, left)
        else:
            self.stop()
        return 0.0

    def _extend_wait(self) -> None:
        self._waits_until = time.monotonic() + self._patience


class _IdleSelector(selectors.DefaultSelector):
    """Waits only when the loop says so, and reports events to it."""

    def __init__(
        self, next_wait: Callable[[float | None], float], on_event: Callable[[], None]
    ) -> None:
        super().__init__()
        self._next_wait, self._on_event = next_wait, on_event

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Asked without waiting first: events that are there come before any move of the clock.
        events = super().select(0)
        if not events and (timeout is None or timeout > 0):
            events = super().select(self._next_wait(timeout))
        if events:
            self._on_event()
        return events
