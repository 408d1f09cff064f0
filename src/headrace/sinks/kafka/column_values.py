"""Columns as values that msgspec writes as JSON, and whether readers take all of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime, timedelta
from itertools import starmap
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model import EventField, FieldType
from headrace.sinks.json_values import NoJsonError, raw_json
from headrace.sinks.map_values import json_key

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events import Rejection

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_TIMES = (FieldType.TIMESTAMP, FieldType.MILLIS)
_ToJson: TypeAlias = Callable[[Any], Any]


class _UnwritableError(Exception):
    """A value can't be written as JSON: a reason and a sentence."""


def json_values(
    column: pa.ChunkedArray, field: EventField, rejected: MutableMapping[int, Rejection]
) -> list[Any]:
    """Returns the values as msgspec writes them; it knows times, dates, decimals and bytes.

    A value that can't be written is None, and ``rejected`` has its row.
    """
    convert = _converter(field, field.name)
    try:
        if field.type in _TIMES:
            return _times(column, field.type)
        if field.type is FieldType.STRUCT:
            return _structs(column, field)
        values: list[Any] = column.to_pylist()
        return values if convert is None else list(map(_nullable(convert), values))
    except (_UnwritableError, OverflowError, ValueError):
        values = []
    for index, scalar in enumerate(column):
        value, why = _json_value(scalar, _nullable(convert), field.name)
        values.append(value)
        if why is not None:
            rejected.setdefault(index, why)
    return values


def _times(column: pa.ChunkedArray, kind: FieldType) -> list[Any]:
    """Returns times, or milliseconds since 1970.

    Raises:
        ValueError, OverflowError: if one is too fine, or outside the years 1 to 9999.
    """
    import pyarrow as pa
    from pyarrow import compute

    from headrace.events import EARLIEST_US, LATEST_US

    times = column.cast(pa.timestamp("us", "UTC"))
    ends = compute.min_max(times.cast(pa.int64())).as_py()
    if times.null_count < len(times) and (ends["min"] < EARLIEST_US or ends["max"] > LATEST_US):
        raise OverflowError
    if kind is FieldType.MILLIS:
        since_1970: list[Any] = times.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
        return since_1970
    # What Arrow makes of a time with a zone takes twenty times as long.
    deltas = times.to_numpy().astype("m8[us]").astype(object)
    return [None if delta is None else _EPOCH + delta for delta in deltas]


def _structs(column: pa.ChunkedArray, field: EventField) -> list[dict[str, Any] | None]:
    """Returns structs, part by part.

    Raises:
        ValueError: if a value in one can't be written.
    """
    rejected: dict[int, Rejection] = {}
    names = [part.name for part in field.fields]
    parts = (json_values(_part(column, p.name), p, rejected) for p in field.fields)
    rows = zip(column.is_valid().to_pylist(), zip(*parts, strict=True), strict=True)
    structs = [dict(zip(names, values, strict=True)) if valid else None for valid, values in rows]
    if rejected:
        raise ValueError(names)
    return structs


def _part(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Returns a field of structs; by its number, as Arrow takes a name like ``.a`` for a path."""
    from pyarrow import compute

    return compute.struct_field(column, [column.type.get_field_index(name)])


def _json_value(scalar: pa.Scalar, convert: _ToJson, path: str) -> tuple[Any, Rejection | None]:
    """Returns a value, or None and why it can't be written."""
    try:
        return convert(scalar.as_py()), None
    except _UnwritableError as error:
        reason, sentence = error.args
        return None, (reason, sentence)
    except UnicodeDecodeError:
        return None, ("not-utf8", f"field {path!r} holds a text that is not UTF-8")
    except (OverflowError, ValueError):
        return None, ("out-of-range", f"field {path!r} holds a time outside the years 1 to 9999")


def _converter(field: EventField, path: str) -> _ToJson | None:
    """Returns what makes JSON of a value that is not null; ``None`` if nothing has to."""
    if field.type is FieldType.MILLIS:
        return functools.partial(_milliseconds, path)
    if field.type is FieldType.JSON:
        return functools.partial(_raw_json, path)
    if field.type is FieldType.STRUCT:
        inner = {
            member.name: _nullable(_converter(member, f"{path}.{member.name}"))
            for member in field.fields
        }
        return lambda values: {name: convert(values[name]) for name, convert in inner.items()}
    if field.type is FieldType.LIST:
        item = _nullable(_converter(field.item, f"{path}[]"))
        return lambda values: [item(value) for value in values]
    if field.type is FieldType.MAP:
        item = _nullable(_converter(field.item, f"{path}[]"))
        return lambda pairs: {json_key(key): item(value) for key, value in pairs}
    return None


def _nullable(convert: _ToJson | None) -> _ToJson:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _milliseconds(path: str, at: datetime) -> int:
    milliseconds, rest = divmod(at - _EPOCH, _MILLISECOND)
    if rest:
        sentence = f"field {path!r} takes milliseconds, and the time has parts of one"
        raise _UnwritableError("wrong-value", sentence)
    return milliseconds


def _raw_json(path: str, text: str) -> Any:
    try:
        return raw_json(text)
    except NoJsonError:
        sentence = f"field {path!r} is a text that is not one JSON value"
        raise _UnwritableError("wrong-type", sentence) from None


def is_readable(column: pa.ChunkedArray, field: EventField) -> bool:
    """Returns whether readers of a field take each value of a column that can be written as it is.

    False also where it takes a parser to know.
    """
    import pyarrow as pa
    from pyarrow import compute, types

    kind = column.type
    match field.type:
        case FieldType.STRING if field.values:
            known = pa.array([*field.values, None], pa.large_string())
            readable = _all(compute.is_in(column.cast(known.type), known))
        case FieldType.LONG:
            readable = not types.is_uint64(kind)
        case FieldType.DOUBLE:  # JSON has null for the others
            readable = _all(compute.is_finite(column))
        case FieldType.DECIMAL:
            whole, scale = kind.precision - kind.scale, field.precision.scale
            readable = kind.scale <= scale and whole <= field.precision.digits - scale
        case FieldType.STRUCT:
            parts = ((_part(column, part.name), part) for part in field.fields)
            readable = all(starmap(is_readable, parts))
        case FieldType.LIST:
            readable = is_readable(compute.list_flatten(column), field.item)
        case FieldType.MAP:
            items = pa.chunked_array([chunk.items for chunk in column.chunks], kind.item_type)
            readable = types.is_string(kind.key_type) and is_readable(items, field.item)
        case _:
            readable = field.type is not FieldType.JSON
    return readable and (field.nullable or not column.null_count)


def _all(tests: pa.ChunkedArray) -> bool:
    from pyarrow import compute

    return compute.all(tests).as_py() is not False  # null: there is none
