"""``min``, ``max`` and ``latest``: aggregates that select a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, NamedTuple, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events.times import iso_text
from headrace.queries.language.functions import ValueType
from headrace.queries.windows.functions.aggregation import (
    Aggregation,
    GroupedRows,
    Integers,
    Numbers,
)
from headrace.queries.windows.functions.partial import (
    Partial,
    read_integer,
    read_list,
    read_value,
)

Scalar: TypeAlias = int | float | str | bool


@dataclass(frozen=True)
class ExtremeAggregation(Aggregation[Scalar]):
    """The least or the greatest value; null without a value. Its partial is the value.

    Texts are compared by their bytes in UTF-8. A zero has no sign.

    Attributes:
        value_type: the type of the argument: a number, a text or a time.
        is_max: whether the greatest value is selected.
    """

    value_type: ValueType
    is_max: bool

    keeps_values: ClassVar[bool] = True

    def partials_of(self, rows: GroupedRows) -> Iterable[Partial]:
        if self.value_type is ValueType.TEXT:
            encoded = rows.scalars().dictionary_encode()
            order = pc.sort_indices(encoded.dictionary).to_numpy()
            ranks = np.empty(len(order), np.int64)
            ranks[order] = np.arange(len(order))
            extremes = self._extremes(ranks[encoded.indices.to_numpy()], rows)
            texts = encoded.dictionary.take(pa.array(order[extremes]))
            return cast("list[Partial]", texts.to_pylist())
        # -0.0 + 0 is 0.0: else the order of rows would decide which of the two zeros is selected.
        return cast("list[Partial]", self._extremes(rows.numbers() + 0, rows).tolist())

    def _extremes(self, numbers: Numbers, rows: GroupedRows) -> Numbers:
        extreme = np.maximum if self.is_max else np.minimum
        return _extremes(extreme, numbers, rows.groups, len(rows.counts))

    def read(self, partial: Partial) -> Scalar:
        return read_value(partial, self.value_type)

    def write(self, state: Scalar) -> Partial:
        return state

    def merge(self, state: Scalar, added: Scalar) -> Scalar:
        # Python compares texts by code points: their order is that of the bytes in UTF-8.
        is_less = state < added  # type: ignore[operator]  # both are of one type
        return added if is_less is self.is_max else state

    def value(self, state: Scalar | None, window: timedelta) -> Partial:  # noqa: ARG002
        return _json_value(state, self.value_type)


class PlacedValue(NamedTuple):
    """A value, and the place of its event.

    Attributes:
        place: the event time in microseconds since 1970, the partition, and the offset.
        value: the value of the argument.
    """

    place: tuple[int, int, int]
    value: Scalar


@dataclass(frozen=True)
class LatestAggregation(Aggregation[PlacedValue]):
    """The value of the event with the newest event time; null without a value.

    If several events have that time, the event in the greatest partition and at the greatest offset
    counts. If these are in one record, the event with the greatest value counts; texts are compared
    by their bytes. Its partial is ``[value, time, partition, offset]``, with times in microseconds
    since 1970.

    Attributes:
        value_type: the type of the argument.
    """

    value_type: ValueType

    keeps_values: ClassVar[bool] = True

    def partials_of(self, rows: GroupedRows) -> Iterable[Partial]:
        places = (rows.places.time_us, rows.places.partition, rows.places.offset)
        latest = _latest_rows(rows, places)
        values = rows.scalars().take(pa.array(latest)).to_pylist()
        columns = (column[latest].tolist() for column in places)
        return [list(items) for items in zip(values, *columns, strict=True)]

    def read(self, partial: Partial) -> PlacedValue:
        value, *place = read_list(partial, 4)
        time_us, partition, offset = map(read_integer, place)
        return PlacedValue((time_us, partition, offset), read_value(value, self.value_type))

    def write(self, state: PlacedValue) -> Partial:
        return [state.value, *state.place]

    def merge(self, state: PlacedValue, added: PlacedValue) -> PlacedValue:
        return max(state, added)

    def value(self, state: PlacedValue | None, window: timedelta) -> Partial:  # noqa: ARG002
        return None if state is None else _json_value(state.value, self.value_type)


def _latest_rows(rows: GroupedRows, places: Iterable[Integers]) -> Integers:
    """Returns the row index of the greatest place, and then the greatest value, of each group."""
    groups, group_count = rows.groups, len(rows.counts)
    latest = np.arange(len(groups))
    for numbers in places:
        greatest = _extremes(np.maximum, numbers[latest], groups[latest], group_count)
        latest = latest[numbers[latest] == greatest[groups[latest]]]
    if len(latest) > group_count:
        latest = latest[pc.sort_indices(rows.scalars().take(pa.array(latest))).to_numpy()]
    of_groups = np.empty(group_count, np.int64)
    of_groups[groups[latest]] = latest  # the last row of each group stays
    return of_groups


def _extremes(extreme: np.ufunc, numbers: Numbers, groups: Integers, group_count: int) -> Numbers:
    """Returns the extreme number of each group."""
    extremes = np.empty(group_count, numbers.dtype)
    extremes[groups] = numbers  # an initial number of each group
    extreme.at(extremes, groups, numbers)
    return extremes


def _json_value(value: Scalar | None, value_type: ValueType) -> Partial:
    """Returns a value as JSON has it; times are limited to the years 1 to 9999."""
    if value_type is ValueType.TIME and value is not None:
        return iso_text(int(value)).replace("+00:00", "Z")
    return value
