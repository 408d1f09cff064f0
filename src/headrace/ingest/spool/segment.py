"""Segments: the files of the spool.

``COUNTER-NUMBER-MARKER.segment``: counter of the first record, consecutive number, marker of the
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
_NAME = re.compile(r"(\d{18})-(\d{12})-([0-9a-f]{16})\.segment")


class UnknownVersionError(Exception):
    """Another version of headrace wrote the segment."""


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """One file: the counter of its first record, its number among them, the marker of frames.

    The order is that of creation. Numbers alone don't give it, for they start over when the spool
    was empty; counters alone don't, for after an append that failed they are the same.
    """

    first: int
    number: int
    marker: int

    @classmethod
    def new(cls, first: int, number: int) -> Segment:
        """Returns a segment with a random marker that no client can guess."""
        return cls(first, number, secrets.randbits(64))

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.first:018}-{self.number:012}-{self.marker:016x}.segment"


def segments(folder: Path) -> list[Segment]:
    """Returns the segments in ``folder``, in the order of their creation."""
    names = [_NAME.fullmatch(path.name) for path in folder.iterdir()]
    return sorted(Segment(int(m[1]), int(m[2]), int(m[3], 16)) for m in names if m)


def header(created_ms: int, version: int = _VERSION) -> bytes:
    """Returns the bytes that a segment starts with."""
    fields = _FIELDS.pack(_MAGIC, version, created_ms)
    return fields + _CHECKSUM.pack(crc32c(fields))


def created_ms(begin: bytes) -> int | None:
    """Returns when a segment was created, by its first bytes; ``None`` if they are damaged.

    Raises:
        UnknownVersionError: if the header is sound and of another version.
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
    """Returns ``length`` bytes from ``start``; fewer only at the end of the file."""
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        pieces = []
        while length > 0 and (piece := file.read(length)):
            pieces.append(piece)
            length -= len(piece)
    return b"".join(pieces)
