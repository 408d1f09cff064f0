"""Whether the columns of rows are the fields of an event class, at every depth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.model import EventField, EventSchema, FieldType, Topic
from headrace.model.fault import Fault
from headrace.model.source import RECORD_COLUMNS
from headrace.sinks.api import DeclaredRows
from headrace.sinks.arrow_types import is_bytes, is_list, is_point_in_time, is_text

if TYPE_CHECKING:
    import pyarrow as pa

_TIMES = frozenset({FieldType.TIMESTAMP, FieldType.MILLIS})
_OF_RAW_TOPIC = frozenset({FieldType.STRING, FieldType.JSON, FieldType.BINARY})
_CONVERT = "convert it in a step"


@dataclass(frozen=True, slots=True)
class Column:
    """What is known of a column, or of what a struct, a list or a map holds.

    Attributes:
        type_name: for messages.
        types: those of fields that take its values.
        fields: of a struct, by name; None: they are not known.
        item: what a list or map holds; None: it is not known.
    """

    type_name: str
    types: frozenset[FieldType]
    fields: Mapping[str, Column] | None = None
    item: Column | None = None


def declared_columns(rows: DeclaredRows) -> dict[str, Column]:
    """Returns the columns of rows whose declaration has them."""
    return {
        name: _declared(rows.fields.get(name, EventField(name, kind)))
        for name, kind in (rows.columns or {}).items()
    }


def _declared(field: EventField) -> Column:
    return Column(
        field.type.value,
        # Rows hold both kinds of times as timestamps.
        _TIMES if field.type in _TIMES else frozenset({field.type}),
        None if field.schema is None else {part.name: _declared(part) for part in field.fields},
        None if field.element is None else _declared(field.element),
    )


def arrow_columns(schema: pa.Schema | pa.StructType) -> dict[str, Column]:
    """Returns the columns of a table, or the fields of a struct."""
    return {field.name: _of_arrow(field.type) for field in schema}


def _of_arrow(kind: pa.DataType) -> Column:
    from pyarrow import types

    fields = item = None
    if types.is_struct(kind):
        fields = arrow_columns(kind)
    elif is_list(kind):
        item = _of_arrow(kind.value_type)
    elif types.is_map(kind):
        item = _of_arrow(kind.item_type)
    return Column(str(kind), _types_of(kind), fields, item)


def _types_of(kind: pa.DataType) -> frozenset[FieldType]:
    from pyarrow import types

    tests: Mapping[FieldType, Callable[[pa.DataType], bool]] = {
        FieldType.STRING: is_text,
        FieldType.LONG: types.is_integer,
        FieldType.DOUBLE: types.is_floating,
        FieldType.BOOLEAN: types.is_boolean,
        FieldType.TIMESTAMP: is_point_in_time,
        FieldType.MILLIS: is_point_in_time,
        FieldType.DATE: types.is_date,
        FieldType.DECIMAL: types.is_decimal,
        FieldType.BINARY: is_bytes,
        FieldType.STRUCT: types.is_struct,
        FieldType.LIST: is_list,
        FieldType.MAP: types.is_map,
        FieldType.JSON: is_text,
    }
    return frozenset(field for field, test in tests.items() if test(kind))


def differences(topic: Topic, columns: Mapping[str, Column]) -> Iterator[Fault]:
    """Yields where columns are not what a topic takes; those of the record may be there, too."""
    # Columns of the record that was read, such as its offset, are no fields of the new event.
    own = {name: column for name, column in columns.items() if name not in RECORD_COLUMNS}
    if topic.schema is None:
        if "value" not in own:
            remedy = "declare an event class for it, or make the column in a step"
            yield Fault("a raw topic needs a column 'value'", remedy)
        for name, column in own.items():
            if name not in ("value", "key"):
                remedy = "declare an event class for it, or leave the column out in a step"
                yield Fault(
                    f"a raw topic takes 'value' and 'key', and the rows have {name!r}", remedy
                )
            elif column.types.isdisjoint(_OF_RAW_TOPIC):
                message = (
                    f"a raw topic needs text or bytes, and column {name!r} is {column.type_name}"
                )
                yield Fault(message, _CONVERT)
    else:
        yield from _in_struct(topic.schema, own, topic.schema.name)


def _in_struct(schema: EventSchema, columns: Mapping[str, Column], path: str) -> Iterator[Fault]:
    for field in schema.fields:
        if field.name in columns:
            yield from _in_value(field, columns[field.name], f"{path}.{field.name}")
        else:
            remedy = f"make it in a step; the rows have there: {', '.join(columns)}"
            yield Fault(f"the rows have no {path}.{field.name}", remedy)
    for name in columns:
        if name not in schema.names:
            remedy = "add it to the class, or leave it out in a step"
            yield Fault(f"{path} has no field {name!r}, and the rows have it", remedy)


def _in_value(field: EventField, column: Column, path: str) -> Iterator[Fault]:
    if field.type not in column.types:
        types = f"{field.type.value} in the class and {column.type_name} in the rows"
        yield Fault(f"{path} is {types}", _CONVERT)
    elif field.schema is not None and column.fields is not None:
        yield from _in_struct(field.schema, column.fields, path)
    elif field.element is not None and column.item is not None:
        yield from _in_value(field.element, column.item, f"{path}[]")
