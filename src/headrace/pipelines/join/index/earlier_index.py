"""Events of the earlier side, which later ones look up: an index on this machine's disk.

The entries of each range of slices of event time
(:mod:`headrace.pipelines.join.index.range_entries`) are a RocksDB of their own, which is deleted
when it expires. A batch opens those of the ranges that it needs. They ingest the sorted files of
batches (:mod:`headrace.pipelines.join.index.sorted_files`), which are the durable state of the join
too: an index that is lost is restored from them.

With ``Match.ID``, beside each range are the fingerprints of its keys
(:mod:`headrace.pipelines.join.index.fingerprint_runs`), by which it is asked for few that it does
not hold. A lookup reads those of one range at a time, at most four bytes a key.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import msgspec
import numpy as np

from headrace.pipelines.join.events import Fingerprints, KeyedEvent, time_and_offset
from headrace.pipelines.join.index.fingerprint_runs import (
    DamagedRunError,
    FingerprintRuns,
    merged_prints,
    unpacked,
)
from headrace.pipelines.join.index.range_entries import OtherFilesError, RangeEntries
from headrace.pipelines.join.index.slices import slice_of
from headrace.pipelines.join.index.sorted_files import (
    SortedFile,
    entry_key,
    event_of,
    index_options,
    key_prefix,
    last_entry_key,
)
from headrace.runtime.files.durable_files import replace_file
from headrace.runtime.files.file_locks import FileLock, open_lock_file

if TYPE_CHECKING:
    from rocksdict import RdictIter

_T = TypeVar("_T")
_MARKS = "marks.json"
_INDEX = "index"
_FINGERPRINTS = "fingerprints"
_DAMAGED = re.compile("Corruption|No such file or directory")
_LOCK_POLL_SECONDS = 0.05  # a try is one system call


class Range(NamedTuple):
    """Slices of event time, as a folder is named: ``<first>-<last>``."""

    first: int
    last: int

    @classmethod
    def parse(cls, name: str) -> Range:
        """Returns the range of a folder."""
        first, last = name.split("-")
        return cls(int(first), int(last))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


class RangeFiles(NamedTuple):
    """What is on the disk of a range.

    Attributes:
        files: number of RocksDB's.
        runs: names of those of fingerprints, at least.
    """

    files: int
    runs: frozenset[str]


@dataclass(frozen=True)
class IngestedFiles:
    """What an index holds.

    Attributes:
        layout: how its files are laid out; marks of earlier versions lack it, and are ignored.
        files: names of the segments whose events it holds.
        compacted: names of segments that were made of these, until a state names them.
        expired_us: slices that end before it are deleted.
        state_id: of the state that it belongs to.
        ranges: its own files: with others, the index is not the one that this was written for, has
            lost a part, or has events of a segment that is not named here.
    """

    layout: Literal["a RocksDB for each range, of named segments"]
    ranges: Mapping[str, RangeFiles] = field(default_factory=dict)
    files: frozenset[str] = frozenset()
    compacted: frozenset[str] = frozenset()
    expired_us: int = 0
    state_id: str = ""


# Made at import: msgspec crashes where several threads are the first to decode a class.
_INGESTED = msgspec.json.Decoder(IngestedFiles)
_NOTHING = IngestedFiles("a RocksDB for each range, of named segments")


class EarlierIndex:
    """The index of one partition; used by one task at a time, for which others wait.

    Attributes:
        slice_us: length of its slices.
        ingested: what it holds.
        max_files_of_a_range: a lookup may ask each of them; merging them copies what the range
            holds.

    It may hold more than a batch asks for, of one that was repeated since: events from an offset on
    are passed over. :meth:`~headrace.pipelines.join.index.state.StateFolder.load` empties it where
    it holds others.

    Raises:
        DamagedRunError: if fingerprints that are read are damaged, or missing.
        OtherFilesError: if a range that is used has lost files, or has one that no mark names.
        Exception: as RocksDB words it: the disk fails, or what is read is damaged
            (:func:`with_index`).
    """

    max_files_of_a_range = 32

    def __init__(self, folder: Path, slice_us: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.slice_us = slice_us
        self._marks = folder / _MARKS
        self._options = index_options()
        self._entries_folder, self._prints_folder = folder / _INDEX, folder / _FINGERPRINTS
        present = [
            entry.name for entry in self._entries_folder.glob("*") if RangeEntries.are_in(entry)
        ]
        self._ranges = {
            range_: self._entries(range_) for range_ in map(Range.parse, sorted(present))
        }
        self._prints = {range_: self._runs(range_) for range_ in self._ranges}
        for entry in (*self._entries_folder.glob("*"), *self._prints_folder.glob("*")):
            if entry.name not in present:  # a crash left it, or another version
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.ingested = self._read_marks()
        # A crash came before they were deleted, or before their first mark.
        self._drop([range_ for range_ in self._ranges if str(range_) not in self.ingested.ranges])

    def ingest(self, segments: Mapping[str, Sequence[SortedFile]]) -> None:
        """Takes sorted files, by the names of their segments. A segment may be ingested again.

        Each range is opened once for all of them.
        """
        by_range: defaultdict[Range, list[SortedFile]] = defaultdict(list)
        for file in chain.from_iterable(segments.values()):
            by_range[Range(file.first, file.last)].append(file)
        for range_, of_range in by_range.items():
            if range_ not in self._ranges:
                entries, runs = self._entries(range_), self._runs(range_)
                self._ranges[range_], self._prints[range_] = entries, runs
            # Fingerprints come before the entries of their keys.
            prints = merged_prints([unpacked(file.fingerprints) for file in of_range])
            if len(prints):
                self._prints[range_].add(prints)
            self._ranges[range_].ingest([file.entries for file in of_range])
        # After they are in: a range that has files without a mark is not believed.
        self._mark(replace(self.ingested, files=self.ingested.files.union(segments)))
        for range_ in by_range:
            self._prints[range_].delete_replaced()
        many = [r for r in by_range if self._ranges[r].file_count > self.max_files_of_a_range]
        for range_ in many:
            self._ranges[range_].merge_files()
        if many:
            self._mark(self.ingested)

    def mark_compacted(self, name: str) -> None:
        """Records a segment, by its name, that was made of segments whose events it holds."""
        self._mark(replace(self.ingested, compacted=self.ingested.compacted | {name}))

    def find(
        self, keys: Sequence[bytes], prints: Fingerprints, since_us: int, before_offset: int
    ) -> dict[bytes, KeyedEvent]:
        """Returns the events of ``keys``, which have these fingerprints, by key.

        Those that are older than ``since_us``, or were read from ``before_offset`` on, are passed
        over.
        """
        order = np.argsort(prints)
        ordered = prints[order]  # sorted: looked up several times as fast
        events: dict[bytes, KeyedEvent] = {}
        for range_, entries in self._since(since_us).items():
            indices = order[self._prints[range_].hold(ordered)].tolist()
            missing = [key for i in indices if (key := keys[i]) not in events]
            if not missing:
                continue
            with entries.reading() as opened:
                values: Any = opened.get([entry_key(key) for key in missing])
            for key, value in zip(missing, values, strict=True):
                if value is not None:
                    event = event_of(key, value)
                    if event.offset < before_offset and event.time_us >= since_us:
                        events[key] = event
        return events

    def last(
        self, later: Sequence[KeyedEvent], since_us: int, before_offset: int
    ) -> list[KeyedEvent | None]:
        """Returns for each event the newest one of its key that is not after it.

        Those that are older than ``since_us``, or were read from ``before_offset`` on, are passed
        over.
        """
        lasts: list[KeyedEvent | None] = [None] * len(later)
        newest_first = sorted(
            self._since(since_us).items(), key=lambda item: item[0].last, reverse=True
        )
        for range_, entries in newest_first:
            indices = [
                i for i, event in enumerate(later) if self._may_hold_newer(range_, event, lasts[i])
            ]
            if not indices:
                continue
            with entries.reading() as opened:
                cursor = opened.iter()
                events = [_last_before(cursor, later[i], before_offset) for i in indices]
            for i, event in zip(indices, events, strict=True):
                if event is not None and event.time_us >= since_us:
                    lasts[i] = max(filter(None, (lasts[i], event)), key=time_and_offset)
        return lasts

    def _may_hold_newer(self, range_: Range, later: KeyedEvent, last: KeyedEvent | None) -> bool:
        """Whether a range may hold an event before ``later`` that is newer than ``last``."""
        if range_.first > slice_of(later.time_us, self.slice_us):
            return False
        return last is None or range_.last >= slice_of(last.time_us, self.slice_us)

    def expire(self, before_us: int) -> None:
        """Deletes the slices that end before a time."""
        number = slice_of(before_us, self.slice_us)
        expired = [range_ for range_ in self._ranges if range_.last < number]
        expired_us = max(self.ingested.expired_us, number * self.slice_us)
        if expired or expired_us != self.ingested.expired_us:
            self._mark(replace(self.ingested, expired_us=expired_us), without=expired)
        self._drop(expired)

    def rename(self, files: frozenset[str]) -> None:
        """Records by which names of segments its events are known from now on."""
        if self.ingested.compacted or files != self.ingested.files:
            self._mark(replace(self.ingested, files=files, compacted=frozenset()))

    def clear(self, state_id: str) -> None:
        """Empties it, for another state."""
        self._mark(_NOTHING, without=[*self._ranges])
        self._drop([*self._ranges])
        self._mark(replace(_NOTHING, state_id=state_id))

    def _entries(self, range_: Range) -> RangeEntries:
        return RangeEntries(self._entries_folder / str(range_), self._options)

    def _runs(self, range_: Range) -> FingerprintRuns:
        return FingerprintRuns(self._prints_folder / str(range_))

    def _since(self, since_us: int) -> dict[Range, RangeEntries]:
        first = slice_of(since_us, self.slice_us)
        return {range_: entries for range_, entries in self._ranges.items() if range_.last >= first}

    def _drop(self, ranges: Sequence[Range]) -> None:
        for range_ in ranges:
            self._ranges.pop(range_).delete()
            self._prints.pop(range_).delete()

    def _read_marks(self) -> IngestedFiles:
        try:
            marks = _INGESTED.decode(self._marks.read_bytes())
        except (FileNotFoundError, UnicodeDecodeError, msgspec.DecodeError):  # half-written
            return _NOTHING
        marked = {Range.parse(name): files for name, files in marks.ranges.items()}
        for range_, files in marked.items():
            entries = self._ranges.get(range_)
            if entries is None or entries.count_files() < files.files:
                return _NOTHING
            if not files.runs <= self._files(range_).runs:
                return _NOTHING
        for range_, files in marked.items():
            self._ranges[range_].file_count = files.files
        return marks

    def _files(self, range_: Range) -> RangeFiles:
        runs = frozenset(run.name for run in self._prints[range_].files)
        return RangeFiles(self._ranges[range_].file_count, runs)

    def _mark(self, marks: IngestedFiles, without: Collection[Range] = ()) -> None:
        """Writes what it holds. Files of the ranges of ``without`` are about to be deleted.

        So a crash leaves marks that name no deleted file, and none that the next start misses.
        """
        files = {
            str(range_): self._files(range_) for range_ in self._ranges if range_ not in without
        }
        self.ingested = replace(marks, ranges=files)
        replace_file(self._marks, msgspec.json.encode(self.ingested))


def with_index(
    folder: Path, slice_us: int, use: Callable[[EarlierIndex], _T], max_wait_seconds: float = 300.0
) -> _T:
    """Opens the index of a folder, and returns what ``use`` returns of it.

    Where it turns out to be damaged, as by a cleaner of temporary files, it is deleted, and ``use``
    is called once more. Where another task has it open it is waited for: steps may use their rows
    twice, and Spark then reads them twice. A task that rebuilds an index of many events has it
    for minutes.

    Raises:
        TimeoutError: another task has had it open for ``max_wait_seconds``.
        Exception: of ``use``, and what :class:`EarlierIndex` raises that is no damage.
    """
    with _locked(folder, max_wait_seconds):
        try:
            return use(EarlierIndex(folder, slice_us))
        except Exception as error:
            # RocksDB raises all of its errors as ``Exception`` itself.
            is_rocksdb = type(error) is Exception and _DAMAGED.search(str(error)) is not None
            if not (is_rocksdb or isinstance(error, DamagedRunError | OtherFilesError)):
                raise
        (folder / _MARKS).unlink(missing_ok=True)
        for name in (_INDEX, _FINGERPRINTS):
            shutil.rmtree(folder / name, ignore_errors=True)
        return use(EarlierIndex(folder, slice_us))


@contextmanager
def _locked(folder: Path, max_wait_seconds: float) -> Iterator[None]:
    deadline = time.monotonic() + max_wait_seconds
    file = open_lock_file(folder / "lock")
    try:
        while not FileLock(file).try_acquire():
            if time.monotonic() > deadline:
                raise TimeoutError(f"another task has {folder} open for {max_wait_seconds:.0f} s")
            time.sleep(_LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(file)


def _last_before(entries: RdictIter, later: KeyedEvent, before_offset: int) -> KeyedEvent | None:
    prefix = key_prefix(later.key)
    entries.seek_for_prev(last_entry_key(prefix, later.time_us))
    while entries.valid() and entries.key().startswith(prefix):
        event = event_of(later.key, entries.value())
        if event.offset < before_offset:
            return event
        entries.prev()
    entries.status()  # raises where it ends for an error
    return None
