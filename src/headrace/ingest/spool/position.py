"""How far the loader is, durably."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from google_crc32c import value as crc32c

from headrace.ingest.spool.files import write_durably

FIRST_COUNTER = 1
_FIELDS = struct.Struct("<QQ")
_CHECKSUM = struct.Struct("<I")
_BYTES = _FIELDS.size + _CHECKSUM.size
_SLOT_BYTES = 512


class Position:
    """Counter of the next record to replay, and how many records never came.

    Two slots, written in turn: a torn write leaves the one before it. The file has its final size
    from the beginning, so that a full disk does not stop the loader, which makes room.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            write_durably(path, _slot(FIRST_COUNTER, 0).ljust(2 * _SLOT_BYTES, b"\0"), 0)

    def read(self) -> tuple[int, int]:
        """The newest (counter, missing); 0, 0 when both slots are damaged."""
        return max(self._slots())

    def write(self, counter: int, missing: int) -> None:
        """Returns once it is on the disk."""
        slots = self._slots()
        older = slots.index(min(slots))
        file = os.open(self._path, os.O_WRONLY)
        try:
            os.pwrite(file, _slot(counter, missing), older * _SLOT_BYTES)
            os.fdatasync(file)
        finally:
            os.close(file)

    def _slots(self) -> list[tuple[int, int]]:
        content = self._path.read_bytes()
        return [_parsed(content[start : start + _BYTES]) for start in (0, _SLOT_BYTES)]


def _slot(counter: int, missing: int) -> bytes:
    fields = _FIELDS.pack(counter, missing)
    return fields + _CHECKSUM.pack(crc32c(fields))


def _parsed(slot: bytes) -> tuple[int, int]:
    if len(slot) < _BYTES or slot[_FIELDS.size :] != _CHECKSUM.pack(crc32c(slot[: _FIELDS.size])):
        return 0, 0
    counter, missing = _FIELDS.unpack_from(slot)
    return counter, missing
