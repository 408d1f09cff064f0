"""An event schema as a struct that msgspec fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from headrace.events.times import EARLIEST_US, LATEST_US
from headrace.model import FieldType

if TYPE_CHECKING:
    from headrace.model import EventField, EventSchema

LONG_RANGE = (-(2**63), 2**63 - 1)
MILLIS_RANGE = (EARLIEST_US // 1000, LATEST_US // 1000)

_JSON_TYPES: dict[FieldType, Any] = {
    FieldType.STRING: str,
    FieldType.LONG: Annotated[int, msgspec.Meta(ge=LONG_RANGE[0], le=LONG_RANGE[1])],
    FieldType.DOUBLE: float,
    FieldType.BOOLEAN: bool,
    FieldType.TIMESTAMP: str,
    FieldType.MILLIS: Annotated[int, msgspec.Meta(ge=MILLIS_RANGE[0], le=MILLIS_RANGE[1])],
    FieldType.DATE: str,
    FieldType.BINARY: str,
    # Kept as text: as a double, a decimal would lose digits.
    FieldType.DECIMAL: msgspec.Raw,
    FieldType.JSON: msgspec.Raw,
}


def slots(schema: EventSchema) -> dict[str, EventField]:
    """The struct's attribute of each field: f0, f1 ... A field's name may be any text."""
    return {f"f{number}": field for number, field in enumerate(schema.fields)}


def event_struct(
    schema: EventSchema, *, time: Any = str, absent: Any = None
) -> type[msgspec.Struct]:
    """A struct with the fields' JSON types; fields that are not declared are ignored.

    Structs that are nested in it are made in the same way, with ``None`` for what is absent.

    Args:
        schema: the event's.
        time: what RFC 3339 times are read as; they are not looked at when it is ``str``.
        absent: what a field that may be null is when it is not there.
    """
    named = slots(schema)
    types = _JSON_TYPES | {FieldType.TIMESTAMP: time}
    return msgspec.defstruct(
        schema.name,
        [_slot(slot, field, types, absent) for slot, field in named.items()],
        rename={slot: field.name for slot, field in named.items()},
        kw_only=True,
        # Events hold no cycles, and the collector would visit each of the thousands in a batch.
        gc=False,
    )


def event_parser(schema: EventSchema) -> Callable[[Any], msgspec.Struct]:
    """One record to a struct; ValueError, TypeError or RecursionError if it is bad."""
    return msgspec.json.Decoder(event_struct(schema)).decode


def _slot(slot: str, field: EventField, types: Mapping[FieldType, Any], absent: Any) -> Any:
    json_type = _json_type(field, types)
    if not field.nullable:
        return slot, json_type
    # In a union with None, Raw would take null alone; by itself it takes null too.
    if json_type is msgspec.Raw:
        return slot, json_type, absent
    allowed = json_type | None if absent is None else json_type | None | msgspec.UnsetType
    return slot, allowed, absent


def _json_type(field: EventField, types: Mapping[FieldType, Any]) -> Any:
    if field.values:
        return Literal[field.values]
    if field.schema is not None:
        return event_struct(field.schema, time=types[FieldType.TIMESTAMP])
    if field.element is None:
        return types[field.type]
    element = _json_type(field.element, types)
    if field.element.nullable and element is not msgspec.Raw:
        element = element | None
    if field.type is FieldType.LIST:
        return GenericAlias(list, (element,))
    return GenericAlias(dict, (str, element))
