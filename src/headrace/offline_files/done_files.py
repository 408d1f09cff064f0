"""What becomes of files whose lines are all done: they stay, are removed, or are moved."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

from headrace.offline_files.files import FileIdentity


def remove_file(path: Path, identity: FileIdentity) -> bool:
    """Removes the file if it still is what ``identity`` was taken of; answers whether it did."""
    return _end_file(path, identity, Path.unlink)


def move_file(path: Path, identity: FileIdentity, folder: Path) -> bool:
    """Moves the file as :func:`remove_file` removes it; of equal names, later ones get a number."""
    return _end_file(path, identity, lambda done: done.rename(_free(folder / path.name)))


def _free(path: Path) -> Path:
    names = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(name for name in itertools.chain([path], names) if not name.exists())


def _end_file(path: Path, identity: FileIdentity, end: Callable[[Path], object]) -> bool:
    """Ends the file if it still is what ``identity`` was taken of; answers whether it did.

    It is renamed to ``*.done`` first, so that no process that opens it by its name comes between
    the look and the end. A file that turns out to be another gets its name back, unless a new
    file has taken it; then it keeps the name ``*.done``, and the next load reads it.
    """
    done = path.with_name(f"{path.name}.done")
    try:
        if FileIdentity.of(path.stat()) != identity or done.exists():
            return False
        path.rename(done)
        if FileIdentity.of(done.stat()) == identity:
            end(done)
            return True
        os.link(done, path)  # unlike a rename, it never replaces what has that name now
        done.unlink()
    except OSError:
        return False
    return False
