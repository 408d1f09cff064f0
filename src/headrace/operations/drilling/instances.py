"""The processes of a drill: instances of workers, and a driver with all pipelines."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from headrace.runtime.servers.process import ServerProcess

_END = timedelta(seconds=90)
_SESSION = 3
"""Place in /proc/<pid>/stat after the state, see proc_pid_stat(5)."""


class Instance:
    """One process of the drilled project, which is started again and again.

    Args:
        name: of it, for people.
        names: of the worker, or of the pipelines, that it runs.
        command: of headrace, without its name.
        root: the project's folder.
    """

    def __init__(self, name: str, names: Sequence[str], command: Sequence[str], root: Path) -> None:
        self.name, self.names = name, tuple(names)
        self._command = [
            sys.executable,
            "-m",
            "headrace.cli",
            *command,
            "--project",
            str(root),
        ]
        self._process = ServerProcess(name, root.parent / "instances" / name.replace(" ", "-"))
        self._sessions: set[int] = set()

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._process.alive()

    @property
    def last_lines(self) -> str:
        """The end of what it has printed."""
        return self._process.last_lines()

    def start(self) -> None:
        """Starts it, unless it runs."""
        self._process.start(self._command)
        if (pid := self._process.pid) is not None:
            self._sessions.add(pid)

    def stop(self) -> None:
        """Asks it to end, and waits for it."""
        self._process.stop(_END)

    def kill(self) -> None:
        """SIGKILL to it and all processes that it has started, as if its machine had failed."""
        self._process.kill()
        for session in self._sessions:
            _kill_session(session)
        self._sessions.clear()


def _kill_session(session: int) -> None:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[_SESSION]) == session:
                os.kill(int(entry.name), signal.SIGKILL)
