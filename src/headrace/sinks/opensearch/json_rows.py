"""Rows as texts of JSON, whose values are those of the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from headrace.model import EventField
from headrace.sinks.any_values import any_converter
from headrace.sinks.map_values import map_converter

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    from numpy.typing import NDArray

_PLAIN = '{"v":'


class NoJsonError(Exception):
    """A value can't be JSON. Its message is a sentence."""


def json_texts(rows: pa.Table, any_fields: Mapping[str, EventField]) -> pl.Series:
    """Returns the JSON of each row.

    Times are of RFC 3339 with the offset of UTC, decimals are texts, bytes are base64.

    Args:
        rows: without NaN and infinity, of which JSON has nothing; see :func:`faulty_numbers`.
        any_fields: by column, the fields that are or hold an ``Any``.

    Raises:
        NoJsonError: if the text of an ``Any`` is none, or a time beside one is beyond the calendar.
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
        texts = _slow_texts(rows[name], name, any_fields.get(name))
        parts += [pl.lit(f"{comma}{json.dumps(name)}:"), pl.Series(texts, dtype=pl.String)]
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
    if types.is_map(kind) and not types.is_string(kind.key_type):
        return True
    parts = [kind.field(position).type for position in range(kind.num_fields)]
    return any(_is_bytes(part) or _is_slow(part) for part in parts)


def leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yields the types that hold no others, within a type."""
    from pyarrow import types

    if not types.is_nested(kind):
        yield kind
    for position in range(kind.num_fields):
        yield from leaves(kind.field(position).type)


def _is_bytes(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_binary(kind) or types.is_large_binary(kind))


def _slow_texts(column: pa.ChunkedArray, name: str, field: EventField | None) -> list[str]:
    try:
        values = column.to_pylist(maps_as_pydicts=None if field is None else "lossy")
    except (OverflowError, ValueError):
        raise NoJsonError(f"column {name!r} has a time outside the years 1 to 9999") from None
    if field is None:
        convert = map_converter(column.type)
    else:
        convert = any_converter(field, lambda text: _raw_json(name, text))
    return [msgspec.json.encode(convert(value)).decode() for value in values]


def _raw_json(name: str, text: str) -> msgspec.Raw:
    """Returns a text that goes into the document as it is, but for line ends between its tokens."""
    raw = msgspec.Raw(text.encode())
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (ValueError, RecursionError):
        raise NoJsonError(f"column {name!r} is a text that is not one JSON value") from None
    return msgspec.Raw(text.replace("\n", " ").replace("\r", " ").encode())


def faulty_numbers(rows: pa.Table) -> dict[int, str]:
    """Returns by row a column in which it has NaN or infinity, at any depth."""
    faulty: dict[int, str] = {}
    for name in rows.column_names:
        for chunk, start in _chunks(rows[name]):
            for row in np.flatnonzero(_not_finite(chunk)):
                faulty.setdefault(start + int(row), name)
    return faulty


def _chunks(column: pa.ChunkedArray) -> Iterator[tuple[pa.Array, int]]:
    start = 0
    for chunk in column.chunks:
        yield chunk, start
        start += len(chunk)


def _not_finite(values: pa.Array) -> NDArray[np.bool_]:
    """Returns which values are or hold NaN or infinity."""
    import pyarrow.compute as pc
    from pyarrow import types

    kind, result = values.type, np.zeros(len(values), np.bool_)
    if types.is_floating(kind):
        finite: Any = pc.fill_null(pc.is_finite(values), True)
        result = ~finite.to_numpy(zero_copy_only=False)
    elif not any(map(types.is_floating, leaves(kind))):
        return result
    elif types.is_struct(kind):
        for part in values.flatten():
            result |= _not_finite(part)
    else:
        if types.is_map(kind):
            values = values.cast(_as_list(kind))
        inner = _not_finite(values.flatten())
        parents = pc.list_parent_indices(values).to_numpy()
        result[parents[inner]] = True
    return result


def _as_list(kind: pa.MapType) -> pa.ListType:
    import pyarrow as pa

    entry = [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]
    return pa.list_(pa.struct(entry))
