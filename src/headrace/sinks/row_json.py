"""A row as JSON, for the dead letter of a row that a sink does not take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from headrace.sinks.map_values import map_converter

if TYPE_CHECKING:
    import pyarrow as pa


def row_json(row: pa.Table) -> str:
    """Returns a table of one row as JSON; types that JSON lacks become text."""
    values = {name: _value(row[name]) for name in row.column_names}
    return msgspec.json.encode(values, enc_hook=str).decode()


def _value(column: pa.ChunkedArray) -> Any:
    try:
        return map_converter(column.type)(column.to_pylist()[0])
    except (OverflowError, ValueError):  # a time that Python does not know
        return column.to_string()
