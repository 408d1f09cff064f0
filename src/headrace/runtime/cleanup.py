"""Deletes partial output on failure, and raises the original error again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOG = logging.getLogger("headrace.runtime")


@contextmanager
def cleaning_up_after_failure(*cleanups: Callable[[], object]) -> Iterator[None]:
    """Calls every one of ``cleanups`` if the body raises, and raises the body's error again.

    The cause of the failure, such as a server that is down, often makes the cleanup fail too. A
    cleanup that raises is only logged: its error would hide why the work failed, and whether a
    retry can help. Nothing depends on the cleanup: no commit contains what is left.
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
