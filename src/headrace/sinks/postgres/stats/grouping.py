"""Rows of a task into the sums of their groups, by window of event time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import TableMismatchError
from headrace.sinks.api import RejectedRow
from headrace.sinks.postgres.column_types import ColumnKind, kinds_of
from headrace.sinks.postgres.sketches import sketch_of
from headrace.sinks.postgres.stats.measures import Count, Distinct, Measure, Sum
from headrace.sinks.postgres.target import sketch_column
from headrace.sinks.unique.declaration import Unique

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_START = "window_start"
_INDEX = "index"
# Digits: no sum of a task's rows has more.
_OF_INTEGERS, _OF_DECIMALS = 38, 76


@dataclass(frozen=True)
class StatsGrouping:
    """How rows are grouped and measured; picklable.

    Attributes:
        event_time: column of the event time.
        every_seconds: length of a window.
        by: columns whose values make groups.
        measures: by name.
        unique: which events are one.
    """

    event_time: str
    every_seconds: int
    by: tuple[str, ...]
    measures: Mapping[str, Measure]
    unique: Unique | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """Columns of the key."""
        return (WINDOW_START, *self.by)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the sums."""
        measured = (
            sketch_column(name) if isinstance(measure, Distinct) else name
            for name, measure in self.measures.items()
        )
        return (*self.key, *measured)

    @property
    def row_meaning(self) -> Mapping[str, object]:
        """What the rows of the table mean; its first start records it."""
        measures = {name: measure.meaning for name, measure in self.measures.items()}
        counted = {"every_seconds": self.every_seconds, "by": sorted(self.by), "measures": measures}
        if self.unique is None:
            return counted
        unique = {"by": sorted(self.unique.by), "ignore": sorted(self.unique.ignore)}
        return {**counted, "unique": unique}

    def kinds(self, schema: pa.Schema) -> dict[str, ColumnKind]:
        """Returns what is in the columns of the sums of rows with ``schema``."""
        of_rows = kinds_of(schema)
        kinds = {WINDOW_START: ColumnKind.TIME}
        kinds |= {name: of_rows[name] for name in self.by if name in of_rows}
        for name, measure in self.measures.items():
            if isinstance(measure, Count):
                kinds[name] = ColumnKind.INTEGER
            elif isinstance(measure, Sum):
                is_double = measure.sql_type(schema) == "double precision"
                kinds[name] = ColumnKind.SUM if is_double else ColumnKind.DECIMAL
        return kinds

    def check(self, table: str, schema: pa.Schema) -> None:
        """Looks at the columns of the rows, which steps may have hidden from ``check``.

        Raises:
            TableMismatchError: one is missing, or has a type that can't be grouped or measured.
        """
        used = [
            measure.column for measure in self.measures.values() if not isinstance(measure, Count)
        ]
        used += () if self.unique is None else self.unique.by
        for name in (self.event_time, *self.by, *used):
            if name not in schema.names:
                known = ", ".join(schema.names)
                raise TableMismatchError(table, f"the rows have no column {name!r}, but {known}")
        for reason in self._unfit(schema):
            raise TableMismatchError(table, reason)

    def _unfit(self, schema: pa.Schema) -> Iterator[str]:
        from pyarrow import types

        if not types.is_timestamp(schema.field(self.event_time).type):
            yield f"column {self.event_time!r} of the event time is no timestamp"
        for name in self.by:
            kind = schema.field(name).type
            if types.is_floating(kind) or types.is_nested(kind) or types.is_binary(kind):
                yield f"{kind} of column {name!r} is no type for groups"
        yield from filter(None, (measure.unfit(schema) for measure in self.measures.values()))

    def unusable(self, rows: pa.Table) -> dict[int, RejectedRow]:
        """Returns the rows that belong to no window, or would spoil a sum, by index."""
        import pyarrow.compute as pc
        from pyarrow import types

        detail = f"column {self.event_time!r} is null: the row belongs to no window"
        is_missing = pc.is_null(rows[self.event_time])
        rejected = dict(_rejected(is_missing, "missing-value", detail))
        for name, measure in self.measures.items():
            if isinstance(measure, Sum) and types.is_floating(rows[measure.column].type):
                finite = pc.is_finite(rows[measure.column])
                detail = f"column {measure.column!r} is not finite: {name!r} could not be undone"
                is_bad = pc.invert(pc.fill_null(finite, fill_value=True))
                rejected |= _rejected(is_bad, "wrong-value", detail)
        return rejected

    def sums(self, rows: pa.Table) -> pa.Table:
        """Returns the sums of all groups of usable rows, in the order of their first rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        inputs = self._keyed(rows)
        is_counted = any(isinstance(measure, Count) for measure in self.measures.values())
        aggregations: list[tuple[Any, ...]] = [([], "count_all")] if is_counted else []
        for name, measure in self.measures.items():
            if isinstance(measure, Sum):
                inputs = inputs.append_column(f"m_{name}", _exact(rows[measure.column]))
                aggregations.append((f"m_{name}", "sum"))
            elif isinstance(measure, Distinct):
                inputs = inputs.append_column(f"m_{name}", rows[measure.column])
                aggregations.append((f"m_{name}", "distinct", pc.CountOptions(mode="only_valid")))
        groups = self._grouped(inputs, aggregations)
        keys = [groups[f"k_{name}"] for name in self.key]
        measured = [_measured(groups, name, measure) for name, measure in self.measures.items()]
        return pa.table([*keys, *measured], names=list(self.columns))

    def members(self, rows: pa.Table) -> list[list[int]]:
        """Returns the rows of each group, by index, in the order of :meth:`sums`."""
        import pyarrow as pa

        indices = pa.array(range(rows.num_rows), pa.int64())
        inputs = self._keyed(rows).append_column(_INDEX, indices)
        groups = self._grouped(inputs, [(_INDEX, "list")])
        lists: list[list[int]] = groups[f"{_INDEX}_list"].to_pylist()
        return lists

    def infinite(self, sums: pa.Table) -> dict[int, RejectedRow]:
        """Returns the groups with a sum that no double holds, by index."""
        import pyarrow.compute as pc
        from pyarrow import types

        rejected: dict[int, RejectedRow] = {}
        for name, measure in self.measures.items():
            if isinstance(measure, Sum) and types.is_floating(sums[name].type):
                is_bad = pc.invert(pc.fill_null(pc.is_finite(sums[name]), fill_value=True))
                detail = f"the sum of column {measure.column!r} leaves the range of a double"
                rejected |= _rejected(is_bad, "wrong-value", detail)
        return rejected

    def _keyed(self, rows: pa.Table) -> pa.Table:
        """Returns the columns of the key, with prefixes that no name of a measure collides with."""
        import pyarrow as pa
        import pyarrow.compute as pc

        # Without a zone, times are those of UTC; windows would follow a zone's midnight.
        time = rows[self.event_time].cast(pa.timestamp("us"))
        window = pc.floor_temporal(time, self.every_seconds, "second")
        window_start = window.cast(pa.timestamp("us", "UTC"))
        columns = [window_start, *(rows[name] for name in self.by)]
        return pa.table(columns, names=[f"k_{name}" for name in self.key])

    def _grouped(self, inputs: pa.Table, aggregations: Sequence[Any]) -> pa.Table:
        keys = [f"k_{name}" for name in self.key]
        # On one thread groups are in the order of their first rows, and Spark has the others.
        return inputs.group_by(keys, use_threads=False).aggregate(list(aggregations))


def _rejected(
    is_bad: pa.ChunkedArray, reason: str, detail: str
) -> Iterator[tuple[int, RejectedRow]]:
    import pyarrow.compute as pc

    for index in pc.indices_nonzero(is_bad).to_pylist():
        yield index, RejectedRow(index, reason, detail)


def _exact(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns numbers whose sum does not overflow, and is exact but for doubles."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_floating(column.type):
        return column.cast(pa.float64())
    if types.is_decimal(column.type):
        return column.cast(pa.decimal256(_OF_DECIMALS, column.type.scale))
    return column.cast(pa.decimal128(_OF_INTEGERS, 0))


def _measured(groups: pa.Table, name: str, measure: Measure) -> Any:
    import pyarrow as pa

    if isinstance(measure, Count):
        return groups["count_all"]
    if isinstance(measure, Sum):
        return groups[f"m_{name}_sum"]
    lists = groups[f"m_{name}_distinct"].to_pylist()
    return pa.array((sketch_of(values, measure.lg_k) for values in lists), pa.binary())
