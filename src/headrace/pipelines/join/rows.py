"""The rows of a join: the later event with the earlier one in a column, and those without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.model import DeadLetter, Metadata, TopicPartition
from headrace.pipelines.batch.side_writer import SideWriter
from headrace.pipelines.join.columns import joined_columns
from headrace.pipelines.join.events import DecodedEvents, KeyedEvent
from headrace.pipelines.source.decode import decoder_for
from headrace.pipelines.source.decode.checks import RowChecks
from headrace.pipelines.source.record_columns import metadata_types
from headrace.pipelines.source.spec import SourceSpec
from headrace.sinks.api import WriterFactory

if TYPE_CHECKING:
    import pyarrow as pa


JoinedPair: TypeAlias = tuple[KeyedEvent, KeyedEvent | None]
"""A later event, and the earlier one that it has."""

# Arrow's texts end at 2 GiB a column, and decoding takes a few times the bytes of the values.
MAX_PART_BYTES = 32 * 1024 * 1024


def decoded(side: SourceSpec, events: Sequence[KeyedEvent], partition: int) -> DecodedEvents:
    """Decodes events of a side as its topic declares them now, and as the sink takes them."""
    decoding = side.decoding
    decoder = decoder_for(decoding.format, decoding.schema, decoding.registry)
    result = decoder.decode([event.value for event in events])
    rejected = {
        i: (reason, f"{detail}; it was an event when a join read it")
        for i, (reason, detail) in result.rejected.items()
    }
    checks = RowChecks(None, decoding.partition_columns)
    result = checks.applied(replace(result, rejected=rejected), len(events))
    place = TopicPartition(side.topic, partition)
    letters = [_letter(place, events[i], *why) for i, why in result.rejected.items()]
    accepted = [event for i, event in enumerate(events) if i not in result.rejected]
    return DecodedEvents(result.rows, accepted, letters)


def in_parts(
    matched: Sequence[tuple[KeyedEvent, KeyedEvent]], unmatched: Sequence[KeyedEvent]
) -> Iterator[Sequence[JoinedPair]]:
    """Yields later events with their earlier ones, in order of offset, some megabytes at a time.

    Each later event brings the whole earlier one, also where many have the same one.
    """
    pairs: list[JoinedPair] = [*matched, *((event, None) for event in unmatched)]
    pairs.sort(key=lambda pair: pair[0].offset)
    part: list[JoinedPair] = []
    size = 0
    for event, other in pairs:
        part.append((event, other))
        size += len(event.value) + (0 if other is None else len(other.value))
        if size >= MAX_PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def joined_rows(
    pairs: Sequence[JoinedPair],
    later: SourceSpec,
    earlier: SourceSpec,
    column: str,
    partition: int,
) -> DecodedEvents:
    """Returns the rows of later events, in their order, with their earlier one or null.

    An earlier event that its topic's declaration rejects by now counts as not there. A later one is
    a dead letter.
    """
    import pyarrow as pa

    of_later = decoded(later, [event for event, _ in pairs], partition)
    others = [other for _, other in pairs if other is not None]
    of_earlier = decoded(earlier, others, partition)
    indices = {event.offset: i for i, event in enumerate(of_earlier.events)}
    partners = {
        event.offset: indices.get(other.offset) for event, other in pairs if other is not None
    }
    indices_of_earlier = pa.array(
        [partners.get(event.offset) for event in of_later.events], pa.int64()
    )
    schemas = later.decoding.schema, earlier.decoding.schema
    kind = joined_columns(*schemas, column, ()).field(column).type
    nested = of_earlier.rows.to_struct_array().combine_chunks().cast(kind)
    rows = of_later.rows.append_column(column, nested.take(indices_of_earlier))
    place = TopicPartition(later.topic, partition)
    rows = _with_metadata(rows, of_later.events, later.decoding.metadata, place)
    return replace(of_later, rows=rows)


class UnmatchedRows:
    """Writes later events that found none into a sink of their own. For one attempt of a task."""

    def __init__(
        self,
        writers: WriterFactory,
        later: SourceSpec,
        metadata: Sequence[Metadata],
        partition: int,
    ) -> None:
        self._writer = SideWriter(writers)
        # Its own sink judges the values that name directories of another one.
        decoding = replace(later.decoding, partition_columns=())
        self._later = replace(later, decoding=decoding)
        self._metadata = metadata
        self._partition = partition

    def write(self, events: Sequence[KeyedEvent]) -> DecodedEvents:
        """Writes the rows of events: their fields, and the metadata that the sink wants.

        Returns:
            the rows that the sink takes; the other events are dead letters.
        """
        of_later = decoded(self._later, events, self._partition)
        place = TopicPartition(self._later.topic, self._partition)
        rows = _with_metadata(of_later.rows, of_later.events, self._metadata, place)
        rejected = {row.index: row for row in self._writer.write(rows)}
        letters = [
            _letter(place, of_later.events[index], row.reason, row.detail)
            for index, row in rejected.items()
        ]
        accepted = [index for index in range(rows.num_rows) if index not in rejected]
        return DecodedEvents(
            rows.take(accepted) if rejected else rows,
            [of_later.events[index] for index in accepted],
            [*of_later.rejected, *letters],
        )

    def close(self) -> tuple[str, ...]:
        """Returns the pieces for the commit."""
        return self._writer.close()

    def abort(self) -> None:
        """Removes what was written, where the task fails."""
        self._writer.abort()


def _letter(place: TopicPartition, event: KeyedEvent, reason: str, detail: str) -> DeadLetter:
    return DeadLetter(place, event.offset, reason, detail, None, event.value)


def _with_metadata(
    rows: pa.Table,
    events: Sequence[KeyedEvent],
    metadata: Sequence[Metadata],
    place: TopicPartition,
) -> pa.Table:
    import pyarrow as pa

    values = {
        Metadata.TOPIC: [place.topic] * len(events),
        Metadata.PARTITION: [place.partition] * len(events),
        Metadata.OFFSET: [event.offset for event in events],
    }
    for name in metadata:
        rows = rows.append_column(name.value, pa.array(values[name], metadata_types()[name]))
    return rows
