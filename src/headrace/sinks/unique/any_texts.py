"""Values with JSON in them as texts that are equal where the JSON is: objects have no order."""

from __future__ import annotations

import json
from decimal import Decimal
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
    texts = (None if value is None else _text(convert(value)) for value in values)
    return pa.array(texts, pa.string())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):  # a step has put another text here
        return text


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)
