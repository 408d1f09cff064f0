"""Where headrace's own log lines go, and what each of them says beside its message."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Of the HTTP request that is being answered; empty outside of one."""

_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s:%(scope)s %(message)s%(left_out)s"
_FIRST_LINES = 5
_WINDOW_SECONDS = 60.0
_MOST_TEMPLATES = 1000
_NUMBER = re.compile(r"\d+")


def log_to(file: Path | None, *, stderr: bool, others: tuple[str, ...] = ()) -> None:
    """Sends what headrace logs in this process from INFO on to a file, to stderr, or to both.

    What was set up by an earlier call is replaced. A file that is renamed or removed is made anew.
    ``others`` are loggers of libraries.
    """
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)] if stderr else []
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(WatchedFileHandler(file, encoding="utf-8", delay=True))
    for handler in handlers:
        handler.setFormatter(_Line(_FORMAT))
        handler.addFilter(_InScope())
        handler.addFilter(Repeats())
    for name in ("headrace", *others):
        logger = logging.getLogger(name)
        for old in [one for one in logger.handlers if isinstance(one.formatter, _Line)]:
            logger.removeHandler(old)
            old.close()
        for handler in handlers:
            logger.addHandler(handler)
        logger.setLevel(logging.INFO)


class _Line(logging.Formatter):
    def formatTime(  # noqa: N802 - the library's name
        self, record: logging.LogRecord, datefmt: str | None = None
    ) -> str:
        """RFC 3339, in UTC, to the millisecond."""
        del datefmt
        at = datetime.fromtimestamp(record.created, UTC)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _InScope(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """Notes the request that is being answered."""
        request = REQUEST_ID.get()
        record.scope = f" [{request}]" if request else ""
        return True


class Repeats(logging.Filter):
    """Of warnings and errors that repeat, five a minute pass; the next one says how many did not.

    Lines repeat each other when they have the same logger, level and template, whatever their
    values. For messages of libraries, which have no template, numbers don't count. Lines that
    their writer has limited, and marked with ``is_limited``, all pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line passes."""
        record.left_out = ""
        if record.levelno < logging.WARNING or getattr(record, "is_limited", False):
            return True
        key = record.name, record.levelno, _NUMBER.sub("", str(record.msg))
        began, lines = self._windows.get(key, (-_WINDOW_SECONDS, 0))
        now = self._clock()
        if now - began >= _WINDOW_SECONDS:
            if lines > _FIRST_LINES:
                record.left_out = f" ({lines - _FIRST_LINES} lines like this were left out)"
            began, lines = now, 0
        if len(self._windows) >= _MOST_TEMPLATES:
            self._windows.clear()
        self._windows[key] = began, lines + 1
        return lines < _FIRST_LINES
