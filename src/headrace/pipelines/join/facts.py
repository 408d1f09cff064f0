"""Events of the earlier side, which later ones ask for: an index on this machine's disk.

Each slice of event time is a column family of RocksDB, which is dropped when the slice expires. It
takes the sorted files of batches (:mod:`headrace.pipelines.join.sorted_files`), which are the
durable state of the join too: an index that is lost is made again from them. Nothing is written to
the index in any other way, so it needs no log of its own, and a crash leaves it with a file or
without it.

Most earlier events are new, and an index would look for each of them in all slices. So a slice has
an entry of fingerprints, too: those of all of its keys. It says of nearly all keys that the slice
does not hold them. It enters together with the events.
"""

from __future__ import annotations

import shutil
from bisect import bisect
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from headrace.pipelines.join.events import FINGERPRINT, Fingerprints, Integers, KeyedEvent
from headrace.pipelines.join.slices import slice_of
from headrace.pipelines.join.sorted_files import (
    SortedFile,
    entry_key,
    event_of,
    index_options,
    key_prefix,
    last_entry_key,
    sst_file,
)
from headrace.runtime.durable_files import replace_file

if TYPE_CHECKING:
    from rocksdict import CompactOptions, Options, Rdict, RdictIter

_FINGERPRINTS = b"\x00"
"""Key of the entry, which sorts before those of events."""
_MARKS = "marks.json"
_DEFAULT = "default"
_LEVELS = range(7)
# A lookup may ask each of them; merging them copies what the slice holds.
_MAX_FILES_OF_A_SLICE = 32


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
        self._options = index_options()
        self._index, self._slices = _opened(folder / "index", self._options)
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

    def apply(self, name: str, files: Sequence[SortedFile]) -> None:
        """Takes sorted files, known together by a name. Once more, they change nothing."""
        by_slice: defaultdict[int, list[SortedFile]] = defaultdict(list)
        for file in files:
            by_slice[file.slice].append(file)
        for number, of_slice in by_slice.items():
            self._take(number, of_slice)
        # After they are in: without a mark they are taken once more.
        self.note(name)

    def note(self, name: str) -> None:
        """Notes that it holds what a name stands for."""
        marks = self.marks
        self._mark(Marks(marks.files | {name}, marks.expired_us))

    def find(
        self,
        keys: Sequence[bytes],
        prints: Fingerprints,
        slices: Sequence[int],
        before_offset: int,
    ) -> dict[bytes, KeyedEvent]:
        """Returns the events of ``keys``, which have these fingerprints, in some slices, by key.

        Those that were read from ``before_offset`` on are passed over.
        """
        order = np.argsort(prints)
        ordered = prints[order]  # sorted: looked up several times as fast
        events: dict[bytes, KeyedEvent] = {}
        for number in self._of(slices):
            entries = self._slices[number]
            places = order[_found(_fingerprints(entries), ordered)].tolist()
            missing = [key for i in places if (key := keys[i]) not in events]
            values: Any = entries.get([entry_key(key) for key in missing])
            for key, value in zip(missing, values, strict=True):
                if value is not None:
                    event = event_of(key, value)
                    if event.offset < before_offset:
                        events[key] = event
        return events

    def last(
        self, later: Sequence[KeyedEvent], slices: Sequence[int], before_offset: int
    ) -> list[KeyedEvent | None]:
        """Returns for each event the newest one of its key in some slices that is not after it.

        Those that were read from ``before_offset`` on are passed over.
        """
        entries = {number: self._slices[number].iter() for number in self._of(slices)}
        return [self._last(entries, event, before_offset) for event in later]

    def _last(
        self, entries: Mapping[int, RdictIter], later: KeyedEvent, before_offset: int
    ) -> KeyedEvent | None:
        prefix = key_prefix(later.key)
        numbers = [*entries]
        newest = slice_of(later.time_us, self.slice_us)
        for number in reversed(numbers[: bisect(numbers, newest)]):
            of_slice = entries[number]
            of_slice.seek_for_prev(last_entry_key(prefix, later.time_us))
            while of_slice.valid() and of_slice.key().startswith(prefix):
                event = event_of(later.key, of_slice.value())
                if event.offset < before_offset:
                    return event
                of_slice.prev()
        return None

    def expire(self, before_us: int, files: Collection[str]) -> None:
        """Deletes the slices that end before a time, and forgets all files but ``files``."""
        marks = self.marks
        number = slice_of(before_us, self.slice_us)
        expired_us = max(marks.expired_us, number * self.slice_us)
        self._mark(Marks(marks.files & frozenset(files), expired_us))
        self._drop([each for each in self._slices if each < number])

    def forget(self) -> None:
        """Empties it."""
        self._mark(Marks())
        self._drop([*self._slices])

    def close(self) -> None:
        """Closes it, so that another process can open it."""
        for entries in self._slices.values():
            entries.close()
        self._index.close()

    def _of(self, slices: Sequence[int]) -> list[int]:
        return [number for number in slices if number in self._slices]

    def _take(self, number: int, files: Sequence[SortedFile]) -> None:
        """Takes files of one slice, and their fingerprints with those that it has."""
        if number not in self._slices:
            created = self._index.create_column_family(str(number), self._options)
            self._slices[number] = created
        entries = self._slices[number]
        contents = [file.entries for file in files]
        added = [np.frombuffer(file.fingerprints, FINGERPRINT) for file in files]
        prints = np.unique(np.concatenate([_fingerprints(entries), *added])).tobytes()
        contents.append(sst_file([(_FINGERPRINTS, prints)]))
        with TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{number}.sst" for number in range(len(contents))]
            for path, content in zip(paths, contents, strict=True):
                path.write_bytes(content)
            entries.ingest_external_file([str(path) for path in paths])
        if _file_count(entries) > _MAX_FILES_OF_A_SLICE:
            entries.compact_range(None, None, _compaction())

    def _drop(self, slices: Sequence[int]) -> None:
        for number in slices:
            del self._slices[number]
            self._index.drop_column_family(str(number))

    def _mark(self, marks: Marks) -> None:
        replace_file(self._marks, msgspec.json.encode(replace(marks, identity=self._identity)))


