"""The lineage of rows: what the ledger counts of their events travels with them through steps.

The column is made where a record is read, and taken off where its row goes to the sink. So a row is
counted there by the event that it came from, whatever steps have made of its fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.ledger.sums import Fate, Hop, Sums
from headrace.pipelines.ledger.counting.tally import Integers, LedgerColumns, SinkTally
from headrace.pipelines.ledger.sums import LedgerKey, LedgerLine, lines_of

if TYPE_CHECKING:
    import pyarrow as pa

LINEAGE = "_headrace_event"
"""The column's name."""

# One column of 32 bytes a row: five columns would cost Spark twice the time to pass on.
_LINEAGE = np.dtype(
    [("source", "<i4"), ("partition", "<i4"), ("window", "<i8"), ("bytes", "<i8"), ("hash", "<u8")]
)
_SOURCE_BITS = 32


def lineage_type() -> pa.DataType:
    """Returns the Arrow type of the column."""
    import pyarrow as pa

    return pa.binary()


def lineage_column(source: int, partition: int, columns: LedgerColumns) -> pa.BinaryArray:
    """Returns the column for rows of one partition of a pipeline's source with a number."""
    import pyarrow as pa

    packed = np.empty(len(columns), _LINEAGE)
    packed["source"], packed["partition"] = source, partition
    packed["window"], packed["bytes"], packed["hash"] = (
        columns.windows,
        columns.bytes,
        columns.hashes,
    )
    ends = np.arange(len(columns) + 1, dtype=np.int32) * _LINEAGE.itemsize
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(packed)]
    return pa.Array.from_buffers(lineage_type(), len(columns), buffers)


@dataclass(frozen=True)
class RowLineage:
    """Which events rows come from; the rows may be of several partitions.

    Attributes:
        partitions: of each row, the number of its source and, in the lower 32 bits, its partition.
        events: what the ledger counts of them.
    """

    partitions: Integers
    events: LedgerColumns

    @classmethod
    def of(cls, column: pa.Array) -> RowLineage:
        """Reads the column, which has no null."""
        _, ends, content = column.cast(lineage_type()).buffers()
        begin = np.frombuffer(ends, np.int32, 1, 4 * column.offset)[0] if len(column) else 0
        packed = np.frombuffer(content or b"", _LINEAGE, len(column), begin)
        partitions = (packed["source"].astype(np.int64) << _SOURCE_BITS) | packed["partition"]
        return cls(partitions, LedgerColumns(packed["window"], packed["bytes"], packed["hash"]))

    def __len__(self) -> int:
        return len(self.partitions)

    def take(self, indices: Integers) -> RowLineage:
        """Returns the lineage of the rows at ``indices``."""
        return RowLineage(self.partitions[indices], self.events.take(indices))

    def by_partition(self) -> Iterator[tuple[int, LedgerColumns]]:
        """Yields what is counted of the rows of each partition."""
        partitions = np.unique(self.partitions)
        for partition in partitions:
            is_only = len(partitions) == 1
            indices = np.flatnonzero(self.partitions == partition)
            yield int(partition), self.events if is_only else self.events.take(indices)


class RowTally:
    """Sums of rows by the events that they came from. Used on one thread, for one task attempt."""

    def __init__(self, topics: Sequence[str]) -> None:
        """Counts nothing yet.

        Args:
            topics: names of the pipeline's sources, in their order.
        """
        self._topics = topics
        self._totals: dict[LedgerKey, Sums] = {}

    def add(self, hop: Hop, fate: Fate, rows: RowLineage) -> None:
        """Counts rows with a fate at a hop."""
        for number, events in rows.by_partition():
            topic, partition = self._topics[number >> _SOURCE_BITS], number & (2**_SOURCE_BITS - 1)
            for window, sums in events.sums.items():
                key = LedgerKey(hop, fate, window, topic, partition)
                self._totals[key] = self._totals.get(key, Sums()) + sums

    def lines(self) -> tuple[LedgerLine, ...]:
        """Returns what was counted."""
        return lines_of(self._totals)


def without_lineage(
    batches: Iterable[pa.RecordBatch], sink_tally: SinkTally[RowLineage], tally: RowTally
) -> Iterator[pa.Table]:
    """Yields rows without the column, after noting for ``sink_tally`` what was in it."""
    import pyarrow as pa

    for batch in batches:
        rows = pa.Table.from_batches([batch])
        sink_tally.expect(tally, RowLineage.of(batch.column(LINEAGE)))
        yield rows.drop_columns([LINEAGE])
