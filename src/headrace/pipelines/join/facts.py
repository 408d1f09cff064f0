"""Events of the earlier side, which later ones ask for: an index on this machine's disk.

RocksDB keeps one entry an event, by slice of event time and key. Entries enter in sorted files
(:func:`sorted_file`), which are the durable state of the join too: an index that is lost is made
again from them. Nothing is written to the index in any other way, so it needs no log of its own,
and a crash leaves it with a file or without it.

================= ==================================================================================
entry             bytes; numbers are big-endian
================= ==================================================================================
``Match.ID``      ``slice (4) | key``
``Match.LAST``    ``slice (4) | length of the key (4) | key | time (8) | offset (8)``: the events
                  of a key in order of time
value             ``time (8) | offset (8) | value of the record``
================= ==================================================================================

A slice is as long as :func:`slice_length_us` says; whole slices expire.
"""

from __future__ import annotations

import shutil
import struct
from bisect import bisect
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import KeyedEvent
from headrace.runtime.durable_files import replace_file

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, RdictIter

# An index is asked once a slice, and holds at most one slice more than it must.
SLICES = 8
MIN_SLICE_US = 60_000_000
_HEAD = struct.Struct(">qq")
_SLICE = struct.Struct(">I")
_LAST_SLICE = 2**32 - 1
_OF_KEY = struct.Struct(">II")
_PLACE = struct.Struct(">QQ")
_MIDDLE = 2**63  # times before 1970 sort before those after it
_MAX_OFFSET = 2**63 - 1
_MARKS = "marks.json"
CACHE_BYTES = 32 * 1024 * 1024
"""Memory of one index; two or three of them are open at once, one a task."""
_OPEN_FILES = 128


