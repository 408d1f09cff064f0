"""What a service needs for itself on its host, before it starts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ServerStartError, ServiceRunningError
from headrace.settings import IngestSettings

_LOCK_FILE = "service.lock"
_OTHER_FILES = 256  # of a worker: Kafka's connections, the spool, counters, libraries


@contextlib.contextmanager
def only_service(state: Path) -> Iterator[None]:
    """Keeps the folder that workers share for one service, as long as its process lives.

    Raises:
        ServiceRunningError: another one has it.
    """
    state.mkdir(parents=True, exist_ok=True)
    with (state / _LOCK_FILE).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ServiceRunningError(str(state), file.read().strip()) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def allow_connections(settings: IngestSettings) -> None:
    """Raises the process's limit of open files to what its connections need.

    At that limit, new connections would wait without a word.

    Raises:
        ServerStartError: the system's own limit is lower.
    """
    needed = settings.max_connections // settings.workers + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        reason = (
            f"a process may open {hard} files (`ulimit -Hn`), and a worker needs {needed} for "
            f"ingest.max_connections = {settings.max_connections} over {settings.workers} "
            "worker(s); raise the one or lower the other"
        )
        raise ServerStartError("ingest", reason, "")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
