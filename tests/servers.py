"""The folder that the servers of a test session keep their data in, and what stops them all."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

STARTED = "started"


class ServerGuard:
    """A process that outlives the session, even a killed one, and then stops its servers.

    The processes of ``pytest -n`` share the folder; its first process owns the guard.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-tests-"))
        command = [sys.executable, Path(__file__).with_name("server_guard.py"), self.folder]
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def close(self) -> None:
        """Returns when every server has stopped and the folder is gone."""
        with self._guard:
            pass


def stop_at_end(server_folder: Path, folder: Path) -> None:
    """The servers of ``folder`` won't outlive the session."""
    with (server_folder / STARTED).open("a") as started:
        started.write(f"{folder}\n")
