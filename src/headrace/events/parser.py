"""An event schema as a struct that msgspec fills."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
}


def slots(schema: EventSchema) -> dict[str, EventField]:
    """The struct's attribute of each field: f0, f1 ... A field's name may be any text."""
    return {f"f{number}": field for number, field in enumerate(schema.fields)}


def event_struct(
    schema: EventSchema, *, time: Any = str, absent: Any = None
) -> type[msgspec.Struct]:
    """A struct with the fields' JSON types; fields that are not declared are ignored.

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
        gc=False,
    )


def event_parser(schema: EventSchema) -> Callable[[Any], msgspec.Struct]:
    """One record to a struct; ValueError, TypeError or RecursionError if it is bad."""
    return msgspec.json.Decoder(event_struct(schema)).decode


def _slot(slot: str, field: EventField, types: Mapping[FieldType, Any], absent: Any) -> Any:
    json_type = Literal[field.values] if field.values else types[field.type]
    if not field.nullable:
        return slot, json_type
    allowed = json_type | None if absent is None else json_type | None | msgspec.UnsetType
    return slot, allowed, absent
