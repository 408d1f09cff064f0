"""Reads one partition of both topics of a join in a Spark task, and joins them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headrace.kafka.read.range_reader import Record
from headrace.model import CONFLICTING_KEY, DeadLetter, Metadata, OffsetRange, TopicPartition
from headrace.pipelines.join.columns import joined_columns
from headrace.pipelines.join.declaration import Match
from headrace.pipelines.join.events import DecodedEvents, KeyedEvent, KeyedEvents
from headrace.pipelines.join.index.earlier_index import with_index
from headrace.pipelines.join.index.slices import slice_length_us
from headrace.pipelines.join.index.state import StateFolder
from headrace.pipelines.join.matching import JoinWindow
from headrace.pipelines.join.partition import JoinedBatch, JoinPartition
from headrace.pipelines.join.planner import PartitionWork
from headrace.pipelines.join.rows import UnmatchedRows, in_parts, joined_rows
from headrace.pipelines.join.tally import EarlierTally, LaterTally, event_hashes
from headrace.pipelines.ledger.counting.row_lineage import LINEAGE, lineage_column, lineage_type
from headrace.pipelines.ledger.counting.tally import LedgerColumns, SinkTally
from headrace.pipelines.source.decode import record_values
from headrace.pipelines.source.reading.reader import RangeReader, read_chunks
from headrace.pipelines.source.record_columns import record_offsets
from headrace.pipelines.source.report import JoinCounts, RangeReport
from headrace.pipelines.source.spec import SourceSpec
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.runtime.garbage import gc_paused
from headrace.sinks.api import WriterFactory
from headrace.storage import files as storage

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class JoinSpec:
    """A join as its planner and its tasks know it, picklable.

    Attributes:
        later: the topic whose events refer to earlier ones.
        earlier: the topic whose events are referred to.
        later_key: field of the later event.
        earlier_key: field of the earlier event that has the same value.
        column: of the rows, in which the earlier event is.
        window: which times go together.
        match: which earlier event goes with a later one.
        unmatched: writers of the sink of later events that found none; None: they go with others.
        unmatched_metadata: columns of the later record that this sink gets.
        later_id: path of the later event's id; None: its place in the topic is its id.
        adds_lineage: whether rows have the ledger's column, for the steps after the join.
    """

    later: SourceSpec
    earlier: SourceSpec
    later_key: str
    earlier_key: str
    column: str
    window: JoinWindow
    match: Match
    unmatched: WriterFactory | None = None
    unmatched_metadata: tuple[Metadata, ...] = ()
    later_id: str | None = None
    adds_lineage: bool = False

    @property
    def read_later(self) -> SourceSpec:
        """The later topic as it is read: which sink gets an event may not be known yet."""
        if self.unmatched is None:
            return self.later
        return replace(self.later, decoding=replace(self.later.decoding, partition_columns=()))

    def row_schema(self) -> pa.Schema:
        """Returns the columns: the later event, the earlier one, metadata, and the ledger's."""
        import pyarrow as pa

        later, earlier = self.later.decoding, self.earlier.decoding
        columns = joined_columns(later.schema, earlier.schema, self.column, later.metadata)
        return columns.append(pa.field(LINEAGE, lineage_type())) if self.adds_lineage else columns


class ReadEvents:
    """The events of one topic that a task has read, and their records.

    Attributes:
        records: in order of offset.
    """

    def __init__(self) -> None:
        self._parts: list[KeyedEvents] = []
        self.records: list[Record] = []

    def add(self, events: KeyedEvents, records: Sequence[Record]) -> None:
        """Adds the events of a chunk."""
        self._parts.append(events)
        self.records += records

    def events(self) -> KeyedEvents:
        """Returns all of them."""
        return KeyedEvents.concat(self._parts)


