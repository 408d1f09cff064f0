"""Facts of events that travel with their rows through steps of Spark, in a column of their own.

The column is made where a record is read, and taken off where its row goes to the sink. So a row is
counted there by the event that it came from, whatever steps have made of its fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.pipelines.ledger.sums import Fate, Hop, LedgerLine, Place, Sums, lines_of
from headrace.pipelines.ledger.tally import EventFacts, Integers, SinkTally

if TYPE_CHECKING:
    import pyarrow as pa

FACTS = "_headrace_event"
"""The column's name."""

# One column of 32 bytes a row: five columns would cost Spark twice the time to pass on.
_FACTS = np.dtype(
    [("source", "<i4"), ("partition", "<i4"), ("window", "<i8"), ("bytes", "<i8"), ("hash", "<u8")]
)
_SOURCE_BITS = 32


def facts_type() -> pa.DataType:
    """Returns the Arrow type of the column."""
    import pyarrow as pa

    return pa.binary()


def facts_column(source: int, partition: int, facts: EventFacts) -> pa.BinaryArray:
    """Returns the column for rows of one partition of a pipeline's source with a number."""
    import pyarrow as pa

    packed = np.empty(len(facts), _FACTS)
    packed["source"], packed["partition"] = source, partition
    packed["window"], packed["bytes"], packed["hash"] = facts.windows, facts.bytes, facts.hashes
    ends = np.arange(len(facts) + 1, dtype=np.int32) * _FACTS.itemsize
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(packed)]
    return pa.Array.from_buffers(facts_type(), len(facts), buffers)


@dataclass(frozen=True)
class RowFacts:
    """Facts of rows that may be of several partitions.

    Attributes:
        places: of each row, the number of its source and, in the lower 32 bits, its partition.
        events: what the ledger counts of them.
    """

    places: Integers
    events: EventFacts

    @classmethod
    def of(cls, column: pa.Array) -> RowFacts:
        """Reads the column, which has no null."""
        _, ends, content = column.cast(facts_type()).buffers()
        begin = np.frombuffer(ends, np.int32, 1, 4 * column.offset)[0] if len(column) else 0
        packed = np.frombuffer(content or b"", _FACTS, len(column), begin)
        places = (packed["source"].astype(np.int64) << _SOURCE_BITS) | packed["partition"]
        return cls(places, EventFacts(packed["window"], packed["bytes"], packed["hash"]))

    def __len__(self) -> int:
        return len(self.places)

    def take(self, indices: Integers) -> RowFacts:
        """Returns the facts of the rows at ``indices``."""
        return RowFacts(self.places[indices], self.events.take(indices))

    def by_place(self) -> Iterator[tuple[int, EventFacts]]:
        """Yields the facts of the rows of each place."""
        places = np.unique(self.places)
        for place in places:
            is_only = len(places) == 1
            indices = np.flatnonzero(self.places == place)
            yield int(place), self.events if is_only else self.events.take(indices)


class RowTally:
    """Sums of rows by the events that they came from. Used on one thread, for one task attempt."""

    def __init__(self, topics: Sequence[str]) -> None:
        """Counts nothing yet.

        Args:
            topics: names of the pipeline's sources, in their order.
        """
        self._topics = topics
        self._totals: dict[Place, Sums] = {}

    def add(self, hop: Hop, fate: Fate, facts: RowFacts) -> None:
        """Counts rows with a fate at a hop."""
        for number, events in facts.by_place():
            topic, partition = self._topics[number >> _SOURCE_BITS], number & (2**_SOURCE_BITS - 1)
            for window, sums in events.sums.items():
                place = Place(hop, fate, window, topic, partition)
                self._totals[place] = self._totals.get(place, Sums()) + sums

    def lines(self) -> tuple[LedgerLine, ...]:
        """Returns what was counted."""
        return lines_of(self._totals)


def without_facts(
    batches: Iterable[pa.RecordBatch], sink_tally: SinkTally[RowFacts], tally: RowTally
) -> Iterator[pa.Table]:
    """Yields rows without the column, after noting for ``sink_tally`` what was in it."""
    import pyarrow as pa

    for batch in batches:
        rows = pa.Table.from_batches([batch])
        sink_tally.expect(tally, RowFacts.of(batch.column(FACTS)))
        yield rows.drop_columns([FACTS])
