"""Values with JSON in them as texts that are equal where the JSON is: objects have no order."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from headrace.model import EventField
from headrace.sinks.any_values import any_converter


def any_texts(column: pa.Array, field: EventField) -> pa.Array:
    """Returns a text for each value of a column that is or holds an ``Any``; null for null.

    Names of objects and keys of maps are in one order. Of numbers every digit counts.
    """
    convert = any_converter(field, _parsed)
    values = column.to_pylist(maps_as_pydicts="lossy")
    encode = json.JSONEncoder(sort_keys=True, default=_no_json).encode
    texts = (None if value is None else encode(convert(value)) for value in values)
    return pa.array(texts, pa.string())


def _parsed(text: str) -> Any:
    # Python takes no int of thousands of digits.
    for integer in (int, _number):
        with suppress(ValueError, RecursionError):
            return json.loads(text, parse_float=_number, parse_int=integer, parse_constant=_number)
    return text  # a step has put another text here


def _number(text: str) -> Any:
    try:
        return Decimal(text)
    except InvalidOperation:  # its exponent is beyond all bounds
        return _no_json(text)


def _no_json(value: Any) -> list[Any]:
    """Returns what no JSON is equal to: beside NaN, a text that distinguishes values."""
    return [math.nan, repr(value)]
