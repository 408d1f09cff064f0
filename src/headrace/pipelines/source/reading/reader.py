"""Reads one offset range with librdkafka and decodes it to Arrow, in a Spark task."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from headrace.errors import RecordsDeletedError, RefusedError
from headrace.kafka.client.headers import headers_of
from headrace.kafka.dead_letters.limiter import BadRuns
from headrace.kafka.dead_letters.replayed import PartitionId
from headrace.kafka.read.range_reader import CHUNK_RECORDS, Chunk, Record
from headrace.ledger.sums import Fate, Hop
from headrace.model import DeadLetter, OffsetRange
from headrace.pipelines.late_data.batch_watermark import late_watermark_us
from headrace.pipelines.late_data.event_clock import EventTimeSamples
from headrace.pipelines.late_data.late_events import LateEvents
from headrace.pipelines.late_data.rule import LATE_EVENT, LateRule
from headrace.pipelines.ledger.counting.row_lineage import LINEAGE, lineage_column
from headrace.pipelines.ledger.counting.tally import (
    LedgerColumns,
    RangeTally,
    ReadListener,
    SinkTally,
    value_bytes,
)
from headrace.pipelines.source.decode import Decoded, decoder_for, record_values
from headrace.pipelines.source.decode.checks import EventTimeBounds, RowChecks
from headrace.pipelines.source.decode.decoder import decode_others
from headrace.pipelines.source.reading.addressed import Addressed
from headrace.pipelines.source.reading.bad_records import BadRecords
from headrace.pipelines.source.reading.deletions import Deletions, Parted
from headrace.pipelines.source.reading.envelopes import EnvelopeReader, event_index
from headrace.pipelines.source.reading.event_chunk import EventChunk
from headrace.pipelines.source.reading.key_places import KeyPlaces
from headrace.pipelines.source.record_columns import timestamp_ms, with_record_columns
from headrace.pipelines.source.report import LateCounts, RangeReport
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.runtime.garbage import gc_paused
from headrace.sinks.api import DELETED

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events import Rejection
    from headrace.pipelines.source.spec import RecordDecoding, SourceSpec

HEARTBEAT = "_headrace_heartbeat"
HEADERS_LEFT_OUT = "its headers are left out: the name of one is not UTF-8"


@dataclass(frozen=True)
class ReadRange:
    """One task's work: a range, and the clock that its event times are checked against.

    Without a range it is a heartbeat: one row that carries nothing but ``heartbeat_us``. Records
    that were replayed to the topic of ``topic_id`` for others are looked for where
    ``may_hold_replays`` says so. With a refusal it must not be read: its offsets mean other
    records now. ``event_us`` is the event clock of the partition, by which events are late.
    ``range_count`` is how many ranges the batch has. ``ends`` says where each partition of the
    topic ends, if keys must not have moved between them.
    """

    range: OffsetRange | None
    planned_ms: int
    heartbeat_us: int = 0
    may_hold_replays: bool = False
    refusal: RefusedError | None = None
    topic_id: str = ""
    event_us: int | None = None
    range_count: int = 1
    ends: Mapping[int, int] = field(default_factory=dict)


class TaskReader:
    """Reads the ranges of one task together, as one consumer gets them from the brokers.

    Attributes:
        sink_tally: counts the rows that this task hands to the sink; None: it hands none, or there
            is no ledger.
    """

    def __init__(self, spec: SourceSpec, work: Sequence[ReadRange]) -> None:
        self._spec = spec
        self._ranges = [read.range for read in work if read.range is not None]
        is_counted = spec.ledger is not None and spec.writers is not None
        self.sink_tally = SinkTally[LedgerColumns]() if is_counted else None
        self._readers = {
            read.range.partition: RangeReader(spec, read.range, read, self.sink_tally)
            for read in work
            if read.range is not None
        }

    def tables(self) -> Iterator[pa.Table]:
        """Decoded chunks, each of one range; those of a range in order of offset."""
        with gc_paused():
            for chunk in read_chunks(self._spec, self._ranges):
                yield from self._readers[chunk.partition].take(chunk)

    def reports(self) -> list[RangeReport]:
        """What each range held; complete once ``tables`` is exhausted."""
        return [reader.report() for reader in self._readers.values()]

    def aborting(self) -> AbstractContextManager[None]:
        """Removes what was written beside the rows if its body raises, or is closed early."""
        return cleaning_up_after_failure(*(reader.abort for reader in self._readers.values()))


def read_chunks(spec: SourceSpec, ranges: Sequence[OffsetRange]) -> Iterator[Chunk]:
    """Yields the records of ranges, in chunks of one range each.

    Raises:
        RecordsDeletedError: if records of a range were deleted.
    """
    try:
        yield from spec.cluster.read(ranges)
    except RecordsDeletedError as error:
        raise replace(error, pipeline=spec.pipeline) from error  # its remedy names a command


class RangeReader:
    """Reads and decodes one range; ``report`` is complete once ``tables`` is exhausted."""

    def __init__(
        self,
        spec: SourceSpec,
        range_: OffsetRange,
        read: ReadRange,
        read_listener: ReadListener | None = None,
    ) -> None:
        self._spec = spec
        self._range = range_
        decoding = spec.decoding
        self._decoder = decoder_for(
            decoding.format, decoding.schema, decoding.registry, decoding.needed_columns
        )
        self._time_checks = RowChecks(_bounds(decoding, read.planned_ms), ())
        self._sink_checks = RowChecks(None, decoding.partition_columns)
        self._position = range_.start
        self._place = PartitionId(range_.partition, read.topic_id)
        self._addressed = Addressed(
            spec.pipeline,
            self._place,
            read.planned_ms,
            may_hold_replays=read.may_hold_replays,
            leaves_out_replays=spec.selection.leaves_out_replays,
        )
        self._envelopes = None if decoding.envelope is None else EnvelopeReader(decoding.envelope)
        self._deletions = _deletions(decoding)
        self._key_places = (
            KeyPlaces(range_.partition, read.ends, spec.pipeline) if read.ends else None
        )
        self._records = 0
        self._tombstones = 0
        self._envelope_count = 0
        self._bytes = 0
        self._last_timestamp_ms = -1
        self._bad_runs = BadRuns()
        self._bad = BadRecords(spec.dead_letter_limit, read.range_count)
        self._event_times = EventTimeSamples(decoding.event_time)
        self._late = LateEvents(
            spec.late,
            decoding.event_time,
            _late_before_us(spec.late, read.event_us),
            is_replayed=self._addressed.is_replayed,
            side_rows=self._side_rows,
        )
        self._tally = RangeTally(spec.ledger, range_.partition) if spec.ledger else None
        self._read_listener = read_listener

    def tables(self) -> Iterator[pa.Table]:
        """Decoded chunks: the event's fields, then the metadata columns asked for."""
        with gc_paused():
            for chunk in read_chunks(self._spec, [self._range]):
                yield from self.take(chunk)

    def take(self, chunk: Chunk) -> Iterator[pa.Table]:
        """Decodes one chunk of the range; there may be nothing in it."""
        for rows, _ in self.take_records(chunk):
            yield rows

    def take_records(self, chunk: Chunk) -> Iterator[tuple[pa.Table, Sequence[Record]]]:
        """Decodes one chunk to rows, with the records that they are of."""
        records = self._addressed.of(chunk.records)
        if self._key_places is not None:
            self._key_places.check(records)
        if records:
            self._last_timestamp_ms = timestamp_ms(records[-1]) or self._last_timestamp_ms
        if self._envelopes is not None:
            with_value = self._parted(records).records
            yield from self._events_decoded(with_value, self._envelopes, chunk.position)
            return
        self._position = chunk.position
        records, rejected, deletions = self._parted(self._without_left_out(records))
        if records or deletions:
            yield self._decoded(records, rejected, deletions)

    def reject(self, record: Record, reason: str, detail: str) -> None:
        """Makes a dead letter of a record that was decoded."""
        letter = _dead_letter(record, self._range, reason, detail)
        self._bad.take([letter], self._bad_runs.longest)

    def report(self) -> RangeReport:
        """Returns what the range held, and ends what is written of it; called once."""
        return RangeReport(
            range=self._range,
            position=self._position,
            records=self._records,
            bytes=self._bytes,
            last_timestamp_ms=self._last_timestamp_ms,
            event_times=self._event_times.samples(),
            bad_runs=self._bad_runs,
            dead=tuple(self._bad.kept),
            replays_skipped=self._addressed.skipped,
            omitted=self._bad.omitted,
            late=LateCounts(self._late.count, self._late.written, self._late.dead),
            side_pieces=self._late.close(),
            envelopes=self._envelope_count,
            tombstones=self._tombstones,
            ledger=self._tally.lines() if self._tally else (),
        )

    def abort(self) -> None:
        """Removes what was written of the range, where its task fails."""
        self._late.abort()

    def _events_decoded(
        self, records: Sequence[Record], envelopes: EnvelopeReader, position: int
    ) -> Iterator[tuple[pa.Table, Sequence[Record]]]:
        """Decodes the events of envelopes, about as many at a time as a chunk has records."""
        events: list[Record] = []
        undivided: dict[int, Rejection] = {}
        for record in records:
            if len(events) >= CHUNK_RECORDS:
                yield self._decoded(events, undivided)
                events, undivided = [], {}
            self._envelope_count += 1
            divided = envelopes.events_of(record)
            if isinstance(divided, list):
                events += self._without_left_out(divided)
            else:
                undivided[len(events)] = divided
                events.append(record)
        # Not before: a reader that is left here has not read the chunk.
        self._position = position
        if events:
            yield self._decoded(events, undivided)

    def _parted(self, records: Sequence[Record]) -> Parted:
        """Parts records from tombstones, which delete rows of the sink or are left out."""
        if self._deletions is not None:
            return self._deletions.parted(records)
        if not self._spec.selection.leaves_out_tombstones:
            return Parted(records, {}, ())
        with_value = [record for record in records if record.value() is not None]
        if tombstones := len(records) - len(with_value):
            self._tombstones += tombstones
            if self._tally:
                self._tally.rejected(Fate.TOMBSTONE, np.zeros(tombstones, np.int64))
        return Parted(with_value, {}, ())

    def _without_left_out(self, records: Sequence[Record]) -> Sequence[Record]:
        left_out, partition = self._spec.selection.left_out, self._range.partition
        if not left_out:
            return records
        indices = (event_index(record) for record in records)
        return [
            record
            for record, index in zip(records, indices, strict=True)
            if (partition, record.offset(), -1 if index is None else index) not in left_out
        ]

    def _decoded(
        self,
        records: Sequence[Record],
        undivided: Mapping[int, Rejection] | None = None,
        deletions: Sequence[Record] = (),
    ) -> tuple[pa.Table, Sequence[Record]]:
        written = record_values(records, self._spec.decoding.format)
        decoded = decode_others(self._decoder, written, undivided or {})
        decoded = self._time_checks.applied(decoded, len(records))
        chunk = EventChunk(records, deletions, decoded)
        for stage in self._STAGES:
            stage(self, chunk)
        return chunk.rows, chunk.events

    def _count_in(self, chunk: EventChunk) -> None:
        sizes = value_bytes([record.value() for record in chunk.records])
        self._records += len(chunk.records) + len(chunk.deletions)
        self._bytes += int(sizes.sum())
        if self._tally is None:
            return
        if chunk.bad:
            self._tally.rejected(Fate.DEAD, sizes[chunk.bad])
            sizes = sizes[chunk.places]
        chunk.counted = self._tally.columns(chunk.rows, chunk.events, sizes)
        self._tally.add(Hop.READ, Fate.IN, chunk.counted)

    def _sample_times(self, chunk: EventChunk) -> None:
        self._event_times.add(chunk.rows)

    def _divert_late(self, chunk: EventChunk) -> None:
        on_time = self._late.without(chunk.rows, chunk.events)
        self._leave_out(chunk, on_time.diverted, on_time.rejected)
        chunk.rows, chunk.events = on_time.rows, on_time.records

    def _check_for_sink(self, chunk: EventChunk) -> None:
        decoded = Decoded(chunk.rows, {})
        if self._deletions is not None:
            decoded = self._deletions.checked(chunk.rows, chunk.events)
        judged = self._sink_checks.applied(decoded, len(chunk.events))
        if judged.rejected:
            chunk.bad += [chunk.places[i] for i in judged.rejected]
            self._leave_out(chunk, judged.rejected, judged.rejected)
            chunk.rows = judged.rows
            chunk.events = [r for i, r in enumerate(chunk.events) if i not in judged.rejected]

    def _leave_out(
        self, chunk: EventChunk, indices: Collection[int], reasons: Mapping[int, Rejection]
    ) -> None:
        """Notes why events that are left leave a chunk now, and counts where they go."""
        if not indices:
            return
        if self._tally is not None and chunk.counted is not None:
            is_dead = [reasons.get(i, (LATE_EVENT, ""))[0] != LATE_EVENT for i in indices]
            left_out = np.fromiter(indices, np.int64)
            dead, late = left_out[is_dead], left_out[np.invert(is_dead)]
            self._tally.add(Hop.READ, Fate.DEAD, chunk.counted.take(dead))
            self._tally.add(Hop.READ, self._spec.late.fate, chunk.counted.take(late))
            staying = np.delete(np.arange(len(chunk.places)), left_out)
            chunk.counted = chunk.counted.take(staying)
        chunk.rejected |= {chunk.places[i]: why for i, why in reasons.items()}
        chunk.places = np.delete(chunk.places, list(indices)).tolist()

    def _reject(self, chunk: EventChunk) -> None:
        bad = BadRuns.of(sorted(chunk.bad), len(chunk.records))
        self._bad_runs = self._bad_runs.then(bad)
        rejected = chunk.rejected.items()
        letters = (_dead_letter(chunk.records[i], self._range, *why) for i, why in rejected)
        self._bad.take(letters, self._bad_runs.longest)

    def _add_deletions(self, chunk: EventChunk) -> None:
        if self._deletions is None or not chunk.deletions:
            return
        deleted = self._deletions.rows(chunk.deletions)
        if self._tally is not None:
            no_bytes = np.zeros(len(chunk.deletions), np.int64)
            came_in = self._tally.columns(deleted, chunk.deletions, no_bytes)
            self._tally.add(Hop.READ, Fate.IN, came_in)
        chunk.rows, chunk.events = self._deletions.merged(
            chunk.rows, chunk.events, deleted, chunk.deletions
        )

    def _count_out(self, chunk: EventChunk) -> None:
        if self._tally is None or chunk.counted is None:
            return
        # By what is left, not by what was left out: else one that is lost would not be seen.
        if chunk.events is not chunk.decoded:
            sizes = value_bytes([record.value() for record in chunk.events])
            chunk.counted = self._tally.columns(chunk.rows, chunk.events, sizes)
        self._tally.add(Hop.READ, Fate.OUT, chunk.counted)
        if self._read_listener is not None:
            self._read_listener.expect(self._tally, chunk.counted)

    def _add_columns(self, chunk: EventChunk) -> None:
        import pyarrow as pa

        spec, records = self._spec, chunk.events
        rows = with_record_columns(chunk.rows, records, self._place, spec.decoding.metadata)
        if spec.subpartitions > 1:
            # Records without a key have no order to keep, so their offsets spread them.
            lanes = [
                (record.offset() if (key := record.key()) is None else zlib.crc32(key))
                % spec.subpartitions
                for record in records
            ]
            rows = rows.append_column("_subpartition", pa.array(lanes, pa.int32()))
        if spec.planning.heartbeat_after_us:
            rows = rows.append_column(HEARTBEAT, pa.array([False] * len(records), pa.bool_()))
        if spec.decoding.null_key is not None:
            is_deleted = [record.value() is None for record in records]
            rows = rows.append_column(DELETED, pa.array(is_deleted, pa.bool_()))
        if spec.adds_lineage and chunk.counted is not None:
            column = lineage_column(spec.number, self._range.partition.partition, chunk.counted)
            rows = rows.append_column(LINEAGE, column)
        chunk.rows = rows

    _STAGES: tuple[Callable[[RangeReader, EventChunk], None], ...] = (
        # Before an event leaves: what came in is counted, wherever it goes.
        _count_in,
        # The late ones too: where they go must not change what the clock says.
        _sample_times,
        # Before the sink is asked: of late events, another sink decides.
        _divert_late,
        _check_for_sink,
        # After all checks: one run of bad records may have failed different ones.
        _reject,
        # After the checks of events, which deletions are not.
        _add_deletions,
        # Of all rows that the sink gets, by the event's columns: others may have their names.
        _count_out,
        _add_columns,
    )

    def _side_rows(self, rows: pa.Table, records: Sequence[Record]) -> pa.Table:
        metadata = self._spec.late.metadata
        return with_record_columns(rows, records, self._place, metadata)


