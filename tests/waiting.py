"""Waits for what other threads, processes and servers do: for a condition, with one limit."""

import asyncio
from collections.abc import Callable
from time import monotonic, sleep  # which no test replaces by a clock of its own
from typing import TypeVar

LIMIT_SECONDS = 300
"""The limit of each wait but those of ``wait_for_drill``: more than the busiest machine needs."""
DRILL_LIMIT_SECONDS = 600
FLUSH_SECONDS = 170
"""For ``flush``: less than the message timeout, after which nothing is left to flush."""

State = TypeVar("State")
What = str | Callable[[], object]
IT = "what the test waits for"


def wait_for(condition: Callable[[], State], what: What = IT) -> State:
    """Asks again and again, and returns the first answer that is true.

    ``what``: said when none comes, with the last answer; a function is called then.
    """
    return _wait_for(condition, _Limit(what, LIMIT_SECONDS))


def wait_for_drill(condition: Callable[[], State], what: What = IT) -> State:
    """As ``wait_for``, for the work of a whole drill, which may be a million events."""
    return _wait_for(condition, _Limit(what, DRILL_LIMIT_SECONDS))


async def until(
    condition: Callable[[], State], what: What = IT, *, on_thread: bool = False
) -> State:
    """As ``wait_for``, with the event loop at work; ``on_thread``: while it is asked, too."""
    limit = _Limit(what, LIMIT_SECONDS)
    while True:
        began = monotonic()
        state = await asyncio.to_thread(condition) if on_thread else condition()
        if state:
            return state
        await asyncio.sleep(limit.pause_seconds(state, began))


def _wait_for(condition: Callable[[], State], limit: "_Limit") -> State:
    while True:
        began = monotonic()
        if state := condition():
            return state
        sleep(limit.pause_seconds(state, began))


class _Limit:
    """How long until the next look: at most a tenth of the time is spent on looks."""

    def __init__(self, what: What, seconds: float) -> None:
        self._what, self._seconds = what, seconds
        self._deadline = monotonic() + seconds
        self._least_pause = 0.001

    def pause_seconds(self, state: object, began: float) -> float:
        now = monotonic()
        assert now < self._deadline, self._failure(state)
        self._least_pause = min(2 * self._least_pause, 0.01)
        return max(self._least_pause, min(9 * (now - began), 0.5))

    def _failure(self, state: object) -> str:
        what = self._what() if callable(self._what) else self._what
        return f"waited {self._seconds} s for {what}; the last answer is {state!r}"
