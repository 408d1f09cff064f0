"""Writes the entry of each batch on the driver, before the sink's commit."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter

import msgspec
import numpy as np

from headrace.events.event_hash import hash_positions, hash_texts
from headrace.ledger.sums import Fate, Hop, Sums
from headrace.model.event import value_at
from headrace.pipelines.ledger.counting.table_columns import ledger_columns
from headrace.pipelines.ledger.counting.tally import POSITION, LedgerRule
from headrace.pipelines.ledger.counting.waiting import Waiting, WaitingByPartition
from headrace.pipelines.ledger.entry import EntryRange, LedgerEntry, Span
from headrace.pipelines.ledger.folder import LedgerFolder
from headrace.pipelines.ledger.sums import LedgerKey, LedgerLine, added, lines_of, side_table_fate
from headrace.pipelines.source.report import RangeReport
from headrace.pipelines.start.checkpoint import PlannedBatch
from headrace.sinks.api import CommitRejection

# A listing stays short: at most 127 entries of single batches, and 63 of each level of merged ones.
MERGED_AT_ONCE = 64
# Entries of so many batches are single ones: a reader leaves out what was merged with entries of
# batches that were committed after it had looked which ones count.
KEPT_SINGLE = 64
_UNKNOWN_PARTITION = -1
_LOG = logging.getLogger("headrace.pipelines")


@dataclass(frozen=True)
class CountedRows:
    """How far the rows at the sink can be distinguished.

    Attributes:
        uncounted: why they are not counted, as a sentence; empty: they are.
        changed: columns of ids and windows that are not in the table as they were read.
        come_from: the hop that they come from: that of the read tasks, or a join.
        counted_by: see :attr:`LedgerEntry.counted_by`.
        side_table: label of the sink of late or unmatched events; empty: they are dead letters.
    """

    uncounted: str = ""
    changed: tuple[str, ...] = ()
    come_from: Hop = Hop.READ
    counted_by: tuple[tuple[str | None, str | None], ...] = ()
    side_table: str = ""


@dataclass(frozen=True)
class RecordedBatch:
    """What the entry of a batch is made from.

    Attributes:
        planned: the offsets.
        reports: of its ranges.
        lines: of its steps, and of the rows after them.
        clocks: event clocks after it, by topic and partition, in microseconds since 1970.
        adds_to_rows: whether the sink holds rows of the pipeline from before.
        is_in_side_table: whether the side table holds the batch already: its commit, and what the
            entry was corrected by for it, are those of an earlier attempt.
    """

    planned: PlannedBatch
    reports: Sequence[RangeReport]
    lines: Sequence[LedgerLine]
    clocks: Mapping[str, Mapping[int, int]]
    adds_to_rows: bool
    is_in_side_table: bool = False


class Ledger:
    """The entries of one checkpoint of a pipeline, on its driver. Used on one thread."""

    def __init__(
        self,
        folder: LedgerFolder,
        checkpoint: int,
        rule: LedgerRule,
        rows: CountedRows,
        *,
        latest_ahead_us: int,
        held: Mapping[str, int] | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            folder: of the pipeline.
            checkpoint: its number.
            rule: of the first topic, to which rows belong that only the commit rejects.
            rows: of its sink.
            latest_ahead_us: how far event times may be ahead of the clock.
            held: see :attr:`LedgerEntry.held`.
        """
        self._folder = folder
        self._checkpoint = checkpoint
        self._rule = rule
        self._rows = rows
        self._latest_ahead_us = latest_ahead_us
        self._held = held
        self._spans: list[Span] | None = None
        self._began_late: bool | None = None
        self._entry: LedgerEntry | None = None

    def record(self, batch: RecordedBatch) -> None:
        """Writes the entry of a batch; what was written of an earlier attempt is replaced.

        Raises:
            OSError: if the entry can't be written; nothing of the batch may be committed then.
        """
        planned = batch.planned
        if self._entry is None:  # the first one of a run: the batches of a run follow one another
            self._folder.cut(self._checkpoint, planned.batch_id)
        lines = [line for report in batch.reports for line in report.ledger]
        unknown = self._into_steps(lines) if self._rows.uncounted else ()
        corrected = (
            self._corrected_for_side_table(planned.batch_id) if batch.is_in_side_table else ()
        )
        self._entry = LedgerEntry(
            checkpoint=self._checkpoint,
            first=planned.batch_id,
            last=planned.batch_id,
            window_seconds=self._rule.window_seconds,
            ranges=tuple(_ranges(planned)),
            lines=lines_of(added((*lines, *batch.lines, *unknown, *corrected))),
            clocks=batch.clocks,
            positions={topic: dict(end.partitions) for topic, end in planned.ends.items()},
            unknown_before=self._unknown_before(batch),
            uncounted=self._rows.uncounted,
            changed=self._rows.changed,
            waited=_by_partition(batch.reports, attrgetter("before")),
            waiting=_by_partition(batch.reports, attrgetter("after")),
            began=tuple(_began(planned)),
            horizon=self._horizon(planned),
            held=self._held,
            counted_by=self._rows.counted_by,
            side_tables=(self._rows.side_table,),
        )
        self._folder.write(self._entry)

    def correct(self, rejection: CommitRejection, topic: str) -> None:
        """Corrects the entry by rows that a commit did not take, before it is tried again."""
        if not self._rows.uncounted:
            self._correct(rejection, topic, (Hop.SINK, Fate.OUT), self._rows.changed)

    def correct_for_side_table(self, rejection: CommitRejection, topic: str) -> None:
        """Corrects the entry by rows that the commit of the side table did not take."""
        self._correct(rejection, topic, side_table_fate(self._rows.come_from), ())

    def _correct(
        self,
        rejection: CommitRejection,
        topic: str,
        came: tuple[Hop, Fate],
        changed: Collection[str],
    ) -> None:
        if self._entry is None:
            return
        moved = [(Fate.DEAD, *self._identity(row.values, changed)) for row in rejection.rejected]
        lines = [
            line
            for fate, window, hash_ in moved
            for line in _moved(came, fate, window, topic, Sums(1, 0, hash_))
        ]
        if rejection.repeats is not None:
            duplicates = ledger_columns(self._rule, rejection.repeats, changed)
            for window, sums in duplicates.sums.items():
                lines += _moved(came, Fate.DEDUPLICATED, window, topic, sums)
        self._entry = replace(self._entry, lines=lines_of(added((*self._entry.lines, *lines))))
        self._folder.write(self._entry)

    def committed(self, batch_id: int) -> None:
        """Merges entries from time to time; if that fails, retries after the next batch."""
        if self._entry is None or self._entry.last != batch_id:
            return  # the batch has read nothing, so it has no entry
        try:
            self._merge_before(batch_id)
        except Exception as error:  # noqa: BLE001  the batch is committed, whatever this was
            self._spans = None
            _LOG.warning("Entries of the ledger were not merged, trying again later: %s", error)

    def _merge_before(self, batch_id: int) -> None:
        if self._spans is None:
            self._spans = [s for s in self._folder.spans() if s.checkpoint == self._checkpoint]
        else:
            self._spans.append(Span(self._checkpoint, 0, batch_id, batch_id))
        level = 0
        while len(spans := self._before(level, batch_id)) >= MERGED_AT_ONCE:
            span = self._folder.merge(spans)
            self._spans = [kept for kept in self._spans if kept not in spans] + [span]
            level += 1

    def _before(self, level: int, batch_id: int) -> list[Span]:
        spans = self._spans or []
        merged_to = batch_id - KEPT_SINGLE
        return [span for span in spans if span.level == level and span.last <= merged_to]

    def _unknown_before(self, batch: RecordedBatch) -> int:
        """The end of what rows from before the ledger can reach, where there are such rows."""
        if self._began_late is None:
            own = Span(self._checkpoint, 0, batch.planned.batch_id, batch.planned.batch_id)
            # One of this batch was written by an attempt that did not commit it.
            is_first = all(span == own for span in self._folder.spans())
            self._began_late = batch.adds_to_rows and is_first
        if not self._began_late:
            return 0
        self._began_late = False
        return self._horizon(batch.planned)

    def _horizon(self, planned: PlannedBatch) -> int:
        return (planned.planned_ms * 1000 + self._latest_ahead_us) // 1_000_000

    def _into_steps(self, lines: Iterable[LedgerLine]) -> Iterator[LedgerLine]:
        """Lines for events that went into steps which do not report their fate."""
        for line in lines:
            if (line.key.hop, line.key.fate) == (self._rows.come_from, Fate.OUT):
                yield replace(line, key=replace(line.key, hop=Hop.STEPS, fate=Fate.UNKNOWN))

    def _corrected_for_side_table(self, batch_id: int) -> Sequence[LedgerLine]:
        try:
            entry = self._folder.read(Span(self._checkpoint, 0, batch_id, batch_id))
        except FileNotFoundError:  # the folder was deleted, to start over
            return ()
        hop, _ = side_table_fate(self._rows.come_from)
        at = (hop, _UNKNOWN_PARTITION)
        return [line for line in entry.lines if (line.key.hop, line.key.partition) == at]

    def _identity(self, text: str, changed: Collection[str]) -> tuple[int | None, int]:
        """Returns the window and the hash of a row that is only known as JSON.

        Columns that steps have ``changed`` are left out, and so is a time of another form.
        """
        decoded = msgspec.json.decode(text)
        values = {name: value for name, value in decoded.items() if name not in changed}
        hash_ = self._hash(values)
        time = values.get(self._rule.event_time) if self._rule.event_time else None
        try:
            at = datetime.fromisoformat(time)  # type: ignore[arg-type]  # also of no text
        except (TypeError, ValueError):
            return None, hash_
        seconds = math.floor(at.replace(tzinfo=at.tzinfo or UTC).timestamp())
        return seconds - seconds % self._rule.window_seconds, hash_

    def _hash(self, values: Mapping[str, object]) -> int:
        import pyarrow as pa

        if self._rule.event_id is not None:
            id_ = value_at(values, self._rule.event_id)
            return int(hash_texts(pa.array([id_], pa.string()))[0]) if isinstance(id_, str) else 0
        match [values.get(name) for name in POSITION]:
            case [str(topic), int(partition), int(offset)]:
                [hash_] = hash_positions(topic, partition, np.array([offset], np.int64)).tolist()
                return int(hash_)
        return 0


