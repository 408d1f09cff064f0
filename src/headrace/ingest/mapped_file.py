"""Files that several processes map into their memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from headrace.errors import IngestStateError


def map_file(file: int, path: Path, size: int) -> mmap.mmap:
    """Maps an open file into memory, and allocates all of its disk space now.

    A page without a block on the disk kills its writer with SIGBUS when the disk is full.

    Raises:
        IngestStateError: if the disk has no room for it.
    """
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        raise IngestStateError(str(path), error.strerror or str(error)) from error
    return mmap.mmap(file, size)


def open_shared(path: Path) -> int:
    """Opens a file, and creates it with its folder where it is missing, for this user alone.

    Raises:
        IngestStateError: if it can't be made or opened.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise IngestStateError(str(path), error.strerror or str(error)) from error