def _opened(folder: Path, options: Options) -> tuple[Rdict, dict[int, Rdict]]:
    """Opens an index, and its slices by number.

    One that is damaged, as by a cleaner of temporary files, is begun anew.
    """
    try:
        return _opened_as_it_is(folder, options)
    except Exception as error:
        if "Corruption" not in str(error):  # another process has it open, or the disk fails
            raise
        shutil.rmtree(folder)
        return _opened_as_it_is(folder, options)


def _opened_as_it_is(folder: Path, options: Options) -> tuple[Rdict, dict[int, Rdict]]:
    from rocksdict import Rdict

    is_there = (folder / "CURRENT").exists()
    names = Rdict.list_cf(str(folder), options) if is_there else [_DEFAULT]
    index = Rdict(str(folder), options, column_families=dict.fromkeys(names, options))
    numbers = sorted(int(name) for name in names if name != _DEFAULT)
    return index, {number: index.get_column_family(str(number)) for number in numbers}


def _file_count(entries: Rdict) -> int:
    counts = (entries.property_int_value(f"rocksdb.num-files-at-level{each}") for each in _LEVELS)
    return sum(count or 0 for count in counts)


def _compaction() -> CompactOptions:
    """Returns how the files of a slice become few: those whose keys do not overlap, too."""
    from rocksdict import BottommostLevelCompaction, CompactOptions

    options = CompactOptions()
    options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
    return options


def _fingerprints(entries: Rdict) -> Fingerprints:
    """Returns the fingerprints of a slice, in order."""
    content: Any = entries.get(_FINGERPRINTS)
    return np.frombuffer(content or b"", FINGERPRINT)


def _found(known: Fingerprints, prints: Fingerprints) -> Integers:
    """Returns the places in ``prints`` of those that are in ``known``, which is in order."""
    if not len(known):
        return np.empty(0, np.int64)
    places = np.searchsorted(known, prints)
    places[places == len(known)] = 0
    return np.flatnonzero(known[places] == prints)
