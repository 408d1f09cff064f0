"""Counts the events of a join for the ledger, in the task that joins them.

======= ============ ==========================================================================
event   fate         meaning
======= ============ ==========================================================================
earlier kept         later ones can ask for it from now on
earlier deduplicated its id was there before with the same bytes
earlier dead         its id was there before with other bytes
earlier expired      it is older than all that is kept: at most later ones of its own batch get it
later   out          its row is passed on, with its earlier event or without
later   unmatched    the sink of those that found none has taken its row
later   dead         it has waited and is no event of its topic any more, or that sink rejects it
later   waiting      added in the batch in which it begins to wait, taken off in that in which it
                     comes out
======= ============ ==========================================================================

Each is counted where it happens, none as what the others leave: what is lost or comes twice would
not be seen otherwise. What waits before and after a batch is counted in the state that the batch
has read and the one that it has written, so an event that is lost from the state is seen, too.

A batch that is repeated begins with the same state, so it gives the same sums.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from headrace.events.event_hash import Hashes, hash_positions
from headrace.ledger.sums import Fate, Hop
from headrace.model import TopicPartition
from headrace.pipelines.join.events import DecodedEvents, KeyedEvent, KeyedEvents
from headrace.pipelines.join.partition import JoinedBatch
from headrace.pipelines.ledger.counting.tally import (
    Integers,
    LedgerColumns,
    LedgerRule,
    RangeTally,
    SinkTally,
    Tally,
    event_windows,
    id_hashes,
    value_bytes,
)
from headrace.pipelines.ledger.counting.waiting import Waiting, waiting_lines
from headrace.pipelines.ledger.sums import LedgerLine

if TYPE_CHECKING:
    import pyarrow as pa

_MICROSECONDS = 1_000_000
_offset = attrgetter("offset")


def event_offsets(events: Collection[KeyedEvent]) -> Integers:
    """Returns the offset of each event."""
    return np.fromiter(map(_offset, events), np.int64, len(events))


def event_hashes(
    event_id: str | None, rows: pa.Table, partition: TopicPartition, offsets: Integers
) -> Hashes:
    """Returns the hash of each event's id, or of its record's position where events have none.

    Args:
        event_id: path of the field with the id; None: events have none.
        rows: of the events.
        partition: the partition of their records.
        offsets: of their records.
    """
    if event_id is not None:
        return id_hashes(event_id, rows)
    return hash_positions(partition.topic, partition.partition, offsets)


class EarlierTally:
    """The sums of one batch of the earlier topic. Used on one thread, for one attempt of a task."""

    def __init__(self, rule: LedgerRule, partition: TopicPartition) -> None:
        self._tally = RangeTally(rule, partition)
        self._chunks: list[LedgerColumns] = []

    def expect(self, _tally: Tally[LedgerColumns], columns: LedgerColumns) -> None:
        """Takes what was counted of the events of the next chunk that was read."""
        self._chunks.append(columns)

    def joined(self, batch: JoinedBatch, read: KeyedEvents) -> None:
        """Counts the events of all chunks, which are ``read`` in their order, by their fates."""
        if not self._chunks:
            return
        columns = LedgerColumns(
            np.concatenate([chunk.windows for chunk in self._chunks]),
            np.concatenate([chunk.bytes for chunk in self._chunks]),
            np.concatenate([chunk.hashes for chunk in self._chunks]),
        )
        fates: Mapping[Fate, KeyedEvents] = {
            Fate.KEPT: batch.kept,
            Fate.EXPIRED: batch.expired,
            Fate.DEDUPLICATED: batch.repeated,
            Fate.DEAD: batch.conflicting,
        }
        for fate, events in fates.items():
            if len(events):
                indices = np.searchsorted(read.offsets, events.offsets)
                self._tally.add(Hop.JOIN, fate, columns.take(indices))

    def lines(self) -> tuple[LedgerLine, ...]:
        """Returns what was counted."""
        return self._tally.lines()


class LaterTally:
    """The sums of one batch of the later topic. Used on one thread, for one attempt of a task.

    Attributes:
        sink: counts the rows that the task hands to the sink; None: steps come in between.
        waiting: what waits, before and after the batch.
    """

    def __init__(self, rule: LedgerRule, partition: TopicPartition, *, writes: bool) -> None:
        self._rule = rule
        self._partition = partition
        self._tally = RangeTally(rule, partition)
        self.sink = SinkTally[LedgerColumns]() if writes else None
        self.waiting = Waiting()

    def joined(self, batch: JoinedBatch) -> None:
        """Counts what waits."""
        before, after = (
            waiting_lines(
                self._partition.topic, self._partition.partition, self._columns(events).sums
            )
            for events in (batch.waited, batch.waiting)
        )
        self.waiting = Waiting(before, after)

    def passed_on(self, events: Sequence[KeyedEvent], decoded: DecodedEvents) -> LedgerColumns:
        """Counts events that are passed on, and notes their rows, which go to the sink next.

        Args:
            events: matched or not.
            decoded: their rows, and the dead letters of those that have none.

        Returns:
            what is counted of the rows.
        """
        dead = {letter.offset for letter in decoded.rejected}
        forwarded = [event for event in events if event.offset not in dead] if dead else events
        self._tally.add(Hop.JOIN, Fate.OUT, self._columns(forwarded))
        self._count_dead(events, dead)
        columns = self._row_columns(decoded)
        if self.sink is not None:
            self.sink.expect(self._tally, columns)
        return columns

    def sent_to_side_table(self, events: Sequence[KeyedEvent], decoded: DecodedEvents) -> None:
        """Counts unmatched events by the rows that a sink of their own has taken.

        Args:
            events: all of them.
            decoded: the rows, and the dead letters of those that have none.
        """
        self._tally.add(Hop.JOIN, Fate.UNMATCHED, self._row_columns(decoded))
        self._count_dead(events, {letter.offset for letter in decoded.rejected})

    def lines(self) -> tuple[LedgerLine, ...]:
        """Returns what was counted."""
        return (*self._tally.lines(), *self.waiting.lines)

    def _count_dead(self, events: Sequence[KeyedEvent], offsets: Collection[int]) -> None:
        if offsets:
            dead = [event for event in events if event.offset in offsets]
            self._tally.add(Hop.JOIN, Fate.DEAD, self._columns(dead))

    def _columns(self, events: Sequence[KeyedEvent]) -> LedgerColumns:
        length, count = self._rule.window_seconds, len(events)
        times = np.fromiter((event.time_us for event in events), np.int64, count)
        return LedgerColumns(
            times // (length * _MICROSECONDS) * length,
            value_bytes([event.value for event in events]),
            np.fromiter((event.hash for event in events), np.uint64, count),
        )

    def _row_columns(self, decoded: DecodedEvents) -> LedgerColumns:
        # Of the rows: an event whose row is lost on the way to the sink must not be counted.
        rows, count = decoded.rows, decoded.rows.num_rows
        sizes = value_bytes([event.value for event in decoded.events])[:count]
        offsets = event_offsets(decoded.events)[:count]
        hashes = event_hashes(self._rule.event_id, rows, self._partition, offsets)
        return LedgerColumns(event_windows(self._rule, rows), sizes, hashes)
