"""The rows of a join: the later event with the earlier one in a column, and those without one."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.model import DeadLetter, EventSchema, Metadata
from headrace.pipelines.join.events import KeyedEvent
from headrace.pipelines.manifest import derived_row_letter
from headrace.pipelines.source.decode import decoder_for
from headrace.pipelines.source.record_columns import metadata_types, row_columns
from headrace.pipelines.source.spec import SourceSpec
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.sinks.api import TaskWriter, WriterFactory

if TYPE_CHECKING:
    import pyarrow as pa

JOIN_METADATA = (Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET)
"""Columns of the later record that joined rows can have: those of records that waited, too."""


def joined_columns(
    later: EventSchema | None,
    earlier: EventSchema | None,
    column: str,
    metadata: Sequence[Metadata],
) -> pa.Schema:
    """Returns the columns of joined rows: the later event, ``column``, metadata; all nullable."""
    import pyarrow as pa

    nested = pa.field(column, pa.struct(list(row_columns(earlier, ()))))
    whole = row_columns(later, metadata)
    event = len(row_columns(later, ()))
    fields = [*list(whole)[:event], nested, *list(whole)[event:]]
    return pa.schema([field.with_nullable(True) for field in fields])


def joined_rows(
    pairs: Sequence[tuple[KeyedEvent, KeyedEvent | None]],
    later: SourceSpec,
    earlier: SourceSpec,
    column: str,
    partition: int,
) -> pa.Table:
    """Returns the rows of later events with their earlier one, in order of the later offsets."""
    import pyarrow as pa

    ordered = sorted(pairs, key=lambda pair: pair[0].offset)
    events = [event for event, _ in ordered]
    facts = [fact for _, fact in ordered if fact is not None]
    places = iter(range(len(facts)))
    indices = [None if fact is None else next(places) for _, fact in ordered]
    kind = joined_columns(later.schema, earlier.schema, column, ()).field(column).type
    nested = _decoded(earlier, facts).to_struct_array().combine_chunks().cast(kind)
    rows = _decoded(later, events)
    rows = rows.append_column(column, nested.take(pa.array(indices, pa.int64())))
    return _with_metadata(rows, events, later.metadata, later.topic, partition)


class UnmatchedRows:
    """Writes later events that found none into a sink of their own. For one attempt of a task.

    Attributes:
        rejected: dead letters of rows that the sink can't take.
    """

    def __init__(
        self,
        writers: WriterFactory,
        later: SourceSpec,
        metadata: Sequence[Metadata],
        partition: int,
    ) -> None:
        self._writers = writers
        self._later = later
        self._metadata = metadata
        self._partition = partition
        self._writer: TaskWriter | None = None
        self.rejected: list[DeadLetter] = []

    def write(self, events: Sequence[KeyedEvent]) -> None:
        """Writes the rows of events: their fields, and the metadata that the sink wants."""
        if not events:
            return
        topic = self._later.topic
        rows = _decoded(self._later, events)
        rows = _with_metadata(rows, events, self._metadata, topic, self._partition)
        if self._writer is None:
            self._writer = self._writers(uuid.uuid4().hex)
        rejected = self._writer.write(rows)
        self.rejected += [derived_row_letter(rows, row, topic) for row in rejected]

    def close(self) -> tuple[str, ...]:
        """Returns the pieces for the commit."""
        writer, self._writer = self._writer, None
        if writer is None:
            return ()
        with cleaning_up_after_failure(writer.abort):
            return tuple(writer.close())

    def abort(self) -> None:
        """Removes what was written, where the task fails."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()


def _with_metadata(
    rows: pa.Table,
    events: Sequence[KeyedEvent],
    metadata: Sequence[Metadata],
    topic: str,
    partition: int,
) -> pa.Table:
    import pyarrow as pa

    values = {
        Metadata.TOPIC: [topic] * len(events),
        Metadata.PARTITION: [partition] * len(events),
        Metadata.OFFSET: [event.offset for event in events],
    }
    for name in metadata:
        rows = rows.append_column(name.value, pa.array(values[name], metadata_types()[name]))
    return rows


def _decoded(side: SourceSpec, events: Sequence[KeyedEvent]) -> pa.Table:
    """Decodes events once more; they were rows before."""
    decoder = decoder_for(side.format, side.schema, side.registry)
    return decoder.decode([event.value for event in events]).rows
