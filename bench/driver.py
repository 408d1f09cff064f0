"""A system under test as a process of its own, with its Spark session warm across runs."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from bench.setup import Setup
from bench.usage import end_tree

OnCommit = Callable[[int], None]
WriteOnce = Callable[[Path, OnCommit], None]
Open = Callable[[Setup], WriteOnce]
"""Starts the system; what it returns writes the whole topic into an empty folder, blocking, and
says after each commit how many messages are committed by then."""

STOP_SECONDS = 20.0
_ENDED = 0


class SystemFailedError(RuntimeError):
    """A system under test did not do its work; the message is its own traceback."""


class OutputWrongError(RuntimeError):
    """A run did not write every event exactly once."""


class Driver:
    """The process of one system, ``pid`` the root of its tree; ``run`` may be called again.

    Attributes:
        commits: of the newest run: when it was told of each, and the messages committed by then.
        only_looks: the system is its children; what it uses to look at them is not the system's.
    """

    def __init__(self, name: str, start: Open, setup: Setup, log: Path) -> None:
        self.name = name
        self._log = log
        self.commits: list[tuple[float, int]] = []
        self.only_looks = False
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, start, setup, log))
        self._process.start()
        theirs.close()
        self.pid = self._process.pid or 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Nothing of it is left when this returns; it may be called again."""
        if not self._pipe.closed:
            self._pipe.close()
            end_tree(self.pid, STOP_SECONDS)
            self._process.join()

    def await_ready(self) -> None:
        """Returns once its session has started."""
        self._answer()

    def begin(self, out: Path) -> None:
        """Starts to write the topic into ``out``, which must not exist."""
        self.commits = []
        self._pipe.send(out)

    def await_committed(self, least: int = 1) -> int:
        """Returns at the first commit from now on that makes it ``least`` messages or more.

        Returns:
            The messages that are committed.

        Raises:
            SystemFailedError: with its own traceback, or because it ended with fewer.
        """
        while (committed := self._answer()) < least:
            if committed == _ENDED:
                raise SystemFailedError(f"{self.name}: it ended before {least} were committed")
        return committed

    def finish(self) -> None:
        """Returns when the rest is written. Raises as :meth:`await_committed`."""
        while self._answer() != _ENDED:
            pass

    def _answer(self) -> int:
        try:
            answer: int | str = self._pipe.recv()
        except EOFError:
            answer = f"it ended; its log is {self._log}"
        if isinstance(answer, str):
            raise SystemFailedError(f"{self.name}: {answer}")
        if answer != _ENDED:
            self.commits.append((time.monotonic(), answer))
        return answer


def _serve(pipe: Connection, start: Open, setup: Setup, log: Path) -> None:
    """The child: on its own it ends with its parent, whose end of the pipe closes."""
    os.setsid()  # Ctrl-C is the parent's to hear
    _speak_into(log)
    os.environ.update(setup.java)
    try:
        write_once = start(setup)
        pipe.send(_ENDED)
        while True:
            out: Path = pipe.recv()
            out.mkdir(parents=True)
            write_once(out, pipe.send)
            pipe.send(_ENDED)
    except EOFError:
        return
    except Exception:  # noqa: BLE001  whatever it was, the parent says it
        pipe.send(traceback.format_exc())


def _speak_into(log: Path) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
