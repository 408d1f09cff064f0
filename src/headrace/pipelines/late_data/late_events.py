"""Finds the late events of one range in a read task, and sends them where the rule says."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.kafka.read.range_reader import Record
from headrace.pipelines.batch.side_writer import SideWriter
from headrace.pipelines.late_data.rule import LATE_EVENT, LateRule

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events import Rejection


@dataclass(frozen=True, slots=True)
class OnTime:
    """A chunk without the late events that went elsewhere.

    Attributes:
        rows: with the event's columns.
        records: of the rows, in their order.
        rejected: what becomes dead letters, by index in the records that came in.
        diverted: indices of the late events that went elsewhere, in the records that came in.
    """

    rows: pa.Table
    records: Sequence[Record]
    rejected: Mapping[int, Rejection]
    diverted: Collection[int] = ()


class LateEvents:
    """The late events of one range. Used on one thread, for one attempt of a task.

    Attributes:
        count: how many events were late.
        dead: how many of them became dead letters, not for the side table's sake.
        written: how many of them the side table takes.
    """

    def __init__(
        self,
        rule: LateRule,
        column: str | None,
        watermark_us: int | None,
        *,
        is_replayed: Callable[[Record], bool],
        side_rows: Callable[[pa.Table, Sequence[Record]], pa.Table],
    ) -> None:
        """Writes nothing and opens nothing yet.

        Args:
            rule: where late events go.
            column: of the event time; None: no event is late.
            watermark_us: events before it are late; None: no event is late.
            is_replayed: whether a record was replayed for this pipeline, and so is kept.
            side_rows: adds the side table's columns of the Kafka record to rows of events.
        """
        self._rule = rule
        self._column = column
        self._watermark_us = watermark_us
        self._is_replayed = is_replayed
        self._side_rows = side_rows
        self._writer = None if rule.writers is None else SideWriter(rule.writers)
        self.count = 0
        self.dead = 0
        self.written = 0

    def without(self, rows: pa.Table, records: Sequence[Record]) -> OnTime:
        """Returns the rows of a chunk that stay in it, and sends the others where they go."""
        late = self._late(rows)
        self.count += len(late)
        if self._rule.keeps:
            return OnTime(rows, records, {})
        diverted = {
            index: time for index, time in late.items() if not self._is_replayed(records[index])
        }
        if not diverted:
            return OnTime(rows, records, {})
        rejected = self._divert(rows, records, diverted)
        staying = [index for index in range(len(records)) if index not in diverted]
        import pyarrow as pa

        staying_rows = rows.take(pa.array(staying, pa.int64()))  # a plain empty list has no type
        staying_records = [records[index] for index in staying]
        return OnTime(staying_rows, staying_records, rejected, diverted)

    def close(self) -> tuple[str, ...]:
        """Returns the pieces of the side table."""
        return () if self._writer is None else self._writer.close()

    def abort(self) -> None:
        """Removes what was written, where the task fails."""
        if self._writer is not None:
            self._writer.abort()

    def _late(self, rows: pa.Table) -> dict[int, int]:
        """Returns the event times of late rows by index."""
        if self._column is None or self._watermark_us is None or not rows.num_rows:
            return {}
        import pyarrow as pa
        import pyarrow.compute as pc

        times = rows.column(self._column).cast(pa.int64())
        oldest = pc.min(times).as_py()
        if oldest is None or oldest >= self._watermark_us:
            return {}  # nearly every chunk: the mask below costs more
        is_late = pc.less(times, self._watermark_us)
        indices = pc.indices_nonzero(is_late).to_pylist()
        return dict(zip(indices, times.filter(is_late).to_pylist(), strict=True))

    def _divert(
        self, rows: pa.Table, records: Sequence[Record], late: Mapping[int, int]
    ) -> dict[int, Rejection]:
        """Returns those that become dead letters: all, or those that the side table rejects."""
        if self._rule.drops:
            return {}
        indices = list(late)
        if self._writer is None:
            self.dead += len(indices)
            column, watermark_us = self._column or "", self._watermark_us or 0
            return {
                index: (LATE_EVENT, self._rule.detail(column, time, watermark_us))
                for index, time in late.items()
            }
        table = self._side_rows(rows.take(indices), [records[index] for index in indices])
        rejected = self._writer.write(table)
        self.written += len(indices) - len(rejected)
        return {indices[row.index]: (row.reason, row.detail) for row in rejected}
