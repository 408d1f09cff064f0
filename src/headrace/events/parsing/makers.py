"""What is made of the values that the parser gives: instances of classes, what Avro is written of.

A maker of a field is None where the parser's value is what is wanted, so that it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from headrace.events.parsing.values import without_null
from headrace.model import EventField, EventSchema, FieldType

Maker: TypeAlias = Callable[[Any], Any]


def fields_maker(
    schema: EventSchema, maker_of: Callable[[EventField], Maker | None]
) -> Callable[[msgspec.Struct], dict[str, Any]]:
    """Returns what makes the fields of an event from the parser's struct, by name.

    Args:
        schema: of the event.
        maker_of: returns what makes a value of a field that is not null.
    """
    makers = {field.name: nullable_maker(field, maker_of(field)) for field in schema.fields}
    changed = {name: make for name, make in makers.items() if make is not None}

    def fields(event: msgspec.Struct) -> dict[str, Any]:
        values = dict(zip(schema.names, msgspec.structs.astuple(event), strict=True))
        for name, make in changed.items():
            values[name] = make(values[name])
        return values

    return fields


def nullable_maker(field: EventField, make: Maker | None) -> Maker | None:
    """Returns a maker that leaves a null as it is, where the field takes one."""
    if make is None or not field.nullable:
        # The parser leaves a null as text where it leaves values as text: the maker rejects it.
        return make

    def nullable(value: Any) -> Any:
        value = without_null(value)
        return None if value is None else make(value)

    return nullable


def container_maker(
    field: EventField, maker_of: Callable[[EventField], Maker | None]
) -> Maker | None:
    """Returns what makes a list or map, whose element ``maker_of`` is asked for."""
    item = nullable_maker(field.item, maker_of(field.item))
    if item is None:
        return None
    if field.type is FieldType.MAP:
        return lambda values: {key: item(value) for key, value in values.items()}
    return lambda values: [item(value) for value in values]
