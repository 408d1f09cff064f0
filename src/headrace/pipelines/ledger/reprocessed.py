"""The entries of reprocessing in a pipeline's ledger: what was read again, and what that changed.

An entry is written before the commit of its part, under the part's number, and counts if the sink
records a number as high. It lies beside the entries of batches and adds nothing to their sums: most
of its events were counted when a batch read them. A part is of offsets that were all read before,
by batches or other parts, or of offsets that were not. The rows of the latter must be in the table,
as those of batches, and their offsets are no gap. What the former changed in the table is compared
where a recount finds other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, combinations

import msgspec

from headrace.ledger.sums import Sums
from headrace.pipelines.ledger.entry import EntryRange
from headrace.pipelines.ledger.folder import read_entry
from headrace.storage import files as storage
from headrace.storage.files import NO_OPTIONS, Options

_MAX_CHANGES = 10  # all their subsets are tried: a thousand, in milliseconds


@dataclass(frozen=True)
class WindowChange:
    """What a part changed in the rows of one window.

    Attributes:
        window: its start, in seconds since 1970; None: of rows without an event time.
        added: rows that were added; bytes are 0.
        removed: rows that were removed; bytes are 0.
    """

    window: int | None
    added: Sums
    removed: Sums


@dataclass(frozen=True)
class ReprocessedEntry:
    """What one part of a reprocessing did.

    Attributes:
        number: of the part, among all of the pipeline.
        start: of the time range.
        end: of the time range.
        ranges: the offsets.
        records: how many were read.
        dead: how many were rejected.
        window_seconds: length of the windows.
        changes: by window; only of a lake, and only where rows were added or removed.
        checkpoint: the newest that the sink recorded then; None: it recorded none, or an older
            headrace wrote the entry.
    """

    number: int
    start: datetime
    end: datetime
    ranges: tuple[EntryRange, ...]
    records: int
    dead: int
    window_seconds: int
    changes: tuple[WindowChange, ...] = ()
    checkpoint: int | None = None

    @property
    def added(self) -> int:
        """How many rows were added."""
        return sum(change.added.number for change in self.changes)

    @property
    def removed(self) -> int:
        """How many rows were removed."""
        return sum(change.removed.number for change in self.changes)


# Made at import: msgspec crashes where several threads are the first to decode a class.
_ENTRY = msgspec.json.Decoder(ReprocessedEntry)


class ReprocessedFolder:
    """Reads and writes these entries below ``_headrace/ledger/PIPELINE/reprocessed``."""

    def __init__(self, lake: str, pipeline: str, options: Options = NO_OPTIONS) -> None:
        """Neither opens nor makes the folder.

        Args:
            lake: root URI of the lake.
            pipeline: its name.
            options: of the lake's storage.
        """
        self.uri = storage.join(lake, "_headrace", "ledger", pipeline, "reprocessed")
        self._options = options

    def write(self, entry: ReprocessedEntry) -> None:
        """Writes an entry, or replaces it, atomically; it is durable when this returns."""
        uri = storage.join(self.uri, f"{entry.number}.json")
        storage.write_bytes_atomic(uri, msgspec.json.encode(entry), self._options)

    def forget(self, number: int) -> None:
        """Deletes the entry of a part, if there is one."""
        storage.delete_files(self.uri, [f"{number}.json"], self._options)

    def numbers(self) -> list[int]:
        """Returns the numbers of all entries, in order."""
        names = storage.list_files(self.uri, self._options)
        return sorted(int(name[:-5]) for name in names if name[:-5].isdigit())

    def counted(self, newest: int) -> list[ReprocessedEntry]:
        """Returns the entries that count, in order.

        Args:
            newest: number that the sink records; 0: it records none.

        Raises:
            SinkError: if one can't be read.
        """
        uris = (storage.join(self.uri, f"{n}.json") for n in self.numbers() if n <= newest)
        return [read_entry(uri, _ENTRY.decode, self._options) for uri in uris]


def changes_of(
    added: Mapping[int | None, Sums], removed: Mapping[int | None, Sums]
) -> tuple[WindowChange, ...]:
    """Returns the changes of windows, from the sums of rows."""
    return tuple(
        WindowChange(window, added.get(window, Sums()), removed.get(window, Sums()))
        for window in {**added, **removed}
    )


@dataclass
class Fills:
    """What reprocessing was the first to read.

    Attributes:
        entries: of parts of which nothing was read before.
        others: the other entries.
        ranges: the offsets, also those of other parts.
    """

    entries: list[ReprocessedEntry] = field(default_factory=list)
    others: list[ReprocessedEntry] = field(default_factory=list)
    ranges: list[EntryRange] = field(default_factory=list)


def fills_of(
    entries: Iterable[ReprocessedEntry], read_before: Callable[[int], Sequence[EntryRange]]
) -> Fills:
    """Returns what parts were the first to read.

    Args:
        entries: of one pipeline.
        read_before: returns what batches have read up to the end of a checkpoint.
    """
    result, known = Fills(), list[EntryRange]()
    for entry in sorted(entries, key=lambda entry: entry.number):
        new: list[EntryRange] = []
        if entry.checkpoint is not None:
            read = [*known, *read_before(entry.checkpoint)]
            # Of a partition that no batch has read, it is not known what was before the ledger.
            partitions = {range_.partition_id for range_ in read}
            counted = [range_ for range_ in entry.ranges if range_.partition_id in partitions]
            new = [part for range_ in counted for part in outside(read, range_)]
        is_fill = bool(new) and sorted(new) == sorted(entry.ranges)
        (result.entries if is_fill else result.others).append(entry)
        result.ranges += new
        known += entry.ranges
    return result


def by_window(
    entries: Iterable[ReprocessedEntry], window_seconds: int
) -> dict[int | None, list[Sums]]:
    """Returns by window how each entry has changed the sums of its rows.

    Args:
        entries: of one pipeline.
        window_seconds: length of the windows, a multiple of those of the entries.
    """
    result: dict[int | None, list[Sums]] = {}
    for entry in entries:
        of_entry: dict[int | None, Sums] = {}
        for change in entry.changes:
            window = change.window
            window = None if window is None else window // window_seconds * window_seconds
            of_entry[window] = of_entry.get(window, Sums()) + change.added - change.removed
        for window, sums in of_entry.items():
            if sums != Sums():
                result.setdefault(window, []).append(sums)
    return result


def explains(changes: Sequence[Sums], missing: Sums) -> bool:
    """Whether rows differ by just what some of these changes have done.

    Others have brought rows back that were lost, as batches had given them. The sums of hashes show
    which: that two of them agree by chance has a probability of 2^-64.
    """
    # Few parts change rows of one window; of very many, all or none.
    few = len(changes) <= _MAX_CHANGES
    sizes = range(len(changes) + 1) if few else (0, len(changes))
    chosen = chain.from_iterable(combinations(changes, size) for size in sizes)
    return any(missing + sum(sums, Sums()) == Sums() for sums in chosen)


def outside(ranges: Iterable[EntryRange], gap: EntryRange) -> list[EntryRange]:
    """Returns the offsets of ``gap`` that are in none of ``ranges``."""
    left, at = [], gap.start
    for range_ in sorted(range_ for range_ in ranges if range_.partition_id == gap.partition_id):
        if range_.end <= at or range_.start >= gap.end:
            continue
        if range_.start > at:
            left.append(EntryRange(*gap.partition_id, at, range_.start))
        at = range_.end
    if at < gap.end:
        left.append(EntryRange(*gap.partition_id, at, gap.end))
    return left
