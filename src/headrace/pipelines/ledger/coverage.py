"""Which offsets batches have read, also those that have no entry in the ledger.

Batches of one checkpoint follow one another. So offsets that two entries leave out between them
were read by batches without an entry: the ledger was turned off, or files of it were deleted. The
same holds for those between where a checkpoint began and its first entry, and between its last
entry and the position that the sink records. These offsets are *uncounted*: nothing is lost, and
nothing is known of their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, pairwise
from typing import TypeAlias

from headrace.pipelines.ledger.entry import EntryRange, LedgerEntry

PartitionId: TypeAlias = tuple[str, str, int]
"""Topic, its id and the number of the partition."""
RecordedPositions: TypeAlias = Mapping[int, Mapping[PartitionId, int]]
"""Of each checkpoint that the sink records a batch of, its positions."""

Positions: TypeAlias = Mapping[str, Mapping[int, int]]
"""By topic and partition, the next record to read."""

ALL_WINDOWS = 1 << 62
_WHY = "`[ledger] enabled` was false, or files of the ledger were deleted or restored"


@dataclass
class Coverage:
    """What the batches of a pipeline have read, and what the ledger does not know of that.

    Attributes:
        ranges: that batches have read, by number of their checkpoint.
        possible: that checkpoints without entries have read, or may have.
        planned_only: that the last batch of a checkpoint planned, and has not read.
        uncounted: what is not in the ledger, and why, as sentences.
        unknown_before: windows that begin before it, in seconds since 1970, may hold rows of
            uncounted offsets; 0: there are none.
    """

    ranges: dict[int, list[EntryRange]] = field(default_factory=dict)
    possible: list[EntryRange] = field(default_factory=list)
    planned_only: list[EntryRange] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)
    unknown_before: int = 0

    def up_to(self, checkpoint: int) -> list[EntryRange]:
        """Returns what was read before the end of a checkpoint, or may have been."""
        read = (ranges for number, ranges in self.ranges.items() if number <= checkpoint)
        return [*chain.from_iterable(read), *self.possible]

    def note(self, what: str, horizon: int = 0) -> None:
        """Notes something uncounted; ``horizon`` is of the next entry, 0: there is none."""
        self.uncounted.append(f"{what}: {_WHY}")
        self.unknown_before = max(self.unknown_before, horizon + 1 if horizon else ALL_WINDOWS)


def coverage_of(entries: Iterable[LedgerEntry], recorded: RecordedPositions) -> Coverage:
    """Returns what batches have read.

    Args:
        entries: that count, of which there is one at least.
        recorded: what the sink records.
    """
    ordered = sorted(entries, key=lambda entry: (entry.checkpoint, entry.first))
    by_checkpoint = groupby(ordered, lambda entry: entry.checkpoint)
    by_number = {number: list(of_checkpoint) for number, of_checkpoint in by_checkpoint}
    numbers = sorted({*by_number, *recorded})
    if ordered[0].unknown_before:  # the ledger began with it, later than the pipeline
        numbers = numbers[numbers.index(ordered[0].checkpoint) :]
    result = Coverage()
    for number, following in zip(numbers, [*numbers[1:], 0], strict=True):
        horizon = next((entry.horizon for entry in by_number.get(following, ())), 0)
        positions = recorded.get(number, {})
        if number in by_number:
            _Checkpoint(by_number[number], result).add(positions, horizon)
        else:
            result.possible += [EntryRange(*id_, 0, at) for id_, at in positions.items()]
            result.note(f"the batches of checkpoint {number} are not in the ledger", horizon)
    return result


class _Checkpoint:
    """The ranges of one checkpoint while they are added, batch by batch."""

    def __init__(self, entries: Sequence[LedgerEntry], coverage: Coverage) -> None:
        self._entries, self._coverage = entries, coverage
        self._read_to: dict[PartitionId, int] = {}
        self._ranges: list[EntryRange] = []

    def add(self, recorded: Mapping[PartitionId, int], horizon: int) -> None:
        """Adds the ranges of all entries, and what the sink holds beyond them.

        Args:
            recorded: the positions of the checkpoint in the sink.
            horizon: of the first entry after it; 0: there is none.
        """
        first, last = self._entries[0], self._entries[-1]
        begins_ledger = bool(first.unknown_before)
        # The entry with which the ledger began says nothing of what was read before it.
        began: dict[str, dict[int, int]] = {}
        for range_ in () if begins_ledger else first.began:
            began.setdefault(range_.topic, {})[range_.partition] = range_.start
        self._take(first, began, is_next=first.first == 0 or begins_ledger)
        for before, entry in pairwise(self._entries):
            self._take(entry, before.positions, is_next=before.last + 1 == entry.first)
        for id_, at in recorded.items():
            read_to = self._next_offset(id_, last.positions)
            # Where the last batch has planned up to there, its tasks have not read that. All else
            # beyond the entries was read by batches that have none.
            if read_to is not None and at > read_to:
                beyond, planned = EntryRange(*id_, read_to, at), last.positions.get(id_[0], {})
                if planned.get(id_[2]) == at:
                    self._coverage.planned_only.append(beyond)
                else:
                    self._miss(beyond, horizon)
            elif read_to is not None and at < read_to:
                self._note(EntryRange(*id_, at, read_to), "are in the ledger and not in the sink")
                for number, range_ in enumerate(self._ranges):
                    if range_.partition_id == id_:
                        start = min(range_.start, at)
                        self._ranges[number] = replace(range_, start=start, end=min(range_.end, at))
        self._coverage.ranges[first.checkpoint] = self._ranges

    def _take(self, entry: LedgerEntry, known: Positions, *, is_next: bool) -> None:
        for range_ in sorted(entry.ranges):
            read_to = self._next_offset(range_.partition_id, known)
            if read_to is None:
                read_to = range_.start
                if not is_next or entry.unknown_before:
                    self._coverage.possible.append(replace(range_, start=0, end=range_.start))
            # Of batches that follow one another, this is what they have read.
            is_counted = is_next and entry.is_whole
            if range_.start > read_to and not is_counted:
                self._miss(replace(range_, start=read_to, end=range_.start), entry.horizon)
            elif range_.start < read_to and not is_counted:
                twice = min(read_to, range_.end)
                self._note(replace(range_, end=twice), "are in the ledger twice")
                range_ = replace(range_, start=twice)  # noqa: PLW2901
            self._ranges.append(range_)
            self._read_to[range_.partition_id] = max(read_to, range_.end)
        if not (is_next and entry.is_whole):
            self._take_positions(entry, known)

    def _take_positions(self, entry: LedgerEntry, known: Positions) -> None:
        """Adds what was read up to where an entry ends, but by batches that are not in it.

        What its own batches have planned of a partition is in its range.
        """
        have_own = {range_.partition_id for range_ in entry.ranges if entry.is_whole}
        topic_ids = {topic: topic_id for topic, topic_id, _ in self._read_to}
        for topic in topic_ids.keys() & entry.positions:
            for partition, at in entry.positions[topic].items():
                id_ = topic, topic_ids[topic], partition
                read_to = self._next_offset(id_, known)
                if id_ not in have_own and read_to is not None and at > read_to:
                    self._miss(EntryRange(*id_, read_to, at), entry.horizon)
                    self._read_to[id_] = at

    def _next_offset(self, id_: PartitionId, known: Positions) -> int | None:
        """Returns the next offset to read of a partition; None: it is not known."""
        topic, topic_id, partition = id_
        if id_ in self._read_to:
            return self._read_to[id_]
        if any(name == topic and other != topic_id for name, other, _ in self._read_to):
            return None  # the topic was recreated
        # A partition that was added begins at its first record.
        return known[topic].get(partition, 0) if known.get(topic) else None

    def _miss(self, range_: EntryRange, horizon: int) -> None:
        self._ranges.append(range_)
        self._note(range_, "were read by batches that are not in the ledger", horizon)

    def _note(self, range_: EntryRange, what: str, horizon: int = 0) -> None:
        name = f"{range_.topic}/{range_.partition}"
        self._coverage.note(f"offsets {range_.start} to {range_.end} of {name} {what}", horizon)
