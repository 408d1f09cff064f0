"""Results of calls on other threads."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def result_of(future: Future[Result]) -> Result:
    """Waits for a call, and returns what it returned.

    A future's own ``result`` returns ``None`` where the call raised an exception that is false as a
    truth value, such as one that defines ``__len__``.

    Raises:
        BaseException: what the call raised.
    """
    error = future.exception()
    if error is not None:
        raise error
    return future.result()
