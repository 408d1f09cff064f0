"""Calls that are repeated after errors that may pass: what each sink does when a server is busy.

The libraries for it bring policies, hooks and asyncio into each Python worker, for one loop.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Result = TypeVar("_Result")


def retry(
    call: Callable[[], _Result],
    transient: type[Exception] | tuple[type[Exception], ...],
    delays: Iterable[float],
    max_seconds: float = math.inf,
) -> _Result:
    """Returns what ``call`` returns, which is called again after transient errors.

    Args:
        call: what an earlier call did must not hinder a later one.
        transient: classes of the errors; others are raised at once.
        delays: before each call but the first, in seconds. The error that none follows is raised.
        max_seconds: after the first call began, no other one begins later.
    """
    deadline = time.monotonic() + max_seconds
    for delay in delays:
        try:
            return call()
        except transient:
            if time.monotonic() + delay > deadline:
                raise
        time.sleep(delay)
    return call()


def back_off(first: float, longest: float) -> Iterator[float]:
    """Yields delays without end, each twice the one before it, up to the longest."""
    delay = first
    while True:
        yield delay
        delay = min(2 * delay, longest)
