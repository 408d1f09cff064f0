"""Writing so that it is still there after a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, content: bytes, start: int) -> None:
    """Writes ``content`` at ``start`` of a file; at 0, the file is made anew."""
    created = start == 0
    file = os.open(path, os.O_WRONLY | (os.O_CREAT | os.O_TRUNC if created else 0), 0o600)
    try:
        _write(file, content, start)
        os.fdatasync(file)
    finally:
        os.close(file)
    if created:
        fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Makes the names in it durable."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def make_folder(folder: Path) -> None:
    """Makes it, readable by this user alone, and its name durable."""
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fsync_folder(folder.parent)


def _write(file: int, content: bytes, start: int) -> None:
    rest = memoryview(content)
    while rest:
        written = os.pwrite(file, rest, start)
        rest, start = rest[written:], start + written
