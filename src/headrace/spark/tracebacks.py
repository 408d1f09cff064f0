"""Exceptions of Python functions of the project, in what Spark passes on of a task."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path
from typing import NamedTuple

from headrace.errors import StepError

_LIBRARIES = (*sysconfig.get_paths().values(), str(Path(__file__).parents[1]))
# Tasks run on other machines, whose Python need not be where this one is.
_FOREIGN = re.compile(r"/(?:site|dist)-packages/|/lib/python3|pyspark\.zip|^<")
_FRAME = re.compile(r'^ *File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>\S+)', re.MULTILINE)
_RAISED = re.compile(r"^(?P<error>[A-Za-z_][\w.]*(?:: .*)?)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):\n"


class TracebackLine(NamedTuple):
    """A line of a traceback."""

    file: str
    line: int
    name: str

    @property
    def is_users(self) -> bool:
        """Whether it is the project's own: no library's, not Python's, not headrace's."""
        return not self.file.startswith(_LIBRARIES) and not _FOREIGN.search(self.file)


class _Raised(NamedTuple):
    """An exception of a traceback: where it was raised, and its class and message."""

    at: TracebackLine
    problem: str


def raised_in_step(text: str) -> StepError | None:
    """The error of a Python function of the project's, in what Spark passes on of a task.

    ``None`` where something else failed: also where a library raised that the function called,
    since what is behind it may pass (an unreachable server).
    """
    raised = _last_raised(text)
    if raised is None or not raised.at.is_users:
        return None
    at = raised.at
    return StepError(at.name, raised.problem or "an exception", f"{at.file}:{at.line}")


def raised_type(text: str) -> str:
    """Returns the class of the exception in what Spark passes on of Python; empty without one."""
    raised = _last_raised(text)
    return "" if raised is None else raised.problem.partition(":")[0].rpartition(".")[2]


def _last_raised(text: str) -> _Raised | None:
    _, traceback_start, rest = text.rpartition(_TRACEBACK)
    frames = [
        TracebackLine(match["file"], int(match["line"]), match["name"])
        for match in _FRAME.finditer(rest)
    ]
    if not traceback_start or not frames:
        return None
    last = frames[-1]
    raised = _RAISED.search(rest, rest.index(f'"{last.file}", line {last.line}, in {last.name}'))
    return _Raised(last, raised["error"].strip() if raised else "")
