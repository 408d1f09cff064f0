"""Failed attempts in the log: what failed, at which record, and where in the user's code."""

from __future__ import annotations

import logging
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from headrace.runtime.error_text import exc_info, traceback_of
from headrace.workers.tasks.task import WorkerRecord

_LOG = logging.getLogger("headrace.workers")
_MAX_IN_A_SPAN = 10  # tracebacks are long, and the first few say what is wrong
_SPAN_SECONDS = 10.0
_LIMITED = {"is_limited": True}  # limited here, so exempt from the limit on other repeated lines
_NOT_THE_USERS = tuple(
    {
        str(Path(__file__).parents[1]),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        "<frozen ",
    }
)


class FailureLog:
    """Logs failed attempts with their traceback: up to 10 in 10 seconds; of others, the number.

    Args:
        worker: its name.
        clock: seconds, of any origin.
    """

    def __init__(self, worker: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._worker, self._clock = worker, clock
        self._span_ends = float("-inf")
        self._logged = self._left_out = 0

    def failed(self, record: WorkerRecord, error: BaseException) -> None:
        """An attempt failed."""
        now = self._clock()
        if now >= self._span_ends:
            self._span_ends, self._logged = now + _SPAN_SECONDS, 0
            if self._left_out:
                left_out, self._left_out = self._left_out, 0
                message = "%s: %d more attempts failed, not logged"
                _LOG.warning(message, self._worker, left_out, extra=_LIMITED)
        if self._logged >= _MAX_IN_A_SPAN:
            self._left_out += 1
            return
        self._logged += 1
        _LOG.warning(
            "%s: attempt %d at %s failed",
            self._worker,
            record.attempt,
            record,
            exc_info=exc_info(error),
            extra=_LIMITED,
        )


def raised_at(error: BaseException) -> str:
    """Returns file and line in the user's own code that ``error`` came from; empty: in none."""
    frames = traceback.extract_tb(traceback_of(error))
    own = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_USERS)]
    if not own:
        return ""
    return f"{_shortened(own[-1].filename)}:{own[-1].lineno}, in {own[-1].name}"


def _shortened(file: str) -> str:
    """Relative to where modules are imported from, where it is below that."""
    roots = [Path(root).absolute() for root in sys.path]
    below = [Path(file).relative_to(root) for root in roots if Path(file).is_relative_to(root)]
    return str(min(below, key=lambda path: len(path.parts), default=file))
