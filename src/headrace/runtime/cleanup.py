"""Deletes partial output on failure, and raises the original error again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger("headrace.runtime")


@contextmanager
def cleaning_up_after_failure(*cleanups: Callable[[], object]) -> Iterator[None]:
    """Calls every one of ``cleanups`` if the body raises, and raises the body's error again.

    What failed often keeps the cleanup from succeeding too, such as a server that is down. A
    cleanup that raises is logged: in place of the error it would hide why the work failed, and
    whether it is worth waiting for. Nothing depends on it: what is left is in no commit.
    """
    try:
        yield
    except BaseException as error:
        for cleanup in cleanups:
            try:
                cleanup()
            except Exception as failure:  # noqa: BLE001  whatever it is, the body's error counts
                _LOG.warning(
                    "Cannot delete what was written before %s: %s", type(error).__name__, failure
                )
        raise
