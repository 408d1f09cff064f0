"""Rows as a table takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.model import EventField
from headrace.sinks.bigquery.columns import NULLABLE, REPEATED, TableColumn, by_name
from headrace.sinks.bigquery.rejections import RowsRejected, item_counts, rejections
from headrace.sinks.json_values import members_of, nested_json

if TYPE_CHECKING:
    import pyarrow as pa


class RowForm:
    """Makes rows into those that a table takes. Picklable: it travels to the tasks.

    Args:
        columns: of the table, by the name of the column of the rows.
        fields: of the events, by column.
    """

    def __init__(
        self, columns: Mapping[str, TableColumn], fields: Mapping[str, EventField]
    ) -> None:
        self._columns, self._fields = dict(columns), dict(fields)

    def rejected(self, rows: pa.Table) -> Iterator[RowsRejected]:
        """Yields the rows that can't be taken, by column."""
        for name, column in self._columns.items():
            array, field = rows[name].combine_chunks(), self._fields.get(name)
            yield from rejections(array, column, field, f"column {name!r}")

    def converted(self, rows: pa.Table) -> pa.Table:
        """Returns rows, none of which is rejected, with the columns and types of the table."""
        import pyarrow as pa

        arrays = {
            column.name: _converted(rows[name].combine_chunks(), column, self._fields.get(name))
            for name, column in self._columns.items()
        }
        return pa.table(arrays)


def _converted(array: Any, column: TableColumn, field: EventField | None) -> Any:
    import numpy as np
    import pyarrow as pa
    from pyarrow import types

    kind = array.type
    if column.mode == REPEATED:
        offsets = pa.array(np.concatenate(([0], np.cumsum(item_counts(array)))), pa.int32())
        item = TableColumn(column.name, column.type, NULLABLE, column.fields)
        return pa.ListArray.from_arrays(
            offsets, _converted(array.flatten(), item, field and field.element)
        )
    if column.type == "JSON" and types.is_nested(kind):
        return pa.array(nested_json(array, field), pa.string())
    if types.is_struct(kind):
        return _converted_struct(array, column, field)
    target = _arrow_type(column, kind)
    return array if kind == target else array.cast(target)


def _converted_struct(array: Any, column: TableColumn, field: EventField | None) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    known = by_name(column.fields)
    columns = [known[member.name.lower()] for member in array.type]
    members = zip(columns, members_of(array.type, field), strict=True)
    arrays = [
        _converted(pc.struct_field(array, [index]), inner, member)
        for index, (inner, member) in enumerate(members)
    ]
    names = [inner.name for inner in columns]
    return pa.StructArray.from_arrays(arrays, names, mask=array.is_null())


def _arrow_type(column: TableColumn, kind: pa.DataType) -> pa.DataType:
    """Returns the Arrow type in which the Storage Write API takes a column."""
    import pyarrow as pa

    if column.type in ("TIMESTAMP", "DATETIME"):
        return pa.timestamp("us", kind.tz and "UTC")
    return {
        "STRING": pa.string(),
        "JSON": pa.string(),
        "INTEGER": pa.int64(),
        "FLOAT": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "DATE": pa.date32(),
        "BYTES": pa.binary(),
        "NUMERIC": pa.decimal128(38, 9),
        "BIGNUMERIC": pa.decimal256(76, 38),
    }[column.type]
