"""Processes that are killed, frozen and started again, each in a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from headrace.runtime.servers.process import child_environ

_STOP_SECONDS = 90.0
_SESSION, _INODE, _LOCAL, _REMOTE = 3, 9, 1, 2


class Member:
    """One process of a system, which outlives its own lives: it is started again and again.

    Args:
        name: for messages.
        command: its command line.
        log: the file of what it says.
        folder: its working directory.
        environ: more variables of its environment.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        folder: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self.log = name, log
        self._command, self._folder = command, folder
        self._environ = child_environ() | dict(environ or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._is_frozen = False

    @property
    def has_ended(self) -> bool:
        """Whether it was started and has ended by itself, or was killed."""
        return self._process is not None and self._process.poll() is not None

    @property
    def is_started(self) -> bool:
        """Whether it runs, or should run."""
        return self._process is not None

    def start(self) -> None:
        """Starts it; no-op for one that runs."""
        if self._process is not None and self._process.poll() is None:
            return
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                env=self._environ,
                start_new_session=True,
            )
        self._is_frozen = False

    def kill(self) -> None:
        """Ends it and all that it started, with SIGKILL."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self) -> None:
        """Ends it. What is frozen is killed, as is what has not ended in time.

        An interruption leaves nothing that runs: who waits for a process may be stopped, too.
        """
        if self._process is not None:
            try:
                if not self._is_frozen:
                    self._process.terminate()
                    self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            finally:
                self.kill()
        self._process = None

    def freeze(self) -> None:
        """Stops it and all that it started where they are, until :meth:`thaw`."""
        self._signal(signal.SIGSTOP)
        self._is_frozen = True

    def thaw(self) -> None:
        """Lets it continue."""
        self._signal(signal.SIGCONT)
        self._is_frozen = False

    def _signal(self, number: signal.Signals) -> None:
        """Sends a signal to it and to all that it started."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def pids(self) -> list[int]:
        """Returns the processes of its session."""
        if self._process is None:
            return []
        return [pid for pid, session in _sessions() if session == self._process.pid]

    def has_connection(self, port: int, server_port: int) -> bool:
        """Returns whether it has a connection from one port to that of a server."""
        inodes = {f"socket:[{inode}]" for inode in _sockets(port, server_port)}
        return any(inodes & set(_open_files(pid)) for pid in self.pids())


def _sessions() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            yield int(entry.name), int(fields[_SESSION])


def _open_files(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(entry.readlink())


def _sockets(port: int, server_port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            ports = tuple(int(fields[at].rpartition(":")[2], 16) for at in (_LOCAL, _REMOTE))
            if ports == (port, server_port):
                yield fields[_INODE]
