"""Where headrace's own log lines go, and what each of them says beside its message."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

LOG_FORMATS = ("text", "json")

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Of the HTTP request that is being answered; empty outside of one."""

_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s:%(scope)s %(message)s%(left_out)s"
_MAX_WARNINGS = 5
_MAX_INFO_LINES = 60
_WINDOW_SECONDS = 60.0
_MAX_TEMPLATES = 1000
_NUMBER = re.compile(r"\d+")


class Subject(NamedTuple):
    """What log lines are about: ``kind`` is ``pipeline`` or ``worker``."""

    kind: str
    name: str


_SUBJECT: ContextVar[Subject | None] = ContextVar("subject", default=None)


@contextmanager
def logging_about(subject: Subject) -> Iterator[None]:
    """Names ``subject`` in every line that is logged in this context.

    New threads and processes have none: name it again where they start.
    """
    token = _SUBJECT.set(subject)
    try:
        yield
    finally:
        _SUBJECT.reset(token)


def log_to(
    file: Path | None,
    *,
    stderr: bool,
    others: tuple[str, ...] = (),
    log_format: str = "text",
    subject: Subject | None = None,
) -> None:
    """Sends what headrace logs in this process from INFO on to a file, to stderr, or to both.

    What was set up by an earlier call is replaced. A file that is renamed or removed is recreated.
    A line that can't be written to the file goes to standard error, and raises nothing.

    Args:
        file: where lines are appended; None: in no file.
        stderr: write them to standard error too.
        others: loggers of libraries whose lines are written as well.
        log_format: ``text``, or ``json``: one object a line.
        subject: what lines are about that are logged outside of :func:`logging_about`.
    """
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)] if stderr else []
    if file is not None:
        from headrace.runtime.files.log_file import (
            LogFile,  # with sockets: few commands write a log
        )

        file.parent.mkdir(parents=True, exist_ok=True)
        handlers.append(LogFile(file, encoding="utf-8", delay=True))
    for handler in handlers:
        handler.setFormatter(_JsonLine() if log_format == "json" else _Line(_FORMAT))
        handler.addFilter(_Context(subject))
        handler.addFilter(Repeats())
    for name in ("headrace", *others):
        logger = logging.getLogger(name)
        earlier = [handler for handler in logger.handlers if isinstance(handler.formatter, _Line)]
        for handler in earlier:
            logger.removeHandler(handler)
            handler.close()
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


class _JsonLine(_Line):
    def format(self, record: logging.LogRecord) -> str:
        """One JSON object; a traceback is one of its texts."""
        line: dict[str, object] = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "process": record.process,
            "logger": record.name,
            "message": record.getMessage(),
            **vars(record)["context"],
        }
        if left_out := vars(record)["left_out_lines"]:
            line["left_out_lines"] = left_out
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _Context(logging.Filter):
    def __init__(self, subject: Subject | None) -> None:
        super().__init__()
        self._subject = subject

    def filter(self, record: logging.LogRecord) -> bool:
        """Notes what the line is about: a pipeline, a worker, a request."""
        subject, request = _SUBJECT.get() or self._subject, REQUEST_ID.get()
        context = {subject.kind: subject.name} if subject else {}
        scope = f" [{subject.kind} {subject.name}]" if subject else ""
        if request:
            context["request"] = request
            scope += f" [{request}]"
        record.subject, record.context, record.scope = subject, context, scope
        return True


class Repeats(logging.Filter):
    """Lets a line pass a limited number of times a minute; the next one says how many did not.

    Five warnings and errors pass, and sixty lines of INFO. Lines repeat each other when they have
    the same logger, level, template and subject, whatever their values. For messages of libraries,
    which have no template, numbers don't count. Lines that their writer has limited, and marked
    with ``is_limited``, all pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: dict[tuple[object, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line passes."""
        record.left_out, record.left_out_lines = "", 0
        if getattr(record, "is_limited", False):
            return True
        max_lines = _MAX_INFO_LINES if record.levelno < logging.WARNING else _MAX_WARNINGS
        subject = getattr(record, "subject", None)
        key = record.name, record.levelno, _NUMBER.sub("", str(record.msg)), subject
        began, lines = self._windows.get(key, (-_WINDOW_SECONDS, 0))
        now = self._clock()
        if now - began >= _WINDOW_SECONDS:
            if lines > max_lines:
                record.left_out_lines = lines - max_lines
                record.left_out = f" ({lines - max_lines} lines like this were left out)"
            began, lines = now, 0
        if len(self._windows) >= _MAX_TEMPLATES:
            self._windows.clear()
        self._windows[key] = began, lines + 1
        return lines < max_lines
