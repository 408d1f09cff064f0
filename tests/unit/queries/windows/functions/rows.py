"""Rows of batches, and the values that aggregates of them have."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import Aggregate, Path
from headrace.queries.windows.functions import Places, aggregation_of

MINUTE = timedelta(minutes=1)
ARROW = {
    ValueType.TEXT: pa.string(),
    ValueType.INTEGER: pa.int64(),
    ValueType.NUMBER: pa.float64(),
    ValueType.BOOLEAN: pa.bool_(),
    ValueType.TIME: pa.timestamp("us", "UTC"),
}


@dataclass(frozen=True)
class Row:
    value: Any
    group: int = 0
    place: tuple[int, int, int] = (0, 0, 0)


def aggregation(function, value_type, *parameters, per=None):
    argument = None if value_type is None else Path(("x",))
    return aggregation_of(Aggregate(function, argument, parameters, per=per), value_type)


def partials(aggregation, value_type, rows, group_count=1):
    rows = list(rows)
    values = (
        None if value_type is None else pa.array([row.value for row in rows], ARROW[value_type])
    )
    groups = np.array([row.group for row in rows], np.int64)
    places = np.array([row.place for row in rows], np.int64).reshape(-1, 3)
    return aggregation.partials(values, groups, group_count, Places(*places.T))


def transferred(partial):
    """Returns a partial that went through a topic."""
    return msgspec.json.decode(msgspec.json.encode(partial))


def accumulated(aggregation, parts):
    accumulator = aggregation.accumulator()
    for partial in parts:
        accumulator.add(transferred(partial))
    return accumulator


def value_of(function, value_type, values, *parameters, per=None):
    """Returns the value of one batch with one group."""
    of = aggregation(function, value_type, *parameters, per=per)
    parts = partials(of, value_type, [Row(value) for value in values])
    return accumulated(of, parts).value(MINUTE)
