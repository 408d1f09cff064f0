"""A server that tests run as a process of their own, and may kill or freeze."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path


class ServerProcess:
    """Its subclass starts ``_process``, and writes its id to ``pid_file``.

    Args:
        folder: of its files.
        pid_file: name of the file there.
    """

    def __init__(self, folder: Path, pid_file: str) -> None:
        self.folder, self._pid_file = folder, pid_file
        self._process: subprocess.Popen[bytes] | None = None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and waits until it is gone; it may not have been started."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        (self.folder / self._pid_file).unlink(missing_ok=True)
