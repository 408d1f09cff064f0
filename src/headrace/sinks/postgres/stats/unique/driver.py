"""The driver's half of a table that counts events once."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import numpy as np

from headrace.errors import SinkError
from headrace.events.times import time_of
from headrace.model import CONFLICTING_KEY
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.settings import Secret
from headrace.sinks.api import (
    CommitRejection,
    CommitResult,
    RejectedValues,
    Transaction,
)
from headrace.sinks.postgres.connection import connect, translated_errors
from headrace.sinks.postgres.driver import PostgresDriver
from headrace.sinks.postgres.metrics import CONFLICTS, DUPLICATES, TOO_OLD
from headrace.sinks.postgres.recorded_table import RecordedTable, TableDeclaration
from headrace.sinks.postgres.rows import taken_out
from headrace.sinks.postgres.rows.staging import drop_tables
from headrace.sinks.postgres.stats.grouping import StatsGrouping
from headrace.sinks.postgres.stats.unique.keys_table import (
    JudgedEvent,
    UncountedReason,
    begin_keys,
    count_new,
    forget,
    lock_keys,
)
from headrace.sinks.postgres.stats.unique.staged_events import StagedEvents
from headrace.sinks.postgres.stats.unique.writer import (
    PIECE,
    CountedPiece,
    UniqueStatsWriter,
    counted_piece,
)
from headrace.sinks.postgres.stats.writer import StatsWriter
from headrace.sinks.postgres.target import TargetSpec
from headrace.sinks.row_json import row_json
from headrace.sinks.unique.compared_rows import ComparedRows
from headrace.sinks.unique.declaration import Unique

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.sinks.postgres.connection import Connection

    Beside = Callable[[Connection, RecordedTable, Transaction], None]

_FIGURES = {
    UncountedReason.DUPLICATE: DUPLICATES,
    UncountedReason.CONFLICT: CONFLICTS,
    UncountedReason.TOO_OLD: TOO_OLD,
}


class _NotCountedError(Exception):
    """The transaction of a batch is rolled back: some events must not be counted."""

    def __init__(self, events: Sequence[JudgedEvent]) -> None:
        super().__init__(f"{len(events)} events of the batch are not counted")
        self.events = events


@dataclass(frozen=True)
class _Batch:
    """The batch whose transaction is tried: its pieces by task, and how far event time is."""

    pieces: Sequence[CountedPiece] = ()
    reached: datetime | None = None


@dataclass(frozen=True)
class _Part:
    """What is left of a task, if anything, and the events that were taken out of it."""

    left: Sequence[CountedPiece]
    repeats: Sequence[pa.Table]
    rejected: Sequence[RejectedValues]


class UniqueStatsDriver(PostgresDriver):
    """An open table of statistics that counts events once.

    A sum that the table does not take ends the batch: no dead letter could stand for its events.

    Args:
        url: of the database.
        spec: the table.
        declaration: what its rows mean.
        beside: what else the transaction of a batch writes, before its rows.
        grouping: how events are grouped.
        rule: how they are compared.
        unique: as it is declared.
    """

    def __init__(  # noqa: PLR0913  a table, and how its events are distinguished
        self,
        url: Secret,
        spec: TargetSpec,
        declaration: TableDeclaration,
        beside: Beside,
        *,
        grouping: StatsGrouping,
        rule: ComparedRows,
        unique: Unique,
    ) -> None:
        super().__init__(url, declaration.pipeline, spec, declaration, self._count_once)
        self._write_beside, self._rule, self._unique = beside, rule, unique
        self._sums = functools.partial(StatsWriter, self.writers, grouping)
        self.writers = functools.partial(UniqueStatsWriter, url, self._prefix, self._sums, rule)
        self._batch = _Batch()

    def commit(
        self, pieces: Sequence[str], transaction: Transaction, watermark_us: int
    ) -> CommitResult | CommitRejection:
        """Adds the sums and records the keys and positions, in one transaction.

        Where events must not be counted, it is rolled back, and they are returned.
        """
        self._taken_out.begin(pieces)
        # In the order of their tasks, which decides which of two events in a batch is the first.
        staged = sorted(map(PIECE.decode, pieces), key=lambda piece: piece.events)
        self._batch = _Batch(staged, _reached(transaction, watermark_us))
        try:
            done = self._committed_at_last([piece.sums for piece in staged], transaction)
        except _NotCountedError as error:
            return self._without(staged, error.events)
        return replace(done, figures=self._taken_out.committed())

    def discard(self, pieces: Sequence[str]) -> None:
        """Drops what is staged, if the server answers; else the next start does."""
        staged = [PIECE.decode(piece) for piece in pieces]
        with suppress(SinkError), translated_errors(), connect(self._url) as connection:
            drop_tables(connection, [piece.sums.table for piece in staged])
            for piece in staged:
                StagedEvents(piece.events).drop(connection)

    def _count_once(
        self, connection: Connection, table: RecordedTable, transaction: Transaction
    ) -> None:
        """Records the keys of a batch in its transaction, before the sums are added.

        Raises:
            _NotCountedError: if some of its events are not to be counted.
            TableMismatchError: if the keys of the table's rows were deleted.
        """
        # Before the keys are read: commits of other pipelines to this table wait until this one
        # ends.
        lock_keys(connection, table.target)
        self._write_beside(connection, table, transaction)
        begin_keys(connection, table.name)
        batch, within = self._batch, self._unique.within
        staged = [StagedEvents(piece.events) for piece in batch.pieces]
        keys = [events.keys for events in staged]
        if judged := count_new(connection, table.name, keys, within):
            raise _NotCountedError(judged)
        if batch.reached is not None and within is not None:
            forget(connection, table.name, batch.reached, within)
        for events in staged:
            events.drop(connection)

    def _without(
        self, staged: Sequence[CountedPiece], judged: Sequence[JudgedEvent]
    ) -> CommitRejection:
        """Takes events out of the batch, and makes the sums of their tasks again.

        Raises:
            SinkError: if more than :data:`~.taken_out.MAX_DEAD_LETTERS` conflict, or are too old;
                or if staged events were deleted.
        """
        import pyarrow as pa

        reasons: dict[int, dict[int, UncountedReason]] = {}
        for event in judged:
            reasons.setdefault(event.task, {})[event.place] = event.reason
        counts = Counter(event.reason for event in judged)
        for reason, advice in self._advice().items():
            if counts[reason] > taken_out.MAX_DEAD_LETTERS:
                raise SinkError(f"table {self._spec.table}", f"{counts[reason]} {advice}")
        # Only tasks that had such an event are divided: the pieces of the others stay as they are.
        parts = [self._divided(staged[task], reasons[task]) for task in sorted(reasons)]
        left = [piece for task, piece in enumerate(staged) if task not in reasons]
        left += [piece for part in parts for piece in part.left]
        texts = [msgspec.json.encode(piece).decode() for piece in left]
        figures = {_FIGURES[reason]: count for reason, count in counts.items()}
        self._taken_out.add(figures, texts)
        rejected = [row for part in parts for row in part.rejected]
        repeats = [event for part in parts for event in part.repeats]
        return CommitRejection(rejected, texts, pa.concat_tables(repeats) if repeats else None)

    def _advice(self) -> Mapping[UncountedReason, str]:
        """Returns what to do where too many events of a batch are dead letters for a reason."""
        by = ", ".join(self._unique.by)
        return {
            UncountedReason.CONFLICT: (
                f"events of a batch have a key ({by}) that is counted with other values: name"
                " columns that differ in each duplicate in Unique.ignore"
            ),
            UncountedReason.TOO_OLD: (
                "events of a batch are of a time whose keys are no longer remembered: to count a"
                " topic again, empty the table, and reset its pipelines to the earliest record"
            ),
        }

    def _divided(self, piece: CountedPiece, reasons: Mapping[int, UncountedReason]) -> _Part:
        """Makes the sums of a task again, without the events at some places.

        Raises:
            SinkError: if staged events were deleted.
        """
        import pyarrow as pa

        staged, writer = StagedEvents(piece.events), self._sums(uuid4().hex)
        dropped = [*reasons]
        known = [place for place, reason in reasons.items() if reason is UncountedReason.DUPLICATE]
        others = np.setdiff1d(dropped, known)
        repeats: list[pa.Table] = []
        rejected: list[RejectedValues] = []
        with (
            translated_errors(),
            connect(self._url) as connection,
            cleaning_up_after_failure(writer.abort),
        ):
            every_place = staged.places(connection)
            if len(every_place) != piece.count:
                # A crash of the server empties tables that are not logged.
                reason = (
                    f"staging table {staged.keys} has {len(every_place)} of {piece.count} events"
                )
                raise SinkError(f"table {self._spec.table}", reason)
            counted = np.setdiff1d(every_place, dropped)
            for places, rows in staged.events(connection):
                is_counted = np.isin(places, counted)
                kept = rows.filter(pa.array(is_counted))
                for row in writer.write(kept) if kept.num_rows else ():
                    dropped.append(int(places[is_counted][row.index]))
                    values = row_json(kept.slice(row.index, 1))
                    rejected.append(RejectedValues(values, row.reason, row.detail))
                repeats.append(rows.filter(pa.array(np.isin(places, known))))
                for index in np.flatnonzero(np.isin(places, others)).tolist():
                    event = rows.slice(index, 1)
                    rejected.append(self._rejected(event, reasons[int(places[index])]))
            sums = writer.close()
            # After the new sums are staged, so that a failure before leaves the batch as it was.
            staged.remove(connection, dropped)
            drop_tables(connection, [piece.sums.table])
            if not sums:
                staged.drop(connection)
        count = piece.count - len(dropped)
        left = [counted_piece(text, piece.events, count) for text in sums]
        return _Part(left, repeats, rejected)

    def _rejected(self, event: pa.Table, reason: UncountedReason) -> RejectedValues:
        key = self._rule.shown_key(event)
        if reason is UncountedReason.CONFLICT:
            detail = f"an event with {key} is counted, with other values"
            return RejectedValues(row_json(event), CONFLICTING_KEY, detail)
        detail = (
            f"{self._rule.event_time} of the event with {key} is so early that it may be counted:"
            " the keys of its time are no longer remembered"
        )
        return RejectedValues(row_json(event), "too-old-to-compare", detail)


def _reached(transaction: Transaction, watermark_us: int) -> datetime | None:
    """Returns how far the event time of a pipeline is; None: it is not known."""
    if until := transaction.metadata.get("complete_until"):
        return datetime.fromisoformat(str(until))
    return time_of(watermark_us) if watermark_us else None
