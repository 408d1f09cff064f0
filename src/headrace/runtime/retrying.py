"""Retries of calls after transient errors, such as those of a busy server.

The libraries for it bring policies, hooks and asyncio into each Python worker, for one loop.
"""

from __future__ import annotations

import math
import random
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
    """Returns the result of ``call``, which is called again after transient errors.

    Args:
        call: must be idempotent.
        transient: classes of the errors that are retried; others are raised at once.
        delays: seconds to wait before each retry. The error of the last retry is raised.
        max_seconds: no call starts later than this after the first one.
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


def exponential_backoff(
    first_seconds: float, max_seconds: float, rand: Callable[[], float] = random.random
) -> Iterator[float]:
    """Yields delays in seconds without end: the first, then twice the last, up to the maximum.

    Each is shortened by up to a half, at random, so that clients that failed at the same moment
    do not retry at the same moment.

    Args:
        first_seconds: of the first delay, before it is shortened.
        max_seconds: of the longest one.
        rand: returns a random number from 0 to 1; 0: the delay is not shortened.
    """
    delay = first_seconds
    while True:
        yield delay * (1 - rand() / 2)
        delay = min(2 * delay, max_seconds)
