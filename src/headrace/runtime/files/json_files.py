"""Small JSON files on this machine, each replaced whole."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headrace.runtime.files.durable_files import replace_file

T = TypeVar("T")

_LOG = logging.getLogger("headrace.files")
# Files that a warning was logged of, as some are read or written several times a second.
_unreadable: set[Path] = set()
_unwritable: set[Path] = set()


def write_json(path: Path, value: object) -> None:
    """Replaces a small file: a reader, also after a crash, sees the old or the new content.

    Raises:
        OSError: if the disk fails or is full; the old file is there.
    """
    _replace(path, value, sync=True)


def write_passing(path: Path, value: object, *, sync: bool = False) -> None:
    """Replaces a file that is soon written again, such as a status, if the disk takes it.

    If it does not, the old file stays, and a warning is logged, once. Without ``sync`` nothing
    waits for the disk, and a crash may leave a torn file.
    """
    try:
        _replace(path, value, sync=sync)
    except OSError as error:
        if path not in _unwritable:
            _unwritable.add(path)
            _LOG.warning("Cannot write %s, continuing without it: %s", path, error)
    else:
        _unwritable.discard(path)


def _replace(path: Path, value: object, *, sync: bool) -> None:
    replace_file(path, json.dumps(value, indent=1).encode(), sync=sync)


def read_json(path: Path, convert: Callable[[Any], T]) -> T | None:
    """Returns what ``convert`` makes of a file that can be written again.

    Returns:
        None if there is no such file, or if it is not what :func:`write_json` wrote: a warning is
        logged, once.
    """
    try:
        value = convert(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        warn_unreadable("Cannot read %s, continuing as if it did not exist: %r", path, error)
        return None
    _unreadable.discard(path)
    return value


def warn_unreadable(message: str, path: Path, error: Exception) -> None:
    """Logs a warning of a file that can't be read, once until it was read."""
    if path not in _unreadable:
        _unreadable.add(path)
        _LOG.warning(message, path, error)