def slice_length_us(within_us: int) -> int:
    """Returns the length of a slice of an index that holds events for ``within_us``."""
    return max(MIN_SLICE_US, within_us // SLICES)


def slice_of(time_us: int, slice_us: int) -> int:
    """Returns the number of a time's slice; those before 1970 are in the first one."""
    return min(max(0, time_us // slice_us), _LAST_SLICE - 1)


def sorted_file(facts: Iterable[KeyedEvent], slice_us: int, match: Match) -> bytes:
    """Returns a sorted file of events, at least one; of ``Match.ID`` with different keys."""
    from rocksdict import SstFileWriter

    if match is Match.ID:
        entries = {_entry_key(slice_of(fact.time_us, slice_us), fact.key): fact for fact in facts}
    else:
        entries = {
            _prefix(slice_of(fact.time_us, slice_us), fact.key)
            + _PLACE.pack(fact.time_us + _MIDDLE, fact.offset): fact
            for fact in facts
        }
    with TemporaryDirectory() as folder:
        path = Path(folder) / "facts.sst"
        writer = SstFileWriter(_options())
        writer.open(str(path))
        for key in sorted(entries):
            fact = entries[key]
            writer[key] = _HEAD.pack(fact.time_us, fact.offset) + fact.value
        writer.finish()
        return path.read_bytes()


@dataclass(frozen=True)
class Marks:
    """What an index holds.

    Attributes:
        files: names of files that it has taken.
        expired_us: slices that end before it are deleted.
        identity: of the index, as RocksDB has it.
    """

    files: frozenset[str] = frozenset()
    expired_us: int = 0
    identity: str = ""


class FactIndex:
    """The index of one partition; open in one process at a time.

    Attributes:
        slice_us: length of its slices.

    It may hold more than a batch asks for, of one that was repeated since: events from an offset on
    are passed over.

    Raises:
        Exception: as RocksDB words it: another process has it open, or the disk fails.
    """

    def __init__(self, folder: Path, slice_us: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.slice_us = slice_us
        self._marks = folder / _MARKS
        self._index: Rdict = _opened(folder / "index")
        # Of this index: marks of one that was deleted say nothing of it.
        self._identity = (folder / "index" / "IDENTITY").read_text()

    @property
    def marks(self) -> Marks:
        """What it holds, at least."""
        try:
            marks = msgspec.json.decode(self._marks.read_bytes(), type=Marks)
        except (FileNotFoundError, msgspec.DecodeError):  # torn by a full disk or a crash
            return Marks()
        return marks if marks.identity == self._identity else Marks()

    def apply(self, name: str, parts: Sequence[bytes]) -> None:
        """Takes sorted files, known together by a name. Once more, they change nothing."""
        with TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{number}.sst" for number in range(len(parts))]
            for path, part in zip(paths, parts, strict=True):
                path.write_bytes(part)
            self._index.ingest_external_file([str(path) for path in paths])
        # After they are in: without a mark they are taken once more.
        self.note(name)

    def note(self, name: str) -> None:
        """Notes that it holds what a name stands for."""
        marks = self.marks
        self._mark(Marks(marks.files | {name}, marks.expired_us))

    def find(
        self, keys: Collection[bytes], slices: Sequence[int], before_offset: int
    ) -> dict[bytes, KeyedEvent]:
        """Returns the events of ``keys`` in some slices, by key.

        Those that were read from ``before_offset`` on are passed over.
        """
        events: dict[bytes, KeyedEvent] = {}
        for number in slices:
            missing = [key for key in keys if key not in events]
            values: Any = self._index.get([_entry_key(number, key) for key in missing])
            for key, value in zip(missing, values, strict=True):
                if value is not None:
                    time_us, offset = _HEAD.unpack_from(value)
                    if offset < before_offset:
                        events[key] = KeyedEvent(key, time_us, offset, value[_HEAD.size :])
        return events

    def last(
        self, later: Sequence[KeyedEvent], slices: Sequence[int], before_offset: int
    ) -> list[KeyedEvent | None]:
        """Returns for each event the newest one of its key in some slices that is not after it.

        Those that were read from ``before_offset`` on are passed over.
        """
        entries = self._index.iter()
        return [self._last(entries, event, slices, before_offset) for event in later]

    def _last(
        self, entries: RdictIter, later: KeyedEvent, slices: Sequence[int], before_offset: int
    ) -> KeyedEvent | None:
        newest = self._slice(later.time_us)
        for number in reversed(slices[: bisect(slices, newest)]):
            prefix = _prefix(number, later.key)
            entries.seek_for_prev(prefix + _PLACE.pack(later.time_us + _MIDDLE, _MAX_OFFSET))
            while entries.valid() and (entry := entries.key()).startswith(prefix):
                time_us, offset = _PLACE.unpack_from(entry, len(prefix))
                if offset < before_offset:
                    value = entries.value()[_HEAD.size :]
                    return KeyedEvent(later.key, time_us - _MIDDLE, offset, value)
                entries.prev()
        return None

    def expire(self, before_us: int, files: Collection[str]) -> None:
        """Deletes the slices that end before a time, and forgets all files but ``files``."""
        marks = self.marks
        number = self._slice(before_us)
        expired_us = max(marks.expired_us, number * self.slice_us)
        self._mark(Marks(marks.files & frozenset(files), expired_us))
        if expired_us > marks.expired_us:
            self._index.delete_range(_entry_key(0, b""), _entry_key(number, b""))

    def forget(self) -> None:
        """Empties it."""
        self._mark(Marks())
        self._index.delete_range(_entry_key(0, b""), _entry_key(_LAST_SLICE, b""))

    def close(self) -> None:
        """Closes it, so that another process can open it."""
        self._index.close()

    def _slice(self, time_us: int) -> int:
        return slice_of(time_us, self.slice_us)

    def _mark(self, marks: Marks) -> None:
        replace_file(self._marks, msgspec.json.encode(replace(marks, identity=self._identity)))


def _opened(folder: Path) -> Rdict:
    """Opens an index; one that is damaged, as by a cleaner of temporary files, is begun anew."""
    from rocksdict import Rdict

    try:
        return Rdict(str(folder), _options())
    except Exception as error:
        if "Corruption" not in str(error):  # another process has it open, or the disk fails
            raise
        shutil.rmtree(folder)
        return Rdict(str(folder), _options())


def _entry_key(number: int, key: bytes) -> bytes:
    return _SLICE.pack(number) + key


def _prefix(number: int, key: bytes) -> bytes:
    return _OF_KEY.pack(number, len(key)) + key


def _options() -> Options:
    from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options

    blocks = BlockBasedOptions()
    # Indexes and filters count in the cache, so that memory does not grow with the index.
    blocks.set_block_cache(Cache(CACHE_BYTES))
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_bloom_filter(10, False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.zstd())
    options.set_max_open_files(_OPEN_FILES)
    return options
