"""What a topic and its sink ask of an event beyond its format, checked in the rows of any decoder.

This module imports Arrow inside, because :mod:`headrace.pipelines.source.reading.reader` imports it
before Spark forks its Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.model.partition_value import unsafe_partition_value
from headrace.pipelines.source.decode.decoder import Decoded

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events import Rejection


@dataclass(frozen=True, slots=True)
class EventTimeBounds:
    """Events whose ``column`` lies outside are rejected; microseconds since 1970, both included."""

    column: str
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class RowChecks:
    """Rejects rows by their event time and by the texts that name partitions.

    A record gets the first reason that applies, after those of its decoder:

    ========================= ==================================================================
    event-time-out-of-bounds  before or after the bounds of the topic
    unsafe-partition-value    a text that can't name a directory of the lake
    ========================= ==================================================================

    Attributes:
        bounds: of the event time; ``None``: any time is accepted, as is null.
        partition_columns: string columns whose values name directories, see
            :func:`~headrace.model.partition_value.unsafe_partition_value`.
    """

    bounds: EventTimeBounds | None
    partition_columns: Sequence[str]

    def applied(self, decoded: Decoded, records: int) -> Decoded:
        """Returns ``decoded`` without the rows that fail; ``records`` is the size of the chunk."""
        from headrace.pipelines.source.decode.parts import without_rows

        rejected_rows = {**self._unsafe(decoded.rows), **self._out_of_bounds(decoded.rows)}
        if not rejected_rows:
            return decoded
        indices = [index for index in range(records) if index not in decoded.rejected]
        rejected = decoded.rejected | {indices[row]: why for row, why in rejected_rows.items()}
        rows = without_rows(decoded.rows, rejected_rows).combine_chunks()
        return Decoded(rows, dict(sorted(rejected.items())))

    def _out_of_bounds(self, rows: pa.Table) -> dict[int, Rejection]:
        import pyarrow as pa
        import pyarrow.compute as pc

        from headrace.events import LATEST_US, out_of_bounds

        bounds = self.bounds
        if bounds is None:
            return {}
        times = rows.column(bounds.column).cast(pa.int64())
        extremes = pc.min_max(times)
        oldest, newest = extremes["min"].as_py(), extremes["max"].as_py()
        # Arrow has no number for a latest time that timedelta.max is ahead.
        earliest, latest = bounds.earliest, min(bounds.latest, LATEST_US)
        if oldest is None or (earliest <= oldest and newest <= latest):
            return {}
        outside = pc.or_(pc.less(times, earliest), pc.greater(times, latest))
        return {
            row: out_of_bounds(bounds.column, time, earliest, latest)
            for row, time in _selected(times, outside)
        }

    def _unsafe(self, rows: pa.Table) -> dict[int, Rejection]:
        import pyarrow as pa
        import pyarrow.compute as pc

        rejected: dict[int, Rejection] = {}
        for name in self.partition_columns:
            column = rows.column(name)
            reasons = {
                value: unsafe_partition_value(value or "")
                for value in pc.unique(column).to_pylist()
            }
            unsafe = {value: reason for value, reason in reasons.items() if reason is not None}
            if unsafe:
                matches = pc.is_in(column, pa.array(list(unsafe), pa.string()))
                rejected |= {
                    row: ("unsafe-partition-value", f"field {name!r} {unsafe[value]}")
                    for row, value in _selected(column, matches)
                }
        return rejected


def _selected(column: pa.ChunkedArray, mask: pa.ChunkedArray) -> Iterator[tuple[int, Any]]:
    """Yields row and value wherever the mask is true."""
    import pyarrow.compute as pc

    rows = pc.indices_nonzero(mask).to_pylist()
    return zip(rows, column.filter(mask).to_pylist(), strict=True)
