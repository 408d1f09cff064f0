"""One run a checkpoint: a lock that the operating system frees when its holder dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from headrace.errors import CheckpointInUseError
from headrace.runtime import storage

_HOLDER = "process "


def lock_folder(state: Path, lake: str) -> Path:
    """Beside the checkpoints where they are local, so two projects on one lake see each other."""
    if "://" in lake and not lake.startswith("file:"):
        return state / "locks"
    _, path = storage.filesystem(lake)
    return Path(path) / "_headrace" / "locks"


class CheckpointLock:
    """Held by the driver for as long as it runs a pipeline.

    Drivers on other machines, or in other containers, are not seen by it. There the table takes
    each batch from one of them only, as its transactions record where the last one ended.
    """

    def __init__(self, folder: Path, pipeline: str) -> None:
        self._path = folder / f"{pipeline}.lock"
        self._pipeline = pipeline
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Takes the lock; harmless when it is held already.

        Raises:
            CheckpointInUseError: another process holds it.
        """
        if self._file is not None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise CheckpointInUseError(self._pipeline, str(self._path), holder) from None
        file.truncate(0)
        file.write(f"{_HOLDER}{os.getpid()}")
        file.flush()
        self._file = file

    def release(self) -> None:
        """Gives it back; harmless when not held."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def holder_lives(self) -> bool:
        """Whether the process that took it last still runs. Takes nothing: it disturbs nobody."""
        try:
            os.kill(int(self._path.read_text().removeprefix(_HOLDER)), 0)
        except PermissionError:
            return True
        except (OSError, ValueError):
            return False
        return True
