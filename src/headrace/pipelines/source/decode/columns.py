"""Structs of events as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events.parser import event_parser, slots
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
}


class EventColumns:
    """The columns of an event schema, and the parser of one event.

    Attributes:
        arrow_schema: a nullable column for each field, in their order.
        parse: one record to a struct; ValueError, TypeError or RecursionError if it is bad.
    """

    def __init__(self, schema: EventSchema) -> None:
        self._fields = schema.fields
        self._readers = [_reader(slot) for slot in slots(schema)]
        self.arrow_schema = pa.schema(
            [pa.field(field.name, _ARROW_TYPES[field.type]) for field in schema.fields]
        )
        self.parse = event_parser(schema)

    def of(self, events: Sequence[msgspec.Struct]) -> tuple[pa.RecordBatch, set[int]]:
        """Returns the columns of the events, and the rows in which a text could not be read."""
        arrays: list[pa.Array] = []
        unreadable: set[int] = set()
        for field, read in zip(self._fields, self._readers, strict=True):
            array, rows = _array(field, read(events))
            arrays.append(array)
            unreadable.update(rows)
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema), unreadable


def _reader(slot: str) -> Callable[[Sequence[msgspec.Struct]], list[Any]]:
    """A comprehension reads a slot twice as fast as attrgetter, but needs its name in the code."""
    return eval(f"lambda events: [event.{slot} for event in events]")  # type: ignore[no-any-return]  # noqa: S307


def _array(field: EventField, values: list[Any]) -> tuple[pa.Array, Sequence[int]]:
    if field.type is FieldType.TIMESTAMP:
        return timestamps(values)
    if field.type is FieldType.MILLIS:
        return pc.multiply(_integers(field, values), 1000).cast(_TIME), ()
    if field.type is FieldType.LONG:
        return _integers(field, values), ()
    return pa.array(values, _ARROW_TYPES[field.type]), ()


def _integers(field: EventField, values: list[int | None]) -> pa.Array:
    if field.nullable:
        return pa.array(values, pa.int64())
    return pa.array(np.fromiter(values, np.int64, len(values)))
