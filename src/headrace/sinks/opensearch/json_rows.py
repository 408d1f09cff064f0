"""Rows as texts of JSON, whose values are those of the rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from headrace.model import EventField
from headrace.sinks.arrow_types import is_bytes, is_text
from headrace.sinks.json_values import (
    BEYOND_CALENDAR,
    NO_JSON,
    NOT_FINITE,
    nested_json,
    unwritable,
)

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

_PLAIN = '{"v":'


def json_texts(rows: pa.Table, any_fields: Mapping[str, EventField]) -> pl.Series:
    """Returns the JSON of each row.

    Times are of RFC 3339 with the offset of UTC, decimals are texts, bytes are base64.

    Args:
        rows: those that have none are left out; see :func:`faults`.
        any_fields: by column, the fields that are or hold an ``Any``.
    """
    import polars as pl

    slow = [
        column.name for column in rows.schema if column.name in any_fields or _is_slow(column.type)
    ]
    # Of values and not of names, of which polars takes such as "^a$" for patterns.
    fast = {
        name: _bytes_as_text(pl.Series(rows[name]))
        for name in rows.column_names
        if name not in slow
    }
    parts: list[pl.Series | pl.Expr] = [pl.lit("{")]
    if fast:
        parts = [pl.DataFrame(fast).to_struct().struct.json_encode().str.strip_suffix("}")]
    for place, name in enumerate(slow):
        comma = "," if fast or place else ""
        texts = pl.Series(nested_json(rows[name], any_fields.get(name)), dtype=pl.String)
        parts += [pl.lit(f"{comma}{json.dumps(name)}:"), texts.fill_null("null")]
    return pl.select(pl.concat_str(*parts, pl.lit("}")).alias("json")).to_series()


def plain_texts(column: pl.Series) -> pl.Series:
    """Returns the JSON of each value of a column of texts, numbers or times."""
    import polars as pl

    encoded = pl.struct(column.alias("v")).struct.json_encode()
    return pl.select(encoded.str.strip_prefix(_PLAIN).str.strip_suffix("}")).to_series()


def _bytes_as_text(column: pl.Series) -> pl.Series:
    import polars as pl

    return column.bin.encode("base64") if column.dtype == pl.Binary else column


def _is_slow(kind: pa.DataType) -> bool:
    """Whether polars writes no JSON of nested values: bytes, and keys that are no texts."""
    from pyarrow import types

    if not types.is_nested(kind):
        return False
    if types.is_map(kind) and not is_text(kind.key_type):
        return True
    parts = [kind.field(position).type for position in range(kind.num_fields)]
    return any(is_bytes(part) or _is_slow(part) for part in parts)


def faults(rows: pa.Table, any_fields: Mapping[str, EventField]) -> dict[int, str]:
    """Returns by row why it has no JSON: the column, and what is in it at any depth."""
    faulty: dict[int, str] = {}
    for column in rows.schema:
        values, field = rows[column.name].combine_chunks(), any_fields.get(column.name)
        is_slow = field is not None or _is_slow(column.type)
        # Times of other columns are texts of polars, and the server says which ones it takes.
        looked_for = (NO_JSON, NOT_FINITE, BEYOND_CALENDAR) if is_slow else (NOT_FINITE,)
        for are_faulty, fault in unwritable(values, field, looked_for):
            for row in np.flatnonzero(are_faulty):
                faulty.setdefault(int(row), f"column {column.name!r} {fault}")
    return faulty