class JoinReader:
    """Reads and joins the work of one task."""

    def __init__(self, spec: JoinSpec, work: PartitionWork) -> None:
        self._spec = spec
        self._work = work
        self._partition = TopicPartition(spec.later.topic, work.partition)
        self._tally, self._earlier_tally = None, None
        if spec.later.ledger is not None and spec.earlier.ledger is not None:
            writes = spec.later.writers is not None
            self._tally = LaterTally(spec.later.ledger, self._partition, writes=writes)
            of_earlier = TopicPartition(spec.earlier.topic, work.partition)
            self._earlier_tally = EarlierTally(spec.earlier.ledger, of_earlier)
        self._readers: dict[str, RangeReader] = {}
        for read in work.ranges:
            if read.range is None:
                continue
            topic = read.range.partition.topic
            is_later = topic == spec.later.topic
            side = spec.read_later if is_later else spec.earlier
            listener = None if is_later else self._earlier_tally
            self._readers[topic] = RangeReader(side, read.range, read, listener)
        self._counts = JoinCounts()
        self._rejected: list[DeadLetter] = []
        self._unmatched: UnmatchedRows | None = None
        if spec.unmatched is not None:
            self._unmatched = UnmatchedRows(
                spec.unmatched, spec.later, spec.unmatched_metadata, work.partition
            )

    @property
    def sink_tally(self) -> SinkTally[LedgerColumns] | None:
        """Counts the rows that this task hands to the sink; None: there is nothing to count."""
        return None if self._tally is None else self._tally.sink

    def tables(self) -> Iterator[pa.Table]:
        """Joined rows, in order of the later offsets; nothing if there are none."""
        with gc_paused():
            yield from self._rows()

    def _rows(self) -> Iterator[pa.Table]:
        spec, work = self._spec, self._work
        read = {topic: ReadEvents() for topic in (spec.later.topic, spec.earlier.topic)}
        ranges = [planned.range for planned in work.ranges if planned.range is not None]
        for chunk in read_chunks(spec.later, ranges) if ranges else ():
            topic = chunk.partition.topic
            for rows, records in self._readers[topic].take_records(chunk):
                read[topic].add(self._keyed(topic, rows, records), records)
        earlier, later = (read[side.topic].events() for side in (spec.earlier, spec.later))
        joined = self._joined(earlier, [*later])
        self._reject(joined.conflicting, read[spec.earlier.topic].records)
        self._counts = joined.counts
        if self._tally is not None and self._earlier_tally is not None:
            self._tally.joined(joined)
            self._earlier_tally.joined(joined, earlier)
        # With a sink of their own, unmatched events are written here and are not among the rows.
        unmatched = joined.unmatched
        if self._unmatched is not None:
            for pairs in in_parts([], unmatched):
                part = [event for event, _ in pairs]
                taken = self._unmatched.write(part)
                self._rejected += taken.rejected
                if self._tally is not None:
                    self._tally.sent_to_side_table(part, taken)
            unmatched = []
        for pairs in in_parts(joined.matched, unmatched):
            forwarded = joined_rows(pairs, spec.later, spec.earlier, spec.column, work.partition)
            self._rejected += forwarded.rejected
            yield self._counted([event for event, _ in pairs], forwarded)

    def reports(self) -> list[RangeReport]:
        """What each range held; complete once ``tables`` is exhausted.

        The counts are in that of the later topic, which is there without a range, too.
        """
        reports = {topic: reader.report() for topic, reader in self._readers.items()}
        topic = self._spec.later.topic
        at = self._work.end.later
        nothing = OffsetRange(self._partition, at, at)
        later = reports.get(topic) or RangeReport(nothing, at, 0, 0, -1, ())
        later = replace(later, join=self._counts, dead=(*later.dead, *self._rejected))
        if self._unmatched is not None:
            later = replace(later, side_pieces=self._unmatched.close())
        if self._tally is not None and self._earlier_tally is not None:
            lines = (*later.ledger, *self._tally.lines(), *self._earlier_tally.lines())
            later = replace(later, ledger=lines, waiting=self._tally.waiting)
        return [*(reports | {topic: later}).values()]

    def aborting(self) -> AbstractContextManager[None]:
        """Removes what was written beside the rows if its body raises, or is closed early."""
        aborts = [reader.abort for reader in self._readers.values()]
        if self._unmatched is not None:
            aborts.append(self._unmatched.abort)
        return cleaning_up_after_failure(*aborts)

    def _keyed(self, topic: str, rows: pa.Table, records: Sequence[Record]) -> KeyedEvents:
        import pyarrow as pa

        is_later = topic == self._spec.later.topic
        side = self._spec.later if is_later else self._spec.earlier
        key = self._spec.later_key if is_later else self._spec.earlier_key
        offsets = record_offsets(records)
        # Without a ledger too, since it may be turned on while events wait.
        hashes = (
            event_hashes(self._spec.later_id, rows, self._partition, offsets)
            if is_later
            else np.zeros(len(records), np.uint64)
        )
        return KeyedEvents(
            keys=rows.column(key).cast(pa.string()).cast(pa.binary()).to_pylist(),
            times_us=rows.column(side.decoding.event_time).cast(pa.int64()).to_numpy(),
            offsets=offsets,
            values=[value or b"" for value in record_values(records, side.decoding.format)],
            hashes=hashes,
        )

    def _counted(self, events: Sequence[KeyedEvent], decoded: DecodedEvents) -> pa.Table:
        """Counts events that are passed on, and returns their rows."""
        if self._tally is None:
            return decoded.rows
        counted = self._tally.passed_on(events, decoded)
        if not self._spec.adds_lineage:
            return decoded.rows
        column = lineage_column(self._spec.later.number, self._work.partition, counted)
        return decoded.rows.append_column(LINEAGE, column)

    def _joined(self, earlier: KeyedEvents, later: Sequence[KeyedEvent]) -> JoinedBatch:
        spec, work = self._spec, self._work
        uri = storage.join(spec.later.files.checkpoint, "headrace", "join", str(work.partition))
        folder = StateFolder(uri, work.initial, spec.later.pipeline, spec.later.files.storage)
        # Outside of the checkpoint: an index is of this machine, and is recreated from the
        # state.
        name = blake2b(uri.encode(), digest_size=16).hexdigest()
        return with_index(
            Path(tempfile.gettempdir()) / f"headrace-join-{os.getuid()}" / name,
            slice_length_us(spec.window.within_us),
            lambda index: JoinPartition(folder, index, spec.window, spec.match).join(
                work.start, work.end, earlier, later
            ),
        )

    def _reject(self, conflicting: KeyedEvents, read: Sequence[Record]) -> None:
        if not len(conflicting):
            return
        records = {record.offset(): record for record in read}
        for event in conflicting:
            detail = f"{self._spec.earlier_key} {event.key.decode()!r} was there before with "
            self._readers[self._spec.earlier.topic].reject(
                records[event.offset], CONFLICTING_KEY, detail + "other values"
            )
