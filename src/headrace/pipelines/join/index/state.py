"""The durable state of a join: one folder a partition, in the checkpoint.

=============================================== ===================================================
``segment-<numbers>-<digest>.msgpack``          sorted files of events of the earlier side: the
                                                offsets between which they were read, the first and
                                                the last slice of their times, and a digest of the
                                                events
``state-<numbers>.msgpack``                     which of these count, and which later events wait,
                                                where a batch ended: the numbers of its position
=============================================== ===================================================

Each ends with the CRC-32 of what is before, 4 bytes. Files of other names are not looked at.

A batch reads the state that its start names, and writes the one that its end names, before the
sink's commit. So a batch that is repeated begins with what it began with before, whatever else the
folder holds. One that is planned again from an older checkpoint, or that finds other events in its
records since their class has changed, writes segments of other names. Files that the start of the
*current* batch does not need belong to batches that are committed, and are deleted.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from hashlib import blake2b
from operator import le
from typing import Literal, NamedTuple, TypeVar
from uuid import uuid4

import msgspec

from headrace.errors import JoinStateError
from headrace.pipelines.join.events import KeyedEvent, KeyedEvents, fingerprints
from headrace.pipelines.join.index.earlier_index import EarlierIndex
from headrace.pipelines.join.index.slices import slice_of
from headrace.pipelines.join.index.sorted_files import SortedFile
from headrace.pipelines.join.offsets import JoinPosition
from headrace.storage import files as storage

# Files of batches are some hundred kilobytes. A listing of a month's packs stays short, and a pack
# fits into the memory of a task.
COMPACTION_FAN_IN = 16
MAX_LEVEL = 4
MAX_COMPACTED_BYTES = 64 * 1024 * 1024
_T = TypeVar("_T")
_CHECKSUM_BYTES = 4
_TEMPORARY = r"(?:\.[0-9a-f]+\.tmp)?"  # a file that a crash left half-written
_SEGMENT = re.compile(
    r"\.?segment-(\d{20})-(\d{20})-\d{10}-(\d{10})-([0-9a-f]{16})\.msgpack" + _TEMPORARY
)
_STATE = re.compile(r"\.?state" + r"-(-?\d{19,20})" * 4 + r"\.msgpack" + _TEMPORARY)


@dataclass(frozen=True)
class SegmentFile:
    """A durable file of earlier events: those of a batch, or of several that were compacted.

    Attributes:
        newest: slice of event time of its newest event.
        size: in bytes.
        level: how often its events were compacted.
        parts: digests of the files whose events it has, and of theirs, in order. By them a machine
            knows the files that it took before they were compacted.
    """

    newest: int
    size: int
    level: int = 0
    parts: tuple[bytes, ...] = ()


class SegmentName(NamedTuple):
    """What the name of a segment says.

    Attributes:
        start: the first offset of its events.
        end: the one after the last.
        newest: slice of event time of its newest event.
        digest: of its events.
    """

    start: int
    end: int
    newest: int
    digest: bytes

    @classmethod
    def parse(cls, name: str) -> SegmentName:
        """Returns it of a segment, or of one that was being written.

        Raises:
            ValueError: if the file is another.
        """
        if (match := _SEGMENT.fullmatch(name)) is None:
            raise ValueError(f"{name} is no segment")
        start, end, newest, digest = match.groups()
        return cls(int(start), int(end), int(newest), bytes.fromhex(digest))


@dataclass(frozen=True)
class JoinState:
    """What a partition of a join knows.

    Attributes:
        form: of the entries in its files; a state of another form is refused.
        id: of this state, from its first batch on: an index of another one holds other events.
        segments: the files of earlier events, by name.
        waiting: later events that may find theirs yet, in order of offset.
    """

    form: Literal["key left out"]
    id: str
    segments: Mapping[str, SegmentFile] = field(default_factory=dict)
    waiting: tuple[KeyedEvent, ...] = ()


# Made at import: msgspec crashes where several threads are the first to decode a class.
_STATE_DECODER = msgspec.msgpack.Decoder(JoinState)
_SEGMENT_DECODER = msgspec.msgpack.Decoder(list[SortedFile])


class StateFolder:
    """The files of one partition.

    Args:
        uri: of the folder.
        initial: where the checkpoint began; there no state is needed.
        pipeline: its name, for messages.
        options: of the storage.
    """

    def __init__(
        self, uri: str, initial: JoinPosition, pipeline: str, options: Mapping[str, str]
    ) -> None:
        self._uri = uri
        self._initial = initial
        self._pipeline = pipeline
        self._options = options

    def read(self, at: JoinPosition) -> JoinState:
        """Returns the state that a batch begins with.

        Raises:
            JoinStateError: if it is missing, damaged, or of another form.
        """
        if at == self._initial:
            return JoinState("key left out", uuid4().hex)
        return self._read(at.file, _STATE_DECODER)

    def write(self, at: JoinPosition, state: JoinState) -> None:
        """Writes the state that a batch ends with; the same again when it is repeated."""
        self._write(at.file, msgspec.msgpack.encode(state))

    def write_segment(
        self, start: int, end: int, files: Sequence[SortedFile], facts: bytes, level: int = 0
    ) -> tuple[str, SegmentFile]:
        """Writes sorted files of the events between two offsets; returns the name of their file.

        ``facts`` identify the events: an index that has ingested a file knows it by its
        name.
        """
        first, newest = min(file.first for file in files), max(file.newest for file in files)
        digest = blake2b(facts, digest_size=8).hexdigest()
        name = f"segment-{start:020d}-{end:020d}-{first:010d}-{newest:010d}-{digest}.msgpack"
        return name, SegmentFile(newest, self._write(name, msgspec.msgpack.encode(files)), level)

    def compacted(
        self, segments: Mapping[str, SegmentFile], index: EarlierIndex, first_slice: int
    ) -> dict[str, SegmentFile]:
        """Returns ``segments`` with the small files of a level in one, once there are many.

        So the files are few, however long the join looks back: an event is copied as often as there
        are levels. Slices before ``first_slice`` are left out. ``index`` holds all of the files,
        and knows the new one then.

        Raises:
            JoinStateError: one of them is gone, or damaged.
        """
        files = dict(segments)
        for level in range(MAX_LEVEL):
            small = {
                name: file
                for name, file in sorted(files.items())
                if file.level == level and file.size <= MAX_COMPACTED_BYTES // COMPACTION_FAN_IN
            }
            # Level by level, so that the new file of one may be the last that the next one lacks.
            if len(small) >= COMPACTION_FAN_IN:
                names = [SegmentName.parse(name) for name in small]
                start, end = min(at.start for at in names), max(at.end for at in names)
                facts = f"{first_slice} {sorted(small)}".encode()
                read = [file for name in small for file in self._read_segment(name)]
                read = [file for file in read if file.newest >= first_slice]
                name, segment = self.write_segment(start, end, read, facts, level + 1)
                # Before the state names it: in the other order, a crash has it ingested again.
                index.mark_compacted(name)
                parts = {digest for file in small.values() for digest in file.parts}
                parts.update(at.digest for at in names)
                files = {name: file for name, file in files.items() if name not in small}
                files[name] = replace(segment, parts=tuple(sorted(parts)))
        return files

    def load(self, index: EarlierIndex, state: JoinState, at: JoinPosition) -> int:
        """Gives an index the files of the state ``at`` that it lacks; returns how many these are.

        An index that belongs to another state is emptied before, and so is one that has deleted
        what is needed again, or that holds events of abandoned batches: they were planned from a
        checkpoint that another one has replaced, or were repeated with other events. Then it holds
        what the state names, and no more before the offset of ``at``. From there on it may hold an
        abandoned batch that is being repeated.

        Raises:
            JoinStateError: one of them is gone, or damaged.
        """
        first_slice = slice_of(at.horizon_us, index.slice_us)
        is_of_state = index.ingested.state_id == state.id
        is_older = index.ingested.expired_us > first_slice * index.slice_us
        if (
            not is_of_state
            or is_older
            or _has_abandoned(index.ingested.files, state, at, first_slice)
        ):
            index.clear(state.id)
        held = index.ingested
        named = (held.files | held.compacted) & state.segments.keys()
        index.rename(
            named.union(name for name in held.files if SegmentName.parse(name).start >= at.earlier)
        )
        missing = sorted(state.segments.keys() - index.ingested.files)
        # Many at once, since each range is opened then; no more than the memory of a task holds.
        part: dict[str, list[SortedFile]] = {}
        size = 0
        for name in missing:
            if part and size + state.segments[name].size > MAX_COMPACTED_BYTES:
                index.ingest(part)
                part, size = {}, 0
            part[name] = self._read_segment(name)
            size += state.segments[name].size
        index.ingest(part)
        return len(missing)

    def delete_obsolete(self, at: JoinPosition, state: JoinState) -> None:
        """Deletes what batches before ``at`` left, and none from there on needs.

        Files of later positions stay: where this is a late attempt of an earlier batch, another
        task has continued from them.

        Raises:
            JoinStateError: a file of earlier events is missing, which an index on this machine, but
                on no other one, would make up for.
        """
        names = storage.list_files(self._uri, self._options)
        for lost in sorted(state.segments.keys() - set(names)):
            raise JoinStateError(self._pipeline, storage.join(self._uri, lost))
        needed = {at.file, *state.segments}
        unneeded = [name for name in names if name not in needed and _is_before(name, at)]
        storage.delete_files(self._uri, unneeded, self._options)

    def _read_segment(self, name: str) -> list[SortedFile]:
        return self._read(name, _SEGMENT_DECODER)

    def _read(self, name: str, decoder: msgspec.msgpack.Decoder[_T]) -> _T:
        uri = storage.join(self._uri, name)
        try:
            content = storage.read_bytes(uri, self._options)
            if content[-_CHECKSUM_BYTES:] == _checksum(content[:-_CHECKSUM_BYTES]):
                return decoder.decode(content[:-_CHECKSUM_BYTES])
        except (FileNotFoundError, msgspec.DecodeError):
            pass
        raise JoinStateError(self._pipeline, uri)

    def _write(self, name: str, content: bytes) -> int:
        """Returns the size of the file."""
        whole = content + _checksum(content)
        storage.write_bytes_atomic(storage.join(self._uri, name), whole, self._options)
        return len(whole)


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little")


def facts_of(events: KeyedEvents) -> bytes:
    """Returns what identifies events, by the fingerprints of their keys and values."""
    prints = events.fingerprints, fingerprints(events.values)
    return b"".join(numbers.tobytes() for numbers in (events.offsets, events.times_us, *prints))


def _has_abandoned(
    files: frozenset[str], state: JoinState, at: JoinPosition, first_slice: int
) -> bool:
    """Whether one of the files has events, of slices from the first one on, that a state lacks."""
    unnamed = [
        segment
        for segment in map(SegmentName.parse, files - state.segments.keys())
        if segment.start < at.earlier and segment.newest >= first_slice
    ]
    if not unnamed:
        return False
    parts = {digest for file in state.segments.values() for digest in file.parts}
    return any(segment.digest not in parts for segment in unnamed)


def _is_before(name: str, at: JoinPosition) -> bool:
    """Whether a file was written by a batch before a position; no file of another name was."""
    if _SEGMENT.fullmatch(name):
        return SegmentName.parse(name).end <= at.earlier
    position = _STATE.fullmatch(name)
    return position is not None and all(map(le, map(int, position.groups()), astuple(at)))
