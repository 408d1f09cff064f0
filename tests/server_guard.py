"""Stops the servers of a test session when the session is gone, whatever ended it.

Run by ``tests/servers.py`` as a process of its own. Its argument is the folder whose file
``started`` has a folder a line; when the session closes the pipe (its death does that too), it
stops what runs in them and removes its own folder.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

# Imported at the start: at the end, the checkout may be gone.
from headrace.kafka.embedded.cluster import stop_cluster
from headrace.runtime.servers.hdfs import stop_hdfs
from headrace.runtime.servers.process import ServerProcess


def _stop_postgres(folder: Path) -> None:
    lock = folder / "data" / "postmaster.pid"
    if lock.exists():
        os.kill(int(lock.read_text().split()[0]), signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


def _kill(pid_file: Path) -> None:
    if pid_file.exists():
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


def _stop(folders: list[Path]) -> None:
    for folder in folders:
        stop_cluster(folder)
        stop_hdfs(folder)
        _stop_postgres(folder)
        _kill(folder / "redis.pid")
        ServerProcess("Cassandra", folder).kill()
        ServerProcess("s3", folder / "s3").kill()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    own = Path(sys.argv[1])
    started = own / "started"
    if started.exists():
        _stop([Path(line) for line in dict.fromkeys(started.read_text().splitlines())])
    shutil.rmtree(own, ignore_errors=True)


if __name__ == "__main__":
    main()
