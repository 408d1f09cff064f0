"""Structs of events as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events.parsing.parser import event_parser, slots
from headrace.events.parsing.values import reader_of, without_null
from headrace.model import FieldType
from headrace.pipelines.source.decode.timestamps import timestamps

if TYPE_CHECKING:
    from headrace.model import EventField, EventSchema

_TIME = pa.timestamp("us", tz="UTC")
_ARROW_TYPES = {
    FieldType.STRING: pa.string(),
    FieldType.LONG: pa.int64(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.BOOLEAN: pa.bool_(),
    FieldType.TIMESTAMP: _TIME,
    FieldType.MILLIS: _TIME,
    FieldType.DATE: pa.date32(),
    FieldType.BINARY: pa.binary(),
    FieldType.JSON: pa.string(),
}
_JUDGED_BY_PARSER = {
    FieldType.STRING,
    FieldType.LONG,
    FieldType.DOUBLE,
    FieldType.BOOLEAN,
    FieldType.MILLIS,
}
"""Types whose values can all be read that the parser takes."""
_Column: TypeAlias = tuple[pa.Array, Collection[int]]
"""An array of the values of one field, and the rows whose value could not be read."""
_Builder: TypeAlias = Callable[[list[Any]], _Column]


def arrow_schema(schema: EventSchema) -> pa.Schema:
    """Returns a nullable column for each field, in their order."""
    return _columns_of(schema.fields)


def _columns_of(fields: Iterable[EventField]) -> pa.Schema:
    return pa.schema([pa.field(field.name, arrow_type(field)) for field in fields])


def arrow_type(field: EventField) -> pa.DataType:
    """Returns the type of the column of a field."""
    match field.type:
        case FieldType.DECIMAL:
            return pa.decimal128(field.precision.digits, field.precision.scale)
        case FieldType.STRUCT:
            return pa.struct([pa.field(member.name, arrow_type(member)) for member in field.fields])
        case FieldType.LIST:
            return pa.list_(arrow_type(field.item))
        case FieldType.MAP:
            return pa.map_(pa.string(), arrow_type(field.item))
    return _ARROW_TYPES[field.type]


class EventColumns:
    """The columns of an event schema, and the parser of one event.

    Args:
        schema: of the events.
        needed: names of the fields whose columns are looked at; None: all. Of the others, a column
            is made where it shows which values can't be read.

    Attributes:
        arrow_schema: a nullable column for each field that has one, in their order.
        parse: one record to a struct; ValueError, TypeError or RecursionError if it is bad.
    """

    def __init__(self, schema: EventSchema, needed: Collection[str] | None = None) -> None:
        made = fields = slots(schema)
        if needed is not None:
            made = {
                slot: field
                for slot, field in fields.items()
                if field.name in needed or field.type not in _JUDGED_BY_PARSER
            }
        # Arrow counts the rows of a table by its columns.
        made = made or dict([*fields.items()][:1])
        self.arrow_schema = _columns_of(made.values())
        self.parse = event_parser(schema)
        self._fields = _Fields(made, can_be_null=False)

    def of(self, events: Sequence[msgspec.Struct]) -> tuple[pa.RecordBatch, Collection[int]]:
        """Returns the columns of the events, and the rows in which a value could not be read."""
        arrays, unreadable = self._fields(events)
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema), unreadable


def _builder(field: EventField, *, can_be_null: bool) -> _Builder:
    """The builder of a field; ``can_be_null`` where it is nullable or inside of what is."""
    if field.type is FieldType.STRUCT:
        return _Structs(field, can_be_null=can_be_null)
    if field.type in (FieldType.LIST, FieldType.MAP):
        return _Containers(field)
    if field.type is FieldType.TIMESTAMP:
        return timestamps
    if field.type in (FieldType.LONG, FieldType.MILLIS):
        make = _integers if field.type is FieldType.LONG else _millis
        return lambda values: (make(values, can_be_null), ())
    read, kind = reader_of(field), arrow_type(field)
    if read is None:
        return lambda values: (pa.array(values, kind), ())
    build = partial(read_values, read, kind)
    return (lambda values: build([*map(without_null, values)])) if field.nullable else build


def _integers(values: list[int | None], can_be_null: bool) -> pa.Array:
    # NumPy reads integers faster, and has no null among them.
    if can_be_null:
        return pa.array(values, pa.int64())
    return pa.array(np.fromiter(values, np.int64, len(values)))


def _millis(values: list[int | None], can_be_null: bool) -> pa.Array:
    return pc.multiply(_integers(values, can_be_null), 1000).cast(_TIME)


def read_values(
    read: Callable[[Any], object], kind: pa.DataType, values: list[Any]
) -> tuple[pa.Array, list[int]]:
    """Returns an array of what ``read`` makes of values, and the rows for which that is None.

    A value that is None is null, and is not read.
    """
    results = [None if value is None else read(value) for value in values]
    pairs = enumerate(zip(values, results, strict=True))
    unreadable = [row for row, (value, result) in pairs if result is None and value is not None]
    return pa.array(results, kind), unreadable


class _Fields:
    """Makes an array of each field, which structs have in slots."""

    def __init__(self, fields: Mapping[str, EventField], *, can_be_null: bool) -> None:
        """The structs ``can_be_null``, and so the values of all their fields."""
        self._parts = [
            (
                _reader(slot, can_be_null=can_be_null),
                _builder(field, can_be_null=can_be_null or field.nullable),
            )
            for slot, field in fields.items()
        ]

    def __call__(self, structs: Sequence[Any]) -> tuple[list[pa.Array], set[int]]:
        arrays: list[pa.Array] = []
        unreadable: set[int] = set()
        for read, build in self._parts:
            array, rows = build(read(structs))
            arrays.append(array)
            unreadable.update(rows)
        return arrays, unreadable


def _reader(slot: str, *, can_be_null: bool) -> Callable[[Sequence[Any]], list[Any]]:
    """A comprehension reads a slot twice as fast as attrgetter, but needs its name in the code."""
    value = f"None if event is None else event.{slot}" if can_be_null else f"event.{slot}"
    return eval(f"lambda events: [{value} for event in events]")  # type: ignore[no-any-return]  # noqa: S307


class _Structs:
    """Makes a struct array of nested structs."""

    def __init__(self, field: EventField, *, can_be_null: bool) -> None:
        if field.schema is None:
            raise TypeError(field.type)
        self._fields = _Fields(slots(field.schema), can_be_null=can_be_null)
        self._members = list(arrow_type(field))
        self._can_be_null = can_be_null

    def __call__(self, values: list[Any]) -> _Column:
        arrays, unreadable = self._fields(values)
        is_null = [value is None for value in values] if self._can_be_null else None
        mask = None if is_null is None else pa.array(is_null, pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=self._members, mask=mask), unreadable


class _Containers:
    """Makes a list array of lists, or a map array of dictionaries."""

    def __init__(self, field: EventField) -> None:
        self._is_map = field.type is FieldType.MAP
        self._build = _builder(field.item, can_be_null=field.item.nullable)

    def __call__(self, values: list[Any]) -> _Column:
        # Arrow's offsets: where each list ends in one array of all items.
        ends = np.cumsum([0 if value is None else len(value) for value in values], dtype=np.int32)
        is_null = np.array([*(value is None for value in values), False])
        offsets = pa.array(np.append(np.int32(0), ends), mask=is_null)
        held = [value for value in values if value]
        if self._is_map:
            keys = pa.array(list(chain.from_iterable(held)), pa.string())
            held = [value.values() for value in held]
        items, unreadable = self._build(list(chain.from_iterable(held)))
        rows = np.searchsorted(ends, list(unreadable), side="right").tolist()
        if self._is_map:
            return pa.MapArray.from_arrays(offsets, keys, items), rows
        return pa.ListArray.from_arrays(offsets, items), rows
