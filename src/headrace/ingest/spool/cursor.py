"""The loader's position, on the disk."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

from google_crc32c import value as crc32c

from headrace.runtime.files.durable_files import overwrite_durably, sync_file, write_durably

FIRST_COUNTER = 1
_FIELDS = struct.Struct("<QQQ")
_CHECKSUM = struct.Struct("<I")
_BYTES = _FIELDS.size + _CHECKSUM.size
_SLOT_BYTES = 512  # a disk writes a sector whole, so a torn write damages one slot alone


class SpoolCursor(NamedTuple):
    """Counter of the next record to replay; how many below it never came, and were rejected."""

    counter: int = 0
    missing: int = 0
    rejected: int = 0

    def at(self, counter: int) -> SpoolCursor:
        """Returns the cursor at another counter, with unchanged counts."""
        return self._replace(counter=counter)

    def after(self, end: int, taken: int, rejected: int) -> SpoolCursor:
        """Returns the cursor at ``end``; what was neither taken nor rejected is missing."""
        missing = end - self.counter - taken - rejected
        return SpoolCursor(end, self.missing + missing, self.rejected + rejected)


class CursorFile:
    """The loader's cursor, on the disk.

    Two slots, written in turn: a torn write leaves the one before it, which must be on the disk
    then. A process that was killed may have left a write that is not. The file has its final size
    from the start, so that a full disk does not stop the loader, which frees space.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_synced = False
        if not path.exists():
            write_durably(path, _slot(SpoolCursor(FIRST_COUNTER)).ljust(2 * _SLOT_BYTES, b"\0"), 0)

    def read(self) -> SpoolCursor:
        """Returns the newest cursor; all of it is 0 if both slots are damaged."""
        return max(self._slots())

    def sync(self) -> None:
        """Returns once the cursor is on the disk, also if another process wrote it."""
        sync_file(self._path)
        self._is_synced = True

    def write(self, cursor: SpoolCursor) -> None:
        """Returns once the cursor is on the disk, in the slot of the older one."""
        if not self._is_synced:
            self.sync()
        slots = self._slots()
        older = slots.index(min(slots))
        self._is_synced = False
        overwrite_durably(self._path, _slot(cursor), older * _SLOT_BYTES)
        self._is_synced = True

    def _slots(self) -> list[SpoolCursor]:
        content = self._path.read_bytes()
        return [_parsed(content[start : start + _BYTES]) for start in (0, _SLOT_BYTES)]


def _slot(cursor: SpoolCursor) -> bytes:
    fields = _FIELDS.pack(*cursor)
    return fields + _CHECKSUM.pack(crc32c(fields))


def _parsed(slot: bytes) -> SpoolCursor:
    if len(slot) < _BYTES or slot[_FIELDS.size :] != _CHECKSUM.pack(crc32c(slot[: _FIELDS.size])):
        return SpoolCursor()
    return SpoolCursor(*_FIELDS.unpack_from(slot))
