"""Frames: one record each, found after damage, never mistaken for another.

======= ===== =======================================================
offset  bytes field (little endian)
======= ===== =======================================================
0       8     marker: random, the same in a whole segment
8       4     CRC-32C of all that follows
12      8     bytes of the payload
20      4     records that follow in the same append
24      8     bytes that follow in the same append
32      8     counter
40            payload
======= ===== =======================================================

The marker is drawn when a segment is created and never leaves the spool, so no event can contain a
frame: what is found by marker and checksum was written as a frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from google_crc32c import value as crc32c

_MARKER_BYTES = 8
_PREFIX = struct.Struct("<QI")
_BODY = struct.Struct("<QIQQ")
HEAD_BYTES = _PREFIX.size + _BODY.size


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame whose checksum is right; ``start`` and ``end`` are offsets in what was scanned.

    ``records_left`` and ``bytes_left`` follow in the same append.
    """

    start: int
    end: int
    counter: int
    records_left: int
    bytes_left: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no frame."""

    start: int
    end: int


def frames(payloads: Sequence[bytes], marker: int, counter: int) -> bytes:
    """Returns the payloads of one append as frames, counted from ``counter``."""
    remaining_bytes = framed_bytes(payloads)
    pieces: list[bytes] = []
    for place, payload in enumerate(payloads):
        remaining_bytes -= HEAD_BYTES + len(payload)
        body = (
            _BODY.pack(len(payload), len(payloads) - place - 1, remaining_bytes, counter + place)
            + payload
        )
        pieces += (_PREFIX.pack(marker, crc32c(body)), body)
    return b"".join(pieces)


def framed_bytes(payloads: Sequence[bytes]) -> int:
    """Returns the bytes that :func:`frames` makes of the payloads."""
    return HEAD_BYTES * len(payloads) + sum(map(len, payloads))


def scan(content: bytes, marker: int, start: int = 0) -> Iterator[Frame | Damage]:
    """Returns all frames and damaged ranges from ``start``, in order and without a hole."""
    at = start
    while at < len(content):
        item = _frame(content, at, marker) or _after_damage(content, at, marker)
        if isinstance(item, Frame) and item.start > at:
            yield Damage(at, item.start)
        yield item
        at = item.end


def _after_damage(content: bytes, start: int, marker: int) -> Frame | Damage:
    sought = marker.to_bytes(_MARKER_BYTES, "little")
    at = content.find(sought, start + 1)
    while at >= 0:
        if frame := _frame(content, at, marker):
            return frame
        at = content.find(sought, at + 1)
    return Damage(start, len(content))


def _frame(content: bytes, start: int, marker: int) -> Frame | None:
    if len(content) - start < HEAD_BYTES:
        return None
    found_marker, checksum = _PREFIX.unpack_from(content, start)
    body = start + _PREFIX.size
    length, records_left, bytes_left, counter = _BODY.unpack_from(content, body)
    end = start + HEAD_BYTES + length
    if found_marker != marker or end > len(content) or crc32c(content[body:end]) != checksum:
        return None
    payload = content[start + HEAD_BYTES : end]
    return Frame(start, end, counter, records_left, bytes_left, payload)
