"""Resources of the host that a service reserves before it starts: a lock, open files."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ServerStartError, ServiceRunningError
from headrace.runtime.files.file_locks import ProcessLock
from headrace.settings import IngestSettings

_OTHER_FILES = 256  # of a worker: Kafka's connections, the spool, counters, libraries


@contextlib.contextmanager
def only_service(state: Path, address: str) -> Iterator[None]:
    """Reserves the folder that workers share for one service, as long as its process lives.

    Args:
        state: the folder.
        address: where the service answers, for :func:`running_service`.

    Raises:
        ServiceRunningError: if another service has the folder.
    """
    lock = _lock(state)
    if not lock.try_acquire(address=address):
        holder = lock.holder()
        raise ServiceRunningError(str(state), str(holder.process.pid) if holder else "")
    try:
        yield
    finally:
        lock.release()


def running_service(state: Path) -> tuple[int, str] | None:
    """Returns the process id and the address of the service that has the folder, if one runs."""
    holder = _lock(state).holder()
    return (holder.process.pid, holder.facts["address"]) if holder else None


def _lock(state: Path) -> ProcessLock:
    return ProcessLock(state / "service.lock", 0o600)


def allow_connections(settings: IngestSettings) -> None:
    """Raises the process's limit of open files to what its connections need.

    At that limit, new connections would wait without any message.

    Raises:
        ServerStartError: if the system's own limit is lower.
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
