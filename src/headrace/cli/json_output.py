"""Output for programs: a JSON document; from a command that keeps running, one on each line."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO

import click

from headrace.cli.encoding import print_json
from headrace.cli.output import Live, Observer
from headrace.errors import HeadraceError, ProjectError

_STDOUT, _STDERR = 1, 2


class JsonOutput:
    """See :class:`headrace.cli.output.Output`. Everything goes to stdout but warnings.

    While progress is shown, nothing else does: what tasks and steps print, in this process or one
    that it starts, goes to stderr.
    """

    def __init__(self) -> None:
        self._reserved: TextIO | None = None
        # Progress and the reaction to a signal are shown on two threads; text streams are no
        # more than their buffers safe for that.
        self._lock = threading.Lock()

    def show(self, result: object) -> None:
        with self._lock:
            print_json(result, self._reserved or sys.stdout)

    @contextmanager
    def live(self, progress: Live[Observer]) -> Iterator[Observer]:
        with _reserved_stdout() as reserved:
            self._reserved = reserved
            try:
                with progress.in_json(self.show) as observer:
                    yield observer
            finally:
                self._reserved = None

    def warn(self, text: str) -> None:
        click.echo(text, err=True)

    def failed(self, error: HeadraceError) -> None:
        kind = getattr(error, "code", type(error).__name__)
        problems = error.problems if isinstance(error, ProjectError) else ()
        # On stdout, as results are: a program reads one stream, and the exit code says which it is.
        self.show({"error": kind, "message": str(error), "problems": problems})

    def crashed(self, error: BaseException, log: Path) -> None:
        self.show({"error": type(error).__name__, "message": str(error), "log": log})


@contextmanager
def _reserved_stdout() -> Iterator[TextIO]:
    stdout = sys.stdout
    if not _is_of_process(stdout):
        with redirect_stdout(sys.stderr):
            yield stdout
        return
    # What is buffered must not go to stderr after the switch.
    stdout.flush()
    kept = os.dup(_STDOUT)
    # Processes that are started meanwhile have the descriptor, not Python's object.
    os.dup2(_STDERR, _STDOUT)
    try:
        with open(kept, "w", encoding="utf-8", closefd=False) as reserved:
            yield reserved
    finally:
        stdout.flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _is_of_process(stream: TextIO) -> bool:
    try:
        return stream.fileno() == _STDOUT
    except (OSError, ValueError):  # a replacement, such as that of a test
        return False
