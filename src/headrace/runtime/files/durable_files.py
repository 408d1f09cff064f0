"""Files on this machine's disks that are whole, or still exist, after a crash or a power failure.

No other module waits for a disk. What is written is on the disk after the ``fsync`` of its file;
the *name* of a new file only after that of its folder, so both are needed, in this order: a name
that survives without its content would be read as an empty file.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from uuid import uuid4


def replace_file(path: Path, content: bytes, *, mode: int = 0o666, sync: bool = True) -> None:
    """Writes or replaces a file: readers see the old content or the new, never a part.

    With ``sync`` this also holds after a power failure, and the new content is on the disk when
    this returns. Without it nothing waits for the disk.

    Raises:
        OSError: if the disk fails or is full; the old file is there.
    """
    fresh = _fresh_file(path, content, mode, sync=sync)
    try:
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def create_file(path: Path, content: bytes) -> None:
    """Creates a file, whole or not at all; of several writers one succeeds. It is on the disk then.

    Raises:
        FileExistsError: if there is a file of this name.
        OSError: if the disk fails or is full.
    """
    fresh = _fresh_file(path, content, 0o666, sync=True)
    try:
        os.link(fresh, path)  # unlike a rename, it fails where the name is taken
    finally:
        fresh.unlink()
    sync_folder(path.parent)


def write_durably(path: Path, content: bytes, start: int) -> None:
    """Writes to the end of a file of this user alone, which is ``start`` bytes long; 0 creates it.

    All of the content is on the disk when this returns. A failure is undone, so that a disk that
    is full keeps no part of it, unless the undoing fails too.

    Raises:
        OSError: if the disk fails or is full.
    """
    creation = 0 if start else os.O_CREAT | os.O_TRUNC
    try:
        overwrite_durably(path, content, start, creation)
        if creation:
            sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            if start:
                os.truncate(path, start)
            else:
                path.unlink(missing_ok=True)
        raise


def overwrite_durably(path: Path, content: bytes, start: int, flags: int = 0) -> None:
    """Writes bytes at a place of a file; all of them are on the disk when this returns.

    Raises:
        OSError: if the disk fails; any part of the bytes may be there.
    """
    file = os.open(path, os.O_WRONLY | flags, 0o600)
    try:
        rest = memoryview(content)
        while rest:  # a disk that fills takes a part first, and fails with the next call
            written = os.pwrite(file, rest, start)
            rest, start = rest[written:], start + written
        os.fdatasync(file)
    finally:
        os.close(file)


def sync_file(path: Path) -> None:
    """Returns once the content of a file is on the disk, whichever process wrote it."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.fdatasync(file)
    finally:
        os.close(file)


def sync_folder(folder: Path) -> None:
    """Returns once the names in a folder are on the disk: new ones, and the removal of old ones."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def make_private_folder(folder: Path) -> None:
    """Creates a folder that only this user can read, and puts its name on the disk."""
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(folder.parent)


def _fresh_file(path: Path, content: bytes, mode: int, *, sync: bool) -> Path:
    """Returns a file beside ``path`` with this content, which has a name that no other writer has.

    Process ids would not do: containers that share a folder have the same ones.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            stream.flush()
            if sync:
                os.fsync(stream.fileno())
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return fresh
