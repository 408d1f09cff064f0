"""Maps in values of rows as JSON has them: objects, whose names are texts.

A step may make maps with keys of any type, such as structs.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

Convert: TypeAlias = Callable[[Any], Any]

_JSON = msgspec.json.Encoder(decimal_format="number")


def map_converter(kind: pa.DataType) -> Convert:
    """Returns what makes dictionaries of the maps in a value, as Arrow gives it to Python.

    Of equal keys the last one counts.
    """
    return _converter(kind) or (lambda value: value)


def json_key(key: Any) -> Any:
    """Returns a key as msgspec takes it: a Boolean, decimal, list or struct is a text of JSON."""
    is_text = isinstance(key, bool | Decimal | dict | list)
    return _JSON.encode(key).decode() if is_text else key


def _converter(kind: pa.DataType) -> Convert | None:
    """Returns what converts a value; None if there is no map in it."""
    from pyarrow import types

    if types.is_map(kind):
        key, item = map_converter(kind.key_type), map_converter(kind.item_type)
        return _nullable(lambda pairs: {json_key(key(name)): item(value) for name, value in pairs})
    if types.is_struct(kind):
        known = {field.name: _converter(field.type) for field in kind}
        inner = {name: converter for name, converter in known.items() if converter is not None}
        convert = _nullable(
            lambda row: row | {n: converter(row[n]) for n, converter in inner.items()}
        )
        return convert if inner else None
    element = _converter(kind.value_type) if types.is_nested(kind) else None
    return element and _nullable(lambda values: [element(value) for value in values])


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)
