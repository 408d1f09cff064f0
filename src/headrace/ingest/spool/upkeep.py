"""What operators do with a spool: list its quarantined files, put them back, or drop them."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headrace.errors import SpoolError
from headrace.ingest.spool.record import SpoolRecord
from headrace.ingest.spool.segment import (
    ReadableSegment,
    SegmentReader,
    UnknownVersionError,
    segments,
)
from headrace.ingest.spool.spool import Spool
from headrace.runtime.files.file_locks import FileLock, open_lock_file

_LOG = logging.getLogger("headrace.ingest.spool")

REJECTED, DAMAGED, SEGMENT = "rejected", "damaged", "segment"
_KINDS = frozenset({f".{REJECTED}", f".{DAMAGED}"})
_MAX_RECORDS = 500
_ALL_COUNTERS = 1 << 63  # larger than any counter of a spool
_PLACE = re.compile(r"^\S+: ")


class _Line(msgspec.Struct, frozen=True):
    """A line of a file of rejected records; bytes are base64."""

    reason: str
    topic: str
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int
    partition: int | None


# Made at import: msgspec crashes where several threads are the first to decode a class.
_LINE = msgspec.json.Decoder(_Line)


@dataclass(frozen=True)
class QuarantinedFile:
    """One file of a quarantine.

    Attributes:
        name: its name.
        kind: ``rejected``, ``damaged`` or ``segment``.
        bytes: its size.
        records: records that can be put back; of a segment, as many as can be read.
        reasons: why they were quarantined, counted.
    """

    name: str
    kind: str
    bytes: int
    records: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)


def quarantined_files(spool: Spool) -> list[QuarantinedFile]:
    """Returns the quarantined files by name; files that headrace did not name are ignored.

    Raises:
        SpoolError: if a file can't be read.
    """
    quarantine = spool.store.quarantine
    with spool.store.failing():
        paths = sorted(quarantine.iterdir())
        segment_names = {segment.name for segment in segments(quarantine)}
        files = [path for path in paths if path.is_file()]
        own_files = [path for path in files if path.suffix in _KINDS or path.name in segment_names]
        foreign = [path.name for path in paths if path not in own_files]
        if foreign:
            _LOG.warning("%s: ignored, not a file of headrace: %s", quarantine, ", ".join(foreign))
        return [_described(path) for path in own_files]


def put_back(spool: Spool, name: str) -> int:
    """Appends the records of a file to the spool, removes the file, and returns their number.

    They get new places at the end, in one append: all of them or none. A crash before the file is
    removed leaves it, and its records twice.

    Raises:
        SpoolFullError: if the budget has no room for them beside the file.
        SpoolError: if the file is not there, can't be read, or holds no records.
    """
    path = _existing(spool, name)
    with spool.store.failing():
        records = [record for batch in _batches(path) for record in batch]
    # In this order: a crash between the two repeats events, the other order would lose them.
    spool.append(records)
    drop(spool, name)
    return len(records)


def drop(spool: Spool, name: str) -> None:
    """Removes a quarantined file for good.

    Raises:
        SpoolError: if it is not there, or can't be removed.
    """
    path = _existing(spool, name)
    with spool.store.exclusive():
        path.unlink()
        spool.store.count_bytes()


def drop_waiting(spool: Spool) -> int:
    """Removes all events that wait to be replayed for good, and returns their number.

    Raises:
        SpoolError: if a worker is replaying them.
    """
    store = spool.store
    with store.failing():
        # The loader holds this lock for as long as it replays; appends take another one.
        lock = open_lock_file(store.loader_lock, 0o600)
    try:
        if not FileLock(lock).try_acquire():
            reason = "a worker of the service is replaying it: stop the service first"
            raise SpoolError(str(store.folder), reason)
        with store.exclusive():
            count = spool.waiting
            # The cursor goes first: a crash leaves segments below it, which are removed, not
            # replayed.
            store.cursor_file.write(store.cursor_file.read().at(store.state.written))
            store.state.loaded = store.state.written
            for segment in segments(store.folder):
                store.remove(segment)
        return count
    finally:
        os.close(lock)


def _existing(spool: Spool, name: str) -> Path:
    path = spool.store.quarantine / name
    # A name with `../` in it would be another file of the machine.
    if path.parent != spool.store.quarantine or not path.is_file():
        raise SpoolError(str(spool.store.quarantine), f"there is no file {name!r}")
    return path


def _described(path: Path) -> QuarantinedFile:
    kind, size = path.suffix.removeprefix("."), path.stat().st_size
    try:
        if kind == REJECTED:
            lines = _lines(path)
            # Without the topic that a reason begins with, equal reasons are counted together.
            reasons = Counter(_PLACE.sub("", line.reason) for line in lines)
            return QuarantinedFile(path.name, kind, size, len(lines), dict(reasons))
        return QuarantinedFile(path.name, kind, size, sum(map(len, _batches(path))))
    except SpoolError as error:
        return QuarantinedFile(path.name, kind, size, reasons={error.reason: 1})


def _batches(path: Path) -> Iterator[Sequence[SpoolRecord]]:
    if path.suffix == f".{REJECTED}":
        yield [msgspec.convert(line, SpoolRecord, from_attributes=True) for line in _lines(path)]
    elif path.suffix == f".{SEGMENT}":
        yield from _of_segment(path)
    else:
        raise SpoolError(str(path), "it holds damaged bytes, and no record")


def _of_segment(path: Path) -> Iterator[Sequence[SpoolRecord]]:
    """Reads all records of a segment, whatever was replayed of it before."""
    by_name = {segment.name: segment for segment in segments(path.parent)}
    segment = by_name.get(path.name)
    if segment is None:
        raise SpoolError(str(path), "it does not have the name that headrace gave it")
    try:
        reader = SegmentReader(path, segment)
    except UnknownVersionError as error:
        reason = f"another version of headrace wrote it ({error}): that version can replay it"
        raise SpoolError(str(path), reason) from error
    readable = ReadableSegment(segment, path.stat().st_size, _ALL_COUNTERS, growing=False)
    while (batch := reader.batch(readable, 0, _MAX_RECORDS)).records:
        yield batch.records


def _lines(path: Path) -> list[_Line]:
    try:
        return [_LINE.decode(line) for line in path.read_bytes().splitlines()]
    except msgspec.DecodeError as error:
        raise SpoolError(str(path), f"a line can't be read: {error}") from error
