"""Segments: the files of the spool, and what reads them.

``COUNTER-NUMBER-MARKER.segment``: counter of the first record, consecutive number, marker of the
frames. The name says all that reading needs, so a damaged header costs nothing. The header is the
magic, the version, when it was created (milliseconds since 1970), and the CRC-32C of these.
"""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from google_crc32c import value as crc32c

from headrace.ingest.spool.frames import Damage, Frame, scan
from headrace.ingest.spool.record import SpoolRecord, decode

_MAGIC = b"headrace"
_VERSION = 1
_FIELDS = struct.Struct("<8sIq")
_CHECKSUM = struct.Struct("<I")
WINDOW_BYTES = 1 << 20
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


@dataclass(frozen=True, slots=True)
class ReadableSegment:
    """What may be read of a segment: up to offset ``end``, records below counter ``limit``.

    A record at ``limit`` or above it was not acknowledged: its append failed or never ended.
    """

    segment: Segment
    end: int
    limit: int
    growing: bool


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


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A record that Kafka will never take."""

    counter: int
    record: SpoolRecord
    reason: str


@dataclass
class SpoolBatch:
    """Records to send together.

    Attributes:
        records: those that wait, in order.
        counters: their counters.
        end: counter after the last of all.
        taken: how many of them Kafka has.
        rejected: those that Kafka will never take.
        path: the segment that they are in.
    """

    path: Path = Path()
    records: list[SpoolRecord] = field(default_factory=list)
    counters: list[int] = field(default_factory=list)
    end: int = 0
    taken: int = 0
    rejected: list[RejectedRecord] = field(default_factory=list)

    def add(self, counter: int, record: SpoolRecord) -> None:
        """Adds a record at the end."""
        self.records.append(record)
        self.counters.append(counter)
        self.end = counter + 1

    def settle(self, rejected: Mapping[int, str], waiting: Sequence[int]) -> None:
        """Takes the result of sending, by places in ``records``, which keeps those that wait."""
        self.taken += len(self.records) - len(rejected) - len(waiting)
        self.rejected += [
            RejectedRecord(self.counters[place], self.records[place], reason)
            for place, reason in rejected.items()
        ]
        self.records = [self.records[place] for place in waiting]
        self.counters = [self.counters[place] for place in waiting]


class SegmentReader:
    """Goes through one segment once; ``damages`` are the ranges that hold no record.

    Raises:
        UnknownVersionError: if another version of headrace wrote it.
    """

    def __init__(self, path: Path, segment: Segment) -> None:
        self.path, self.segment = path, segment
        self.damages: list[Damage] = []
        self._at = HEADER_BYTES
        begin = read(path, 0, HEADER_BYTES)
        if len(begin) == HEADER_BYTES and created_ms(begin) is None:
            self.damages.append(Damage(0, HEADER_BYTES))

    def batch(self, readable: ReadableSegment, position: int, most_records: int) -> SpoolBatch:
        """Returns the next records from counter ``position``; none once all of them were read."""
        batch, window = SpoolBatch(self.path), WINDOW_BYTES
        end = min(readable.end, self.path.stat().st_size)
        counters = range(position, readable.limit)
        while not batch.records and self._at < end:
            before = self._at
            content = read(self.path, before, min(window, end - before))
            for item in scan(content, self.segment.marker):
                cut = item.end == len(content) and before + item.end < end
                if len(batch.records) == most_records or (cut and isinstance(item, Damage)):
                    break
                self._take(item, before, counters, batch)
            window *= 2  # matters only where there was nothing: a frame is longer than the window
        return batch

    def _take(self, item: Frame | Damage, base: int, counters: range, batch: SpoolBatch) -> None:
        item_range = Damage(base + item.start, base + item.end)
        if isinstance(item, Damage):
            self.damages.append(item_range)
        elif item.counter in counters:
            try:
                batch.add(item.counter, decode(item.payload))
            except msgspec.MsgspecError:
                self.damages.append(item_range)
        self._at = item_range.end
