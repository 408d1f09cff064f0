"""Which entries of a ledger count: those of batches that the sink holds, also after a RESTORE.

A restored table still records what it recorded before the RESTORE. So the first checkpoint after it
keeps, in each of its entries, what the table recorded as of the restored version; for earlier
checkpoints, that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from headrace.pipelines.batch.positions import CheckpointIds
from headrace.pipelines.ledger.coverage import PartitionId, RecordedPositions
from headrace.pipelines.ledger.entry import LedgerEntry
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.ledger.reprocessed import ReprocessedEntry, ReprocessedFolder
from headrace.storage.files import NO_OPTIONS, Options

Versions: TypeAlias = Callable[[Collection[str]], Mapping[str, int]]
"""Returns what is recorded by application id, as :meth:`PositionStore.versions` does."""


@dataclass(frozen=True)
class LedgerHistory:
    """What the sink holds of a pipeline, and what the ledger has of that.

    Attributes:
        entries: that count.
        recorded: by checkpoint, where the sink has come with it.
        reprocessed: the entries of reprocessing that count.
        unrecorded_parts: numbers of reprocessed parts that have none.
    """

    entries: Sequence[LedgerEntry]
    recorded: RecordedPositions
    reprocessed: Sequence[ReprocessedEntry]
    unrecorded_parts: Sequence[int]


def read_history(
    lake: str,
    pipeline: str,
    versions: Versions,
    options: Options = NO_OPTIONS,
    *,
    partitions: Mapping[str, int] = MappingProxyType({}),
) -> LedgerHistory:
    """Reads the entries that count.

    Args:
        lake: root URI of the lake.
        pipeline: its name.
        versions: what the sink records of it.
        options: of the lake's storage.
        partitions: how many each topic has: batches without an entry may have read of new ones.

    Raises:
        SinkError: if the entries can't be read.
    """
    folder = LedgerFolder(lake, pipeline, options)
    numbers = {span.checkpoint for span in folder.spans()}
    newest = CheckpointIds(pipeline, 0).newest
    numbers.update(range(1, versions([newest]).get(newest, 0) + 1))
    held = _Held(pipeline, numbers, versions)
    entries = folder.counted(held.done)
    # A restored table has fewer batches than the checkpoints say: their entries count no more.
    if held.end_at_restores(entries):
        entries = folder.counted(held.done)
    parts = ReprocessedFolder(lake, pipeline, options)
    return LedgerHistory(entries, held.positions(entries, partitions), *held.parts(parts, entries))


class _Held:
    """What the sink holds of each checkpoint: what it records, or what a later one has kept.

    Attributes:
        done: by number, the last batch that the sink holds.
    """

    def __init__(self, pipeline: str, numbers: Iterable[int], versions: Versions) -> None:
        name = CheckpointIds(pipeline, 0).reprocess
        self._parts = versions([name]).get(name, 0)
        self._ids = {number: CheckpointIds(pipeline, number) for number in sorted(numbers)}
        self._sources = dict.fromkeys(self._ids, versions)
        self.done = self._done(versions, self._ids)
        self._ended_parts: set[int] = set()

    def end_at_restores(self, entries: Sequence[LedgerEntry]) -> bool:
        """Ends checkpoints where a RESTORE has ended them; returns whether there was one."""
        kept = [entry for entry in entries if entry.held is not None]
        for entry in sorted(kept, key=lambda entry: (-entry.checkpoint, entry.first)):
            if entry.held is not None and entry.first <= self.done.get(entry.checkpoint, -1):
                self._end_before(entry.checkpoint, entry.held)
        return bool(kept)

    def _end_before(self, number: int, held: Mapping[str, int]) -> None:
        older = [before for before in self._ids if before < number]
        as_of = versions_in(held)
        self._sources |= dict.fromkeys(older, as_of)
        self.done = {n: at for n, at in self.done.items() if n >= number}
        self.done |= self._done(as_of, older)
        ids = self._ids[number]
        last = held.get(ids.reprocess_ended, 0)
        self._ended_parts.update(range(held.get(ids.reprocess, 0) + 1, last + 1))

    def positions(
        self, entries: Iterable[LedgerEntry], live: Mapping[str, int]
    ) -> RecordedPositions:
        """Returns the positions of each checkpoint, of all partitions of what entries have read."""
        known = _partitions(entries)
        named = {(topic, id_, p) for topic, id_, _ in known for p in range(live.get(topic, 0))}
        held = [number for number in self._ids if number in self.done]
        return {number: self._positions(number, sorted(known | named)) for number in held}

    def parts(
        self, folder: ReprocessedFolder, entries: Sequence[LedgerEntry]
    ) -> tuple[list[ReprocessedEntry], list[int]]:
        """Returns the entries of parts whose rows the sink holds, and the numbers of the others."""
        counted = [e for e in folder.counted(self._parts) if e.number not in self._ended_parts]
        known = {entry.number for entry in counted} | self._ended_parts
        # Where the ledger began later than the pipeline, parts may have been done before it.
        began_late = any(entry.unknown_before for entry in entries)
        first = min(known, default=self._parts + 1) if began_late else 1
        numbers = range(first, self._parts + 1)
        return counted, [number for number in numbers if number not in known]

    def _positions(
        self, number: int, partitions: Collection[PartitionId]
    ) -> Mapping[PartitionId, int]:
        batch = self._ids[number].batch
        names = {f"{batch}/{topic}/{id_}/{p}": (topic, id_, p) for topic, id_, p in partitions}
        return {names[name]: at for name, at in self._sources[number](names).items()}

    def _done(self, versions: Versions, numbers: Iterable[int]) -> dict[int, int]:
        names = {self._ids[number].batch: number for number in numbers}
        return {names[name]: batch_id for name, batch_id in versions(names).items()}


def _partitions(entries: Iterable[LedgerEntry]) -> set[PartitionId]:
    """Returns the partitions that batches have known."""
    entries = list(entries)
    ranges = [range_ for entry in entries for range_ in (*entry.ranges, *entry.began)]
    ids = {range_.topic: range_.topic_id for range_ in ranges}
    known = {(topic, p) for entry in entries for topic, ps in entry.positions.items() for p in ps}
    named = {(topic, ids[topic], p) for topic, p in known if topic in ids}
    return named | {range_.partition_id for range_ in ranges}


def versions_in(recorded: Mapping[str, int]) -> Versions:
    """Returns a function that looks ids up in what was recorded at one moment."""
    return lambda names: {name: recorded[name] for name in names if name in recorded}
