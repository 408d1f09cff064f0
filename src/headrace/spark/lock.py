"""One run a checkpoint: a lock that the operating system frees when its holder dies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from headrace.errors import CheckpointInUseError, RefusedError
from headrace.runtime.files.file_locks import ProcessLock
from headrace.storage import files as storage


def lock_folder(state: Path, lake: str) -> Path:
    """Beside the checkpoints where they are local, so two projects on one lake see each other."""
    if not storage.is_local(lake):
        return state / "locks"
    return storage.local_path(lake) / "_headrace" / "locks"


class CheckpointLock:
    """Held by the driver for as long as it runs a pipeline.

    Drivers on other machines, or in other containers, are not seen by it. There the table takes
    each batch from one of them only, as its transactions record where the last one ended.

    Args:
        folder: of locks.
        pipeline: its name, or that of a run of another kind.
        in_use: returns the error of a start while another process holds it, by the name of that;
            ``None``: :class:`CheckpointInUseError`.
    """

    def __init__(
        self, folder: Path, pipeline: str, in_use: Callable[[str], RefusedError] | None = None
    ) -> None:
        self._path = folder / f"{pipeline}.lock"
        self._in_use = in_use or partial(CheckpointInUseError, pipeline, str(self._path))
        self._lock = ProcessLock(self._path)

    @property
    def is_held(self) -> bool:
        """Whether this object holds it."""
        return self._lock.is_held

    def try_acquire(self, **facts: str) -> bool:
        """Takes the lock, and notes ``facts`` of its holder; False if another process holds it."""
        return self._lock.try_acquire(**facts)

    def last_facts(self) -> Mapping[str, str]:
        """Returns what the process noted that took the lock last, whether or not it lives."""
        return self._lock.last_facts()

    def acquire(self) -> None:
        """Takes the lock; harmless when it is held already.

        Raises:
            RefusedError: if another process holds it.
        """
        if not self._lock.try_acquire():
            holder = self._lock.holder()
            name = f"process {holder.process.pid}" if holder else "another process"
            raise self._in_use(name)

    def release(self) -> None:
        """Gives the lock back; harmless when it is not held."""
        self._lock.release()

    def holder_lives(self) -> bool:
        """Returns whether the process that took the lock last still runs; takes no lock."""
        return self._lock.holder() is not None