class PausedLedger:
    """A ledger that is turned off: it writes no entry. Used on one thread."""

    def __init__(self, folder: LedgerFolder, checkpoint: int) -> None:
        """Reads nothing yet; the arguments are those of :class:`Ledger`."""
        self._folder = folder
        self._checkpoint = checkpoint
        self._has_begun = False

    def record(self, batch: RecordedBatch) -> None:
        """Forgets, before the first batch of a run, entries that would be taken for its own.

        They are of a history that was ended by putting an older copy of the sink in place.

        Raises:
            OSError: if an entry can't be deleted; nothing of the batch may be committed then.
        """
        if not self._has_begun:
            self._folder.cut(self._checkpoint, batch.planned.batch_id - 1)
            self._has_begun = True

    def correct(self, rejection: CommitRejection, topic: str) -> None:
        """Corrects nothing."""

    def correct_for_side_table(self, rejection: CommitRejection, topic: str) -> None:
        """Corrects nothing."""

    def committed(self, batch_id: int) -> None:
        """Merges nothing."""


def _by_partition(
    reports: Iterable[RangeReport], lines: Callable[[Waiting], tuple[LedgerLine, ...]]
) -> WaitingByPartition:
    by_topic: dict[str, dict[int, tuple[LedgerLine, ...]]] = {}
    for report in reports:
        if report.waiting is not None:
            partition = report.range.partition
            by_topic.setdefault(partition.topic, {})[partition.partition] = lines(report.waiting)
    return by_topic


def _moved(
    came: tuple[Hop, Fate], fate: Fate, window: int | None, topic: str, sums: Sums
) -> Sequence[LedgerLine]:
    """Lines that give rows another fate at their hop."""
    hop, before = came
    out, other = (
        LedgerKey(hop, fate_, window, topic, _UNKNOWN_PARTITION) for fate_ in (before, fate)
    )
    return LedgerLine(out, Sums() - sums), LedgerLine(other, sums)


def _began(planned: PlannedBatch) -> Iterator[EntryRange]:
    for topic, begin in planned.initial.items():
        for number, at in begin.partitions.items():
            yield EntryRange(topic, planned.ends[topic].topic_id, number, at, at)


def _ranges(planned: PlannedBatch) -> Iterator[EntryRange]:
    for range_ in planned.ranges:
        topic, number = range_.partition.topic, range_.partition.partition
        yield EntryRange(topic, planned.ends[topic].topic_id, number, range_.start, range_.end)
