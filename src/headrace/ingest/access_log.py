"""The access log: a line for each answer, beside the project's log."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.ingest.http.request import Request
from headrace.runtime.files.log_file import LogFile

_LOG = logging.getLogger("headrace.ingest")
_MAX_CHARACTERS = 200
_PLAIN = re.compile(r"[!#-<>-~]+")

LineFormat = Callable[[Mapping[str, Any]], str]


class AccessLog:
    """Writes a line for each answer, in the order of the answers, in JSON or as ``key=value``.

    Of each kind of answer (2xx, 4xx, 5xx) each worker writes ``max_lines`` a second, so that a
    flood of one kind neither fills the disk nor hides the others; the next line of the kind says
    in ``left_out`` how many lines are missing before it. Addresses are logged without their query,
    where public keys stand.

    A line that can't be written is left out with a warning in the project's log: no request fails
    for it. The file may be renamed or removed at any time; the next line creates it again.
    """

    def __init__(
        self, file: Path, line: LineFormat, max_lines: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._file = _File(file, encoding="utf-8", delay=True)
        self._line, self._max_lines, self._clock = line, max_lines, clock
        self._windows: dict[int, tuple[int, int]] = {}
        self._left_out: dict[int, int] = {}

    def write(self, request: Request, status: int, seconds: float) -> None:
        """Writes the line of a request that was answered after so many seconds."""
        now, kind = self._clock(), status // 100
        second, lines = self._windows.get(kind, (0, 0))
        if second != int(now):
            second, lines = int(now), 0
        if lines >= self._max_lines:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._windows[kind] = second, lines + 1
        facts = _facts(request, status, seconds, now)
        if left_out := self._left_out.pop(kind, 0):
            facts["left_out"] = left_out
        self._file.emit(logging.makeLogRecord({"msg": self._line(facts)}))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class _File(LogFile):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        del record
        _LOG.warning("Cannot write to the access log %s: %s", self.baseFilename, sys.exc_info()[1])


def json_line(facts: Mapping[str, Any]) -> str:
    """Returns the facts as one JSON object."""
    return json.dumps(facts, separators=(",", ":"))


def text_line(facts: Mapping[str, Any]) -> str:
    """Returns the facts as ``key=value``, with values in quotes where they are no plain word."""
    return " ".join(f"{name}={_word(value)}" for name, value in facts.items())


LINES: Mapping[str, LineFormat] = {"json": json_line, "text": text_line}


def _word(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _facts(request: Request, status: int, seconds: float, now: float) -> dict[str, Any]:
    """Returns what a line says; facts that do not apply have no key."""
    time_text = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    facts: dict[str, Any] = {
        "time": time_text.replace("+00:00", "Z"),
        "request_id": request.id,
        "method": request.method,
        "path": request.path,
        "status": status,
        "milliseconds": round(seconds * 1000, 1),
        "received_bytes": request.received_bytes,
        "accepted": request.accepted,
        "rejected": request.rejected,
        "topic": request.topic,
        "peer": request.peer,
        "forwarded_for": request.header(b"x-forwarded-for"),
        "origin": request.header(b"origin"),
        "user_agent": request.header(b"user-agent"),
    }
    if request.token is not None:
        facts |= {"token": request.token.public_id, "account": request.token.account}
    return {
        name: value[:_MAX_CHARACTERS] if isinstance(value, str) else value
        for name, value in facts.items()
        if value != ""
    }
