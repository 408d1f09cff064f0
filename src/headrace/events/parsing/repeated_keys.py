"""Members of a JSON object that are repeated: the last value counts, whatever the others are.

The parser checks each of them, since it does not know which is the last. So a record that it has
rejected is read a second time, if nothing is wrong with the last ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.events.rejection import fault_of, parser_rejection
from headrace.model import FieldType

if TYPE_CHECKING:
    from headrace.events.rejection import Rejection
    from headrace.model import EventField, EventSchema

_members: Callable[[bytes], dict[str, msgspec.Raw]] = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
).decode
_items: Callable[[bytes], list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw]).decode


def parsed_again(
    value: bytes | None,
    schema: EventSchema,
    parse: Callable[[Any], msgspec.Struct],
    error: Exception,
) -> msgspec.Struct | Rejection:
    """Returns the event of a record that the parser has rejected, or why it is none.

    Args:
        value: the record's value.
        schema: of the event.
        parse: the parser.
        error: with which it rejected the value.
    """
    fault = fault_of(value, schema)
    if value is None or fault is not None:
        return fault or parser_rejection(error)
    try:
        return parse(_last_of_object(value, schema))
    except (ValueError, TypeError, RecursionError) as again:
        return parser_rejection(again)


def _last_of_object(text: bytes, schema: EventSchema) -> bytes:
    fields = {field.name: field for field in schema.fields}
    return _object(text, fields.get)


def _object(text: bytes, field_of: Callable[[str], EventField | None]) -> bytes:
    members = [
        msgspec.json.encode(name) + b":" + _last(value, field_of(name))
        for name, value in _members(text).items()
    ]
    return b"{" + b",".join(members) + b"}"


def _last(value: msgspec.Raw, field: EventField | None) -> bytes:
    """Returns a value without what is repeated in it, as far as the class declares fields."""
    text = bytes(value)
    if field is None or text == b"null":
        return text
    if field.schema is not None:
        return _last_of_object(text, field.schema)
    if field.type is FieldType.LIST:
        return b"[" + b",".join(_last(item, field.item) for item in _items(text)) + b"]"
    if field.type is FieldType.MAP:
        return _object(text, lambda _: field.item)
    return text
