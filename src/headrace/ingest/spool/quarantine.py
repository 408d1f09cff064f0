"""What can't be read is set aside, with what is known of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from headrace.ingest.spool.files import fsync_folder, write_durably
from headrace.ingest.spool.frames import Damage
from headrace.ingest.spool.segment import read

_SUFFIX = ".damaged"


def set_aside(path: Path, damages: Iterable[Damage], quarantine: Path) -> None:
    """Copies stretches of a segment, each with a first line of JSON. Doing it again adds nothing.

    Where the disk has no room for copies, the whole segment is moved.
    """
    try:
        for damage in damages:
            _copy(path, damage, quarantine)
    except OSError:
        set_aside_whole(path, quarantine)


def set_aside_whole(path: Path, quarantine: Path) -> None:
    """Moves a segment."""
    path.rename(quarantine / path.name)
    fsync_folder(quarantine)


def _copy(path: Path, damage: Damage, quarantine: Path) -> None:
    length = damage.end - damage.start
    known = {"segment": path.name, "offset": damage.start, "bytes": length}
    content = json.dumps(known).encode() + b"\n" + read(path, damage.start, length)
    name = f"{path.stem}-{damage.start:012}{_SUFFIX}"
    write_durably(quarantine / name, content, 0)
