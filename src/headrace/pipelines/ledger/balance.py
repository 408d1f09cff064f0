"""Whether the sums of a ledger balance: the states of its windows, and gaps between its ranges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import lcm

from headrace.model import TopicPartition
from headrace.pipelines.ledger.breaks import breaks_of
from headrace.pipelines.ledger.entry import LedgerEntry, merged
from headrace.pipelines.ledger.reprocessed import (
    ReprocessedEntry,
    by_window,
    explains,
)
from headrace.pipelines.ledger.sums import FATES, Fate, Hop, Place, Sums, added
from headrace.pipelines.ledger.waiting import WaitingByPartition
from headrace.pipelines.ledger.windows import (
    Break,
    Imbalance,
    Progress,
    Recount,
    WindowBalance,
    WindowState,
)

_MICROSECONDS = 1_000_000


class Balance:
    """The balance of one pipeline, from the entries that count, of which there is one at least."""

    def __init__(
        self,
        entries: Sequence[LedgerEntry],
        progress: Progress,
        reprocessed: Sequence[ReprocessedEntry] = (),
        *,
        has_steps: bool,
        is_join: bool = False,
    ) -> None:
        """Adds the entries up.

        Args:
            entries: in any order.
            progress: of the pipeline.
            reprocessed: what was read once more.
            has_steps: whether there are steps before the sink.
            is_join: whether the events that were read go through a join.
        """
        total = merged(entries)
        seconds = lcm(total.window_seconds, *(entry.window_seconds for entry in reprocessed))
        self._total = total.with_windows(seconds)
        self._read_again = [range_ for entry in reprocessed for range_ in entry.ranges]
        self._changes = by_window(reprocessed, seconds)
        self._progress = progress
        self._before_sink = Hop.STEPS if has_steps else Hop.SINK
        self._is_join = is_join
        self._waiting = _waiting(self._total.waiting)
        self._waited = _waiting(self._total.waited)
        self.changed = self._total.changed
        self._windows: dict[int | None, dict[Place, Sums]] = {}
        for place, sums in added(self._total.lines).items():
            self._windows.setdefault(place.window, {})[place] = sums
        for place in {*self._waiting, *self._waited}:
            self._windows.setdefault(place.window, {}).setdefault(place, Sums())
        self.window_seconds = self._total.window_seconds
        self.unknown_before = self._total.unknown_before

    def breaks(self, recorded: Mapping[tuple[str, str, int], int]) -> list[Break]:
        """Returns gaps and overlaps of the ranges that were read.

        Args:
            recorded: by topic, topic id and partition, the positions that the sink records.
        """
        return breaks_of(self._total.ranges, recorded, self._read_again)

    def dead_letters(self) -> dict[TopicPartition | None, int]:
        """Returns how many records became dead letters by partition; None: rows at the sink."""
        dead: dict[TopicPartition | None, int] = {}
        for place, sums in added(self._total.lines).items():
            if place.fate is Fate.DEAD:
                is_record = place.hop is not Hop.SINK and place.partition >= 0
                partition = TopicPartition(place.topic, place.partition) if is_record else None
                dead[partition] = dead.get(partition, 0) + sums.number
        return dead

    def has_read(self, partition: TopicPartition, topic_id: str, offset: int) -> bool:
        """Returns whether a record was read since the ledger began."""
        place = (partition.topic, topic_id, partition.partition)
        return any(
            range_.place == place and range_.start <= offset < range_.end
            for range_ in self._total.ranges
        )

    def windows(
        self, recount: Recount | None = None, beside: Recount | None = None
    ) -> list[WindowBalance]:
        """Returns each window that has events, those without an event time first.

        Args:
            recount: of the table.
            beside: of the side table; None: there is none, or it was not counted.
        """
        counted = (count.sums for count in (recount, beside) if count is not None)
        starts = set(self._windows).union(*counted)
        ordered = sorted(starts, key=lambda start: -1 if start is None else start)
        return [self._window(start, recount, beside) for start in ordered]

    def _window(
        self, start: int | None, recount: Recount | None, beside: Recount | None
    ) -> WindowBalance:
        differences = [
            *self._differences(start),
            *self._recounted(start, recount),
            *self._recounted_beside(start, beside),
        ]
        unknown = self._unknown(start, recount) or self._unknown_beside(start, beside)
        if differences:
            state = WindowState.UNBALANCED
        elif unknown:
            state = WindowState.UNKNOWN
        else:
            state = self._time_state(start)
        fates = {fate: self._fate(fate, start) for fate in FATES}
        return WindowBalance(
            None if start is None else datetime.fromtimestamp(start, UTC),
            state,
            self._of(Hop.READ, Fate.IN, start).number,
            {fate: number for fate, number in fates.items() if number},
            tuple(differences),
            "" if differences else unknown,
            _rows_of(recount, start),
            _rows_of(beside, start),
        )

    def _fate(self, fate: Fate, start: int | None) -> int:
        """How many events ended so: those that leave a hop for the next one have not."""
        if fate is Fate.WAITING:
            return self._waits(start)
        hops = (Hop.SINK,) if fate is Fate.OUT else (Hop.READ, Hop.JOIN, Hop.STEPS, Hop.SINK)
        return sum(self._of(hop, fate, start).number for hop in hops)

    def _of(
        self, hop: Hop, fate: Fate, start: int | None, partition: TopicPartition | None = None
    ) -> Sums:
        window = self._windows.get(start, {})
        if partition is not None:
            place = Place(hop, fate, start, partition.topic, partition.partition)
            return window.get(place, Sums())
        return _sum(
            sums for place, sums in window.items() if (place.hop, place.fate) == (hop, fate)
        )

    def _differences(self, start: int | None) -> Iterable[Imbalance]:
        window = self._windows.get(start, {})
        for partition in sorted({TopicPartition(at.topic, at.partition) for at in window}):
            yield from self._of_partition(start, partition)

    def _of_partition(self, start: int | None, partition: TopicPartition) -> Iterable[Imbalance]:
        def of(hop: Hop, fate: Fate) -> Sums:
            return self._of(hop, fate, start, partition)

        name = f"{partition.topic}/{partition.partition}"
        read = _sum(of(Hop.READ, fate) for fate in FATES)
        yield from _difference(Hop.READ, of(Hop.READ, Fate.IN), read, name)
        going_on = of(Hop.READ, Fate.OUT)
        if self._is_join:
            joined = _sum(of(Hop.JOIN, fate) for fate in FATES)
            yield from _difference(Hop.JOIN, going_on, joined, name)
            yield from self._of_state(start, partition)
            going_on = of(Hop.JOIN, Fate.OUT)
        came = of(Hop.SINK, Fate.IN)
        dropped = _sum(of(Hop.STEPS, fate) for fate in FATES)
        yield from _difference(self._before_sink, going_on, came + dropped, name)
        yield from _difference(Hop.SINK, came, _sum(of(Hop.SINK, f) for f in FATES), name)

    def _of_state(self, start: int | None, partition: TopicPartition) -> Iterable[Imbalance]:
        """What has begun to wait, and not ended that, must be what waits after the last batch."""
        place = Place(Hop.JOIN, Fate.WAITING, start, partition.topic, partition.partition)
        began = self._waited.get(place, Sums()) + self._windows[start].get(place, Sums())
        held = self._waiting.get(place, Sums())
        yield from _difference(Hop.JOIN, began, held, f"{partition.topic}/{partition.partition}")

    def _waits(self, start: int | None) -> int:
        """How many later events of a join wait."""
        return sum(s.number for place, s in self._waiting.items() if place.window == start)

    def _recounted(self, start: int | None, recount: Recount | None) -> Iterable[Imbalance]:
        is_comparable = not self._into_steps(start) and not self._began_before(start)
        if recount is None or recount.failure or not is_comparable:
            return
        out, rows = self._of(Hop.SINK, Fate.OUT, start), recount.sums.get(start, Sums())
        missing = out - rows
        if not recount.has_ids:
            missing = replace(missing, hash=0)
        if not self._is_reprocessed(start, missing, recount):
            yield from _missing_rows(Hop.TABLE, missing)

    def _recounted_beside(self, start: int | None, beside: Recount | None) -> Iterable[Imbalance]:
        if beside is None or beside.failure or self._began_before(start):
            return
        missing = self._went_beside(start) - beside.sums.get(start, Sums())
        if not beside.has_ids:
            missing = replace(missing, hash=0)
        yield from _missing_rows(Hop.SIDE_TABLE, missing)

    def _went_beside(self, start: int | None) -> Sums:
        """Late events, and those that a join has not matched."""
        unmatched = self._of(Hop.JOIN, Fate.UNMATCHED, start)
        return self._of(Hop.READ, Fate.LATE, start) + unmatched

    def _unknown_beside(self, start: int | None, beside: Recount | None) -> str:
        if beside is None or not self._went_beside(start).number:
            return ""
        return beside.failure

    def _is_reprocessed(self, start: int | None, missing: Sums, recount: Recount) -> bool:
        changes = self._changes.get(start, [])
        if not recount.has_ids:
            changes = [replace(change, hash=0) for change in changes]
        return explains(changes, replace(missing, bytes=0))

    def _began_before(self, start: int | None) -> bool:
        return bool(self.unknown_before) and (start is None or start < self.unknown_before)

    def _into_steps(self, start: int | None) -> int:
        """How many events went into steps that do not count."""
        return self._of(Hop.STEPS, Fate.UNKNOWN, start).number

    def _unknown(self, start: int | None, recount: Recount | None) -> str:
        if self._into_steps(start):
            return self._total.uncounted
        if recount is not None and self._began_before(start):
            return "the table may hold rows from before the ledger began"
        if recount is not None and recount.failure:
            return recount.failure
        if silent := self._silent():
            return f"partition {silent} has reported nothing"
        return ""

    def _silent(self) -> str:
        """A partition that holds records, and that no batch has planned."""
        for partition, end in sorted((self._progress.ends or {}).items()):
            known = self._total.positions.get(partition.topic, {})
            if end > 0 and partition.partition not in known:
                return f"{partition.topic}/{partition.partition}"
        return ""

    def _time_state(self, start: int | None) -> WindowState:
        if start is None:
            return WindowState.BALANCED
        end_us = (start + self.window_seconds) * _MICROSECONDS
        clocks = [us for topic in self._total.clocks.values() for us in topic.values()]
        if max(clocks, default=0) < end_us:
            return WindowState.OPEN
        over_us = end_us + self._progress.allowed_us
        if max(clocks) < over_us or self._waits(start) or self._is_behind(over_us):
            return WindowState.CLOSING
        return WindowState.BALANCED

    def _is_behind(self, over_us: int) -> bool:
        """Whether a partition that is not read to its end may have events of a window in time."""
        ends = self._progress.ends
        return any(
            self._total.clocks.get(topic, {}).get(p, 0) < over_us
            and (ends is None or ends.get(TopicPartition(topic, p), 0) > position)
            for topic, positions in self._total.positions.items()
            for p, position in positions.items()
        )


def _sum(sums: Iterable[Sums]) -> Sums:
    return sum(sums, Sums())


def _waiting(waiting: WaitingByPartition) -> dict[Place, Sums]:
    held = (lines for partitions in waiting.values() for lines in partitions.values())
    return added(line for lines in held for line in lines)


def _missing_rows(hop: Hop, missing: Sums) -> Iterable[Imbalance]:
    """The difference of a recount; rows have no bytes to compare."""
    if missing.number or missing.hash:
        yield Imbalance(hop, missing.number, 0, missing.hash != 0)


def _rows_of(recount: Recount | None, start: int | None) -> int | None:
    if recount is None or recount.failure:
        return None
    return recount.sums.get(start, Sums()).number


def _difference(hop: Hop, came: Sums, went: Sums, partition: str) -> Iterable[Imbalance]:
    missing = came - went
    if missing != Sums():
        yield Imbalance(hop, missing.number, missing.bytes, missing.hash != 0, partition)
