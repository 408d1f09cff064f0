"""Rows of Arrow as COPY takes them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.model import EventField
from headrace.sinks.any_values import any_converter
from headrace.sinks.arrow_types import is_bytes
from headrace.sinks.json_values import NoJsonError, raw_json
from headrace.sinks.map_values import map_converter

if TYPE_CHECKING:
    import pyarrow as pa

_JSON = msgspec.json.Encoder(decimal_format="number")


def csv_of(rows: pa.Table) -> bytes:
    """Returns the rows as CSV: null is nothing, the empty text is ``""``."""
    from pyarrow import csv

    content = io.BytesIO()
    # Quoted: COPY takes an empty value without quotes for null.
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    csv.write_csv(rows, content, options)
    return content.getvalue()


def copyable(rows: pa.Table, any_fields: Mapping[str, EventField]) -> pa.Table:
    """Returns the rows with columns that CSV can carry: bytes as hex, nested values as JSON.

    ``any_fields``, by column, say which texts within nested values are JSON themselves.
    """
    import pyarrow as pa

    for place, column in enumerate(rows.schema):
        convert = _converter(column.type, any_fields.get(column.name))
        if convert is not None:
            values = rows[place].to_pylist()
            texts = [None if value is None else convert(value) for value in values]
            rows = rows.set_column(place, column.name, pa.array(texts, pa.string()))
    return rows


def _converter(kind: pa.DataType, field: EventField | None) -> Any:
    from pyarrow import types

    if is_bytes(kind):
        return lambda value: "\\x" + value.hex()
    if types.is_nested(kind):
        with_objects = map_converter(kind)
        with_json = any_converter(field, _raw_json) if field is not None else lambda value: value
        return lambda value: _JSON.encode(with_json(with_objects(value))).decode()
    # Arrow's CSV writer does not know views.
    if types.is_string_view(kind) or types.is_decimal(kind):
        return str
    return None


def _raw_json(text: str) -> Any:
    """Returns a text that is in JSON as it is; one that a step has made no JSON is a text."""
    try:
        return raw_json(text)
    except NoJsonError:
        return text
