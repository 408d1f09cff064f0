"""The rows of a join: the later event with the earlier one in a column, and those without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from headrace.model import DeadLetter, Metadata, TopicPartition
from headrace.pipelines.join.columns import joined_columns
from headrace.pipelines.join.events import KeyedEvent
from headrace.pipelines.manifest import derived_row_letter
from headrace.pipelines.side_writer import SideWriter
from headrace.pipelines.source.decode import decoder_for
from headrace.pipelines.source.record_columns import metadata_types
from headrace.pipelines.source.spec import SourceSpec
from headrace.sinks.api import WriterFactory

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class DecodedEvents:
    """Events that were kept or waited, decoded once more.

    Attributes:
        rows: of those that are events of the topic now, in their order.
        events: these.
        rejected: dead letters of the others: the topic's class or schema has changed since.
    """

    rows: pa.Table
    events: Sequence[KeyedEvent]
    rejected: Sequence[DeadLetter]


def decoded(side: SourceSpec, events: Sequence[KeyedEvent], partition: int) -> DecodedEvents:
    """Decodes events of a side as its topic declares them now."""
    decoder = decoder_for(side.format, side.schema, side.registry)
    result = decoder.decode([event.value for event in events])
    letters = [
        DeadLetter(
            TopicPartition(side.topic, partition),
            events[i].offset,
            reason,
            f"{detail}; it was an event of the topic when a join read it",
            None,
            events[i].value,
        )
        for i, (reason, detail) in result.rejected.items()
    ]
    accepted = [event for i, event in enumerate(events) if i not in result.rejected]
    return DecodedEvents(result.rows, accepted, letters)


def joined_rows(
    matched: Sequence[tuple[KeyedEvent, KeyedEvent]],
    unmatched: Sequence[KeyedEvent],
    later: SourceSpec,
    earlier: SourceSpec,
    column: str,
    partition: int,
) -> tuple[pa.Table, Sequence[DeadLetter]]:
    """Returns the rows of later events, in order of their offsets, with their earlier one or null.

    An earlier event that its topic's declaration rejects by now counts as not there. A later one is
    a dead letter; these come second.
    """
    import pyarrow as pa

    ordered = sorted([*(event for event, _ in matched), *unmatched], key=attrgetter("offset"))
    of_later = decoded(later, ordered, partition)
    of_earlier = decoded(earlier, [fact for _, fact in matched], partition)
    indices = {fact.offset: i for i, fact in enumerate(of_earlier.events)}
    facts = {event.offset: indices.get(fact.offset) for event, fact in matched}
    taken = pa.array([facts.get(event.offset) for event in of_later.events], pa.int64())
    kind = joined_columns(later.schema, earlier.schema, column, ()).field(column).type
    nested = of_earlier.rows.to_struct_array().combine_chunks().cast(kind)
    rows = of_later.rows.append_column(column, nested.take(taken))
    rows = _with_metadata(rows, of_later.events, later.metadata, later.topic, partition)
    return rows, of_later.rejected


class UnmatchedRows:
    """Writes later events that found none into a sink of their own. For one attempt of a task.

    Attributes:
        rejected: dead letters of rows that the sink can't take, and of events that are none now.
    """

    def __init__(
        self,
        writers: WriterFactory,
        later: SourceSpec,
        metadata: Sequence[Metadata],
        partition: int,
    ) -> None:
        self._writer = SideWriter(writers)
        self._later = later
        self._metadata = metadata
        self._partition = partition
        self.rejected: list[DeadLetter] = []

    def write(self, events: Sequence[KeyedEvent]) -> None:
        """Writes the rows of events: their fields, and the metadata that the sink wants."""
        if not events:
            return
        topic, of_later = self._later.topic, decoded(self._later, events, self._partition)
        self.rejected += of_later.rejected
        rows = _with_metadata(
            of_later.rows, of_later.events, self._metadata, topic, self._partition
        )
        rejected = self._writer.write(rows)
        self.rejected += [derived_row_letter(rows, row, topic) for row in rejected]

    def close(self) -> tuple[str, ...]:
        """Returns the pieces for the commit."""
        return self._writer.close()

    def abort(self) -> None:
        """Removes what was written, where the task fails."""
        self._writer.abort()


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
