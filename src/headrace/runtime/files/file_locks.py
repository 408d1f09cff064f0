"""Locks between the processes of a machine.

The locks are ``flock``'s: they belong to an open file, and the kernel frees them when that is
closed, so also when its holder is killed. No lock is left behind, and none has to be broken.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headrace.runtime.servers.process import ProcessIdentity


class FileLock:
    """The lock of an open file, which waits where it is held elsewhere.

    Two files that were opened apart exclude each other, in one process as in two. Do not enter one
    lock twice: the first exit would give it back.
    """

    __slots__ = ("_file",)

    def __init__(self, file: int) -> None:
        """Locks by the descriptor of an open file, which its owner closes."""
        self._file = file

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def try_acquire(self) -> bool:
        """Takes the lock until the file is closed; ``False`` where it is held elsewhere."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def open_lock_file(path: Path, mode: int = 0o666) -> int:
    """Returns a descriptor of the file, which is created with its folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Waits for the lock of the file ``path``, and holds it inside the ``with`` block."""
    file = open_lock_file(path)
    try:
        with FileLock(file):
            yield
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that holds a lock, and what it said of itself."""

    process: ProcessIdentity
    facts: Mapping[str, str]


class ProcessLock:
    """A lock that a process holds as long as it lives, in a file that says which process it is."""

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        self._path, self._mode = path, mode
        self._file: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds it."""
        return self._file is not None

    def try_acquire(self, **facts: str) -> bool:
        """Takes the lock and writes this process's id and ``facts`` into the file.

        Returns:
            ``False`` if another process holds the lock; ``True`` if this object holds it already.
        """
        if self._file is not None:
            return True
        file = open_lock_file(self._path, self._mode)
        if not FileLock(file).try_acquire():
            os.close(file)
            return False
        self._file = file
        identity = ProcessIdentity.of(os.getpid())
        if identity is not None:
            known = {"pid": identity.pid, "started": identity.started, "facts": facts}
            content = json.dumps(known).encode()
            # Readers take no lock: they find the old text, the new one, or none that can be read.
            os.pwrite(file, content, 0)
            os.ftruncate(file, len(content))
        return True

    def release(self) -> None:
        """Gives the lock back if this object holds it; the file keeps its text."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def holder(self) -> LockHolder | None:
        """Returns the process that took the lock last, while it lives.

        It only reads the file, so it never keeps a process that starts from taking the lock. A
        process in another container is not seen: ids of processes mean nothing there.
        """
        holder = self._last_holder()
        return holder if holder is not None and holder.process.alive() else None

    def last_facts(self) -> Mapping[str, str]:
        """Returns what the process said that took the lock last; it may have died since."""
        holder = self._last_holder()
        return {} if holder is None else holder.facts

    def _last_holder(self) -> LockHolder | None:
        try:
            known = json.loads(self._path.read_bytes())
            return msgspec.convert({"process": known, "facts": known["facts"]}, LockHolder)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
