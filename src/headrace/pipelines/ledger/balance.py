"""Whether the sums of a ledger balance: the states of its windows, and gaps between its ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import lcm

from headrace.model import TopicPartition
from headrace.pipelines.ledger.breaks import breaks_of
from headrace.pipelines.ledger.completeness import Completeness, CompletenessBounds
from headrace.pipelines.ledger.entry import LedgerEntry, merged
from headrace.pipelines.ledger.reprocessed import (
    ReprocessedEntry,
    by_window,
    explains,
)
from headrace.pipelines.ledger.sums import FATES, Fate, Hop, Sums, added
from headrace.pipelines.ledger.window_sums import WindowSums
from headrace.pipelines.ledger.windows import (
    Break,
    Imbalance,
    Recount,
    WindowBalance,
    WindowState,
)


class Balance:
    """The balance of one pipeline, from the entries that count, of which there is one at least.

    Attributes:
        window_seconds: length of the windows.
        changed: columns by which rows of the table can't be counted, since steps changed them.
    """

    def __init__(
        self,
        entries: Sequence[LedgerEntry],
        bounds: CompletenessBounds,
        reprocessed: Sequence[ReprocessedEntry] = (),
        *,
        has_steps: bool,
        is_join: bool = False,
    ) -> None:
        """Adds the entries up.

        Args:
            entries: in any order.
            bounds: of the pipeline.
            reprocessed: what was read once more.
            has_steps: whether there are steps before the sink.
            is_join: whether the events that were read go through a join.
        """
        total = merged(entries)
        seconds = lcm(total.window_seconds, *(entry.window_seconds for entry in reprocessed))
        self._total = total.with_windows(seconds)
        self._read_again = [range_ for entry in reprocessed for range_ in entry.ranges]
        self._changes = by_window(reprocessed, seconds)
        self._sums = WindowSums(self._total, has_steps=has_steps, is_join=is_join)
        self._completeness = Completeness(self._total, bounds)
        self.changed = self._total.changed
        self.window_seconds = seconds

    def breaks(self, recorded: Mapping[tuple[str, str, int], int]) -> list[Break]:
        """Returns gaps and overlaps of the ranges that were read.

        Args:
            recorded: by topic, topic id and partition, the positions that the sink records.
        """
        return breaks_of(self._total.ranges, recorded, self._read_again)

    def dead_letters(self) -> dict[TopicPartition | None, int]:
        """Returns how many records became dead letters by partition; None: rows at the sink."""
        dead: dict[TopicPartition | None, int] = {}
        for key, sums in added(self._total.lines).items():
            if key.fate is Fate.DEAD:
                is_record = key.hop is not Hop.SINK and key.partition >= 0
                partition = TopicPartition(key.topic, key.partition) if is_record else None
                dead[partition] = dead.get(partition, 0) + sums.number
        return dead

    def has_read(self, partition: TopicPartition, topic_id: str, offset: int) -> bool:
        """Returns whether a record was read since the ledger began."""
        partition_id = (partition.topic, topic_id, partition.partition)
        return any(
            range_.partition_id == partition_id and range_.start <= offset < range_.end
            for range_ in self._total.ranges
        )

    def windows(
        self, recount: Recount | None = None, side_recount: Recount | None = None
    ) -> list[WindowBalance]:
        """Returns each window that has events, those without an event time first.

        Args:
            recount: of the table.
            side_recount: of the side table; None: there is none, or it was not counted.
        """
        counted = (count.sums for count in (recount, side_recount) if count is not None)
        starts = {*self._sums.starts}.union(*counted)
        ordered = sorted(starts, key=lambda start: -1 if start is None else start)
        return [self._window(start, recount, side_recount) for start in ordered]

    def _window(
        self, start: int | None, recount: Recount | None, side_recount: Recount | None
    ) -> WindowBalance:
        differences = [
            *self._sums.differences(start),
            *self._missing_in_table(start, recount),
            *self._missing_in_side_table(start, side_recount),
        ]
        unknown = self._unknown(start, recount, side_recount)
        if differences:
            state = WindowState.UNBALANCED
        elif unknown:
            state = WindowState.UNKNOWN
        else:
            state = self._completeness.state(start)
            if state is WindowState.BALANCED and self._sums.waits(start):
                state = WindowState.CLOSING
        fates = {fate: self._sums.ended(fate, start) for fate in FATES}
        return WindowBalance(
            None if start is None else datetime.fromtimestamp(start, UTC),
            state,
            self._sums.of(Hop.READ, Fate.IN, start).number,
            {fate: number for fate, number in fates.items() if number},
            tuple(differences),
            "" if differences else unknown,
            _rows_of(recount, start),
            _rows_of(side_recount, start),
        )

    def _missing_in_table(self, start: int | None, recount: Recount | None) -> Iterable[Imbalance]:
        is_comparable = not self._uncounted(start) and not self._began_before(start)
        if recount is None or recount.failure or not is_comparable:
            return
        missing = _missing(self._sums.of(Hop.SINK, Fate.OUT, start), recount, start)
        if not self._is_reprocessed(start, missing, recount):
            yield from _missing_rows(Hop.TABLE, missing)

    def _missing_in_side_table(
        self, start: int | None, recount: Recount | None
    ) -> Iterable[Imbalance]:
        if recount is None or recount.failure or self._began_before(start):
            return
        yield from _missing_rows(
            Hop.SIDE_TABLE, _missing(self._sent_to_side_table(start), recount, start)
        )

    def _sent_to_side_table(self, start: int | None) -> Sums:
        """Late events, and those that a join has not matched."""
        unmatched = self._sums.of(Hop.JOIN, Fate.UNMATCHED, start)
        return self._sums.of(Hop.READ, Fate.LATE, start) + unmatched

    def _is_reprocessed(self, start: int | None, missing: Sums, recount: Recount) -> bool:
        changes = self._changes.get(start, [])
        if not recount.has_ids:
            changes = [replace(change, hash=0) for change in changes]
        return explains(changes, replace(missing, bytes=0))

    def _began_before(self, start: int | None) -> bool:
        unknown_before = self._total.unknown_before
        return bool(unknown_before) and (start is None or start < unknown_before)

    def _uncounted(self, start: int | None) -> int:
        """How many events went into steps that do not count."""
        return self._sums.of(Hop.STEPS, Fate.UNKNOWN, start).number

    def _unknown(
        self, start: int | None, recount: Recount | None, side_recount: Recount | None
    ) -> str:
        """Why it is not known whether a window balances, as a sentence; empty: it is."""
        if self._uncounted(start):
            return self._total.uncounted
        if recount is not None and self._began_before(start):
            return "the table may hold rows from before the ledger began"
        if recount is not None and recount.failure:
            return recount.failure
        if silent := self._completeness.silent_partition():
            return f"partition {silent} has reported nothing"
        if side_recount is not None and self._sent_to_side_table(start).number:
            return side_recount.failure
        return ""


def _missing(counted: Sums, recount: Recount, start: int | None) -> Sums:
    """What the ledger has counted of a window beyond the rows of a table."""
    missing = counted - recount.sums.get(start, Sums())
    return missing if recount.has_ids else replace(missing, hash=0)


def _missing_rows(hop: Hop, missing: Sums) -> Iterable[Imbalance]:
    """The difference of a recount; rows have no bytes to compare."""
    if missing.number or missing.hash:
        yield Imbalance(hop, missing.number, 0, missing.hash != 0)


def _rows_of(recount: Recount | None, start: int | None) -> int | None:
    if recount is None or recount.failure:
        return None
    return recount.sums.get(start, Sums()).number