def heartbeat(spec: SourceSpec, schema: pa.Schema, heartbeat_us: int) -> pa.Table:
    """One row that carries the event time only: the input has nothing up to then."""
    import pyarrow as pa

    known = {spec.decoding.event_time: heartbeat_us, HEARTBEAT: True}
    return pa.table({field.name: pa.array([known.get(field.name)], field.type) for field in schema})


def _bounds(decoding: RecordDecoding, planned_ms: int) -> EventTimeBounds | None:
    if decoding.event_time is None:
        return None
    latest = planned_ms * 1000 + decoding.latest_ahead_us
    return EventTimeBounds(decoding.event_time, decoding.earliest_event_us, latest)


def _late_before_us(late: LateRule, event_us: int | None) -> int | None:
    """Returns the event time before which events are late; None: none is.

    With a side table it takes what a step with state would not, too.
    """
    late_us = late.watermark_us(event_us)
    behind_us = late_watermark_us() if late.writers is not None else None
    if behind_us is None:
        return late_us
    # Spark drops what is not after its watermark; late is what lies before this time.
    return behind_us + 1 if late_us is None else max(late_us, behind_us + 1)


def _deletions(decoding: RecordDecoding) -> Deletions | None:
    if decoding.null_key is None or decoding.schema is None:
        return None
    return Deletions(decoding.schema, decoding.null_key, decoding.event_time)


def _dead_letter(record: Record, range_: OffsetRange, reason: str, detail: str) -> DeadLetter:
    headers, index = headers_of(record), event_index(record)
    return DeadLetter(
        partition=range_.partition,
        offset=record.offset(),
        reason=reason,
        detail=detail if headers is not None else f"{detail}; {HEADERS_LEFT_OUT}",
        key=record.key(),
        value=record.value(),
        headers=headers or (),
        timestamp_ms=record.timestamp()[1],
        event_index=-1 if index is None else index,
    )
