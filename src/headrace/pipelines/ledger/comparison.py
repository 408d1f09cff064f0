"""Compares the sums of a ledger from hop to hop: states of windows, gaps between ranges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from math import lcm

from headrace.ledger.sums import FATES, Fate, Hop, Sums
from headrace.ledger.windows import Imbalance, WindowBalance, WindowState
from headrace.model import TopicPartition
from headrace.pipelines.ledger.breaks import Break, breaks_of
from headrace.pipelines.ledger.completeness import Completeness, CompletenessBounds
from headrace.pipelines.ledger.counting.recount import Recount
from headrace.pipelines.ledger.coverage import ALL_WINDOWS, RecordedPositions, coverage_of
from headrace.pipelines.ledger.entry import LedgerEntry, merged
from headrace.pipelines.ledger.reprocessed import (
    ReprocessedEntry,
    by_window,
    explains,
    fills_of,
)
from headrace.pipelines.ledger.sums import added
from headrace.pipelines.ledger.window_sums import WindowSums

_NOTHING_RECORDED: RecordedPositions = {}


class HopComparison:
    """The comparison of one pipeline, from the entries that count, of which there is at least one.

    Attributes:
        window_seconds: length of the windows.
        changed: columns by which rows of the table can't be counted, since steps changed them.
        uncounted: what batches have read that is not in the ledger, and why, as sentences.
    """

    def __init__(  # noqa: PLR0913  what the ledger has, and what it is held against
        self,
        entries: Sequence[LedgerEntry],
        bounds: CompletenessBounds,
        reprocessed: Sequence[ReprocessedEntry] = (),
        *,
        has_steps: bool,
        is_join: bool = False,
        recorded: RecordedPositions = _NOTHING_RECORDED,
        unrecorded_parts: Sequence[int] = (),
        counted_by: Collection[tuple[str | None, str | None]] = (),
        side_table: str = "",
    ) -> None:
        """Adds the entries up.

        Args:
            entries: in any order.
            bounds: of the pipeline.
            reprocessed: what was read again.
            has_steps: whether there are steps before the sink.
            is_join: whether the events that were read go through a join.
            recorded: the positions of each checkpoint in the sink.
            unrecorded_parts: numbers of reprocessed parts that have no entry.
            counted_by: by which fields the rows of the tables are counted, as in entries.
            side_table: label of the side table; empty: there is none.
        """
        total = merged(entries)
        self._coverage = coverage_of(entries, recorded)
        self._lacks_parts = bool(unrecorded_parts)
        for number in unrecorded_parts:
            self._coverage.note(f"part {number} of what was reprocessed is not in the ledger")
        self.uncounted = tuple(self._coverage.uncounted)
        seconds = lcm(total.window_seconds, *(entry.window_seconds for entry in reprocessed))
        self._total = total.with_windows(seconds)
        self._read_again = [range_ for entry in reprocessed for range_ in entry.ranges]
        fills = fills_of(reprocessed, self._coverage.up_to)
        self._first_read_again = fills.ranges
        filled = by_window(fills.entries, seconds)
        self._filled = {window: sum(sums, Sums()) for window, sums in filled.items()}
        self._changes = by_window(fills.others, seconds)
        self._sums = WindowSums(self._total, has_steps=has_steps, is_join=is_join)
        self._completeness = Completeness(self._total, bounds)
        others = [entry for entry in entries if {*entry.counted_by} - {*counted_by}]
        times = {time for time, _ in counted_by}
        is_of_other_time = any({time for time, _ in entry.counted_by} - times for entry in others)
        self._counted_otherwise_before = ALL_WINDOWS if is_of_other_time else _ends_before(others)
        elsewhere = [entry for entry in entries if {*entry.side_tables} - {side_table}]
        self._sent_elsewhere_before = _ends_before(elsewhere)
        self.changed = self._total.changed
        self.window_seconds = seconds

    def breaks(self) -> list[Break]:
        """Returns gaps and overlaps of the ranges that were read.

        A reprocessed part that has no entry may have read what batches have not: no gap is known.
        """
        read = [*chain.from_iterable(self._coverage.ranges.values()), *self._first_read_again]
        known = [*self._coverage.possible, *self._read_again]
        breaks = breaks_of(read, known, self._coverage.planned_only)
        return [fault for fault in breaks if not (fault.is_gap and self._lacks_parts)]

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
        starts = {*self._sums.starts}.union(*counted, *([self._filled] if recount else []))
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
        state = self._completeness.state(start)
        if state is WindowState.BALANCED and self._sums.waits(start):
            state = WindowState.CLOSING
        fates = {fate: self._sums.ended(fate, start) for fate in FATES}
        return WindowBalance(
            None if start is None else datetime.fromtimestamp(start, UTC),
            WindowState.of(differences, unknown, state),
            self._sums.of(Hop.READ, Fate.IN, start).number,
            {fate: number for fate, number in fates.items() if number},
            tuple(differences),
            "" if differences else unknown,
            _rows_of(recount, start),
            _rows_of(side_recount, start),
        )

    def _missing_in_table(self, start: int | None, recount: Recount | None) -> Iterable[Imbalance]:
        is_comparable = not self._uncounted(start) and not self._other_rows_reason(start)
        if recount is None or recount.failure or not is_comparable:
            return
        expected = self._sums.of(Hop.SINK, Fate.OUT, start) + self._filled.get(start, Sums())
        missing = _missing(expected, recount, start)
        changes = self._changes.get(start, [])
        if not recount.compares_ids(start):
            changes = [replace(change, hash=0) for change in changes]
        if not explains(changes, replace(missing, bytes=0)):
            yield from _missing_rows(Hop.TABLE, missing)

    def _missing_in_side_table(
        self, start: int | None, recount: Recount | None
    ) -> Iterable[Imbalance]:
        if recount is None or recount.failure or self._other_rows_reason(start):
            return
        if self._sent_elsewhere(start):
            return
        yield from _missing_rows(
            Hop.SIDE_TABLE, _missing(self._sent_to_side_table(start), recount, start)
        )

    def _sent_to_side_table(self, start: int | None) -> Sums:
        """Late events, and those that a join has not matched."""
        unmatched = self._sums.of(Hop.JOIN, Fate.UNMATCHED, start)
        return self._sums.of(Hop.READ, Fate.LATE, start) + unmatched

    def _sent_elsewhere(self, start: int | None) -> str:
        """Returns why such events of a window may not be in the side table; empty: they are."""
        before = self._sent_elsewhere_before
        has_any = self._sent_to_side_table(start).number and before
        if not has_any or (start is not None and start >= before):
            return ""
        return "late or unmatched events went to another table, or to dead letters, before"

    def _other_rows_reason(self, start: int | None) -> str:
        """Returns why the table may hold uncounted rows of a window; empty: it holds none."""
        reasons = {
            self._total.unknown_before: "the table may hold rows from before the ledger began",
            self._coverage.unknown_before: "the table may hold rows that are not in the ledger",
            self._counted_otherwise_before: "events were counted by another event_id or event_time",
        }
        # Events that were counted by other fields are in other windows, or have other hashes, than
        # the rows of a recount: a changed time moves them to any window, a changed id does not.
        before = max(reasons)
        return reasons[before] if before and (start is None or start < before) else ""

    def _uncounted(self, start: int | None) -> int:
        """How many events went into steps that do not count."""
        return self._sums.of(Hop.STEPS, Fate.UNKNOWN, start).number

    def _unknown(
        self, start: int | None, recount: Recount | None, side_recount: Recount | None
    ) -> str:
        """Why it is not known whether a window balances, as a sentence; empty: it is."""
        # The first of these reasons that applies: each makes the comparisons after it meaningless.
        if self._uncounted(start):
            return self._total.uncounted
        others = self._other_rows_reason(start)
        if others and (recount is not None or side_recount is not None):
            return others
        if recount is not None and recount.failure:
            return recount.failure
        if silent := self._completeness.silent_partition():
            return f"partition {silent} has reported nothing"
        if side_recount is not None and self._sent_to_side_table(start).number:
            return side_recount.failure or self._sent_elsewhere(start)
        return ""


def _ends_before(entries: Iterable[LedgerEntry]) -> int:
    """Returns what windows with events of entries begin before; 0: there are no entries."""
    ends = (entry.horizon + 1 if entry.horizon else ALL_WINDOWS for entry in entries)
    return max(ends, default=0)


def _missing(counted: Sums, recount: Recount, start: int | None) -> Sums:
    """What the ledger has counted of a window beyond the rows of a table."""
    missing = counted - recount.sums.get(start, Sums())
    return missing if recount.compares_ids(start) else replace(missing, hash=0)


def _missing_rows(hop: Hop, missing: Sums) -> Iterable[Imbalance]:
    """The difference of a recount; rows have no bytes to compare."""
    if missing.number or missing.hash:
        yield Imbalance(hop, missing.number, 0, missing.hash != 0)


def _rows_of(recount: Recount | None, start: int | None) -> int | None:
    if recount is None or recount.failure:
        return None
    return recount.sums.get(start, Sums()).number
