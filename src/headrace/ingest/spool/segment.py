"""Segments: the files of the spool.

``NUMBER-COUNTER-MARKER.segment``: consecutive number, counter of the first record, marker of the
frames. The name says all that reading needs, so a damaged header costs nothing. The header is the
magic, the version, when it was created (milliseconds since 1970), and the CRC-32C of these.
"""

from __future__ import annotations

import re
import secrets
import struct
from dataclasses import dataclass
from pathlib import Path

from google_crc32c import value as crc32c

_MAGIC = b"headrace"
_VERSION = 1
_FIELDS = struct.Struct("<8sIq")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _FIELDS.size + _CHECKSUM.size
_NAME = re.compile(r"(\d{12})-(\d{18})-([0-9a-f]{16})\.segment")


class UnknownVersionError(Exception):
    """Another version of headrace wrote the segment."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file: its number among them, the counter of its first record, the marker of frames."""

    number: int
    first: int
    marker: int

    @classmethod
    def new(cls, number: int, first: int) -> Segment:
        """With a marker that nobody can guess."""
        return cls(number, first, secrets.randbits(64))

    @property
    def name(self) -> str:
        """Of the file."""
        return f"{self.number:012}-{self.first:018}-{self.marker:016x}.segment"


def segments(folder: Path) -> list[Segment]:
    """Those in ``folder``, in order of creation."""
    names = [_NAME.fullmatch(path.name) for path in folder.iterdir()]
    found = [Segment(int(m[1]), int(m[2]), int(m[3], 16)) for m in names if m]
    return sorted(found, key=lambda segment: segment.number)


def header(created_ms: int) -> bytes:
    """What a segment begins with."""
    fields = _FIELDS.pack(_MAGIC, _VERSION, created_ms)
    return fields + _CHECKSUM.pack(crc32c(fields))


def created_ms(begin: bytes) -> int | None:
    """When it was created, from the begin of a segment; ``None`` when that is damaged.

    Raises:
        UnknownVersionError: the header is sound and of another version.
    """
    if len(begin) < HEADER_BYTES:
        return None
    fields = begin[: _FIELDS.size]
    magic, version, created = _FIELDS.unpack(fields)
    if _CHECKSUM.unpack_from(begin, _FIELDS.size)[0] != crc32c(fields) or magic != _MAGIC:
        return None
    if version != _VERSION:
        raise UnknownVersionError(f"version {version}")
    return int(created)


def read(path: Path, start: int, length: int) -> bytes:
    """Up to ``length`` bytes from ``start``; fewer only at the end of the file."""
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        pieces = []
        while length > 0 and (piece := file.read(length)):
            pieces.append(piece)
            length -= len(piece)
    return b"".join(pieces)
