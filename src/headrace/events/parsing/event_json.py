"""Events that a program makes, as the JSON texts that their topics read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import InvalidRecordError
from headrace.model import EventField, FieldType

if TYPE_CHECKING:
    from headrace.model import EventSchema, Topic

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def event_json(schema: EventSchema, event: object) -> bytes:
    """Returns an event as JSON: of a mapping all members, of another object the declared fields.

    Times are RFC 3339 texts, those of ``EpochMillis`` fields milliseconds since 1970. A value of
    another type than its field is written, too: readers of the text reject it.

    Raises:
        InvalidRecordError: if the text would hold another value than the event: of a time without
            a zone or with parts of a millisecond in an ``EpochMillis`` field, and of bytes in one
            that is not ``bytes``.
        TypeError: if JSON has nothing for a value.
    """
    value = _value(EventField("", FieldType.STRUCT, schema=schema), event, "")
    try:
        return msgspec.json.encode(value, enc_hook=_members)
    except UnicodeEncodeError:
        # Half of a surrogate pair has no bytes. Readers reject its escape, and name the field.
        return json.dumps(msgspec.to_builtins(value, str_keys=True, enc_hook=_members)).encode()


def event_text(topic: Topic, event: object) -> bytes:
    """Returns an event as the value of a record: bytes as they are, all else as JSON.

    Raises:
        InvalidRecordError: if JSON would hold another value than the event, see :func:`event_json`.
        TypeError: if it is no event.
    """
    if isinstance(event, bytes):
        return event
    if topic.schema is None:
        raise TypeError(
            f"records of raw topic {topic.name!r} are bytes, not {type(event).__name__}"
        )
    if isinstance(event, str):
        # Half of a surrogate pair has no bytes in UTF-8: what it becomes is rejected.
        return event.encode(errors="surrogatepass")
    if not has_fields(event):
        kind = type(event).__name__
        raise TypeError(f"an event is an object or mapping with fields, or JSON text, not {kind}")
    return event_json(topic.schema, event)


def has_fields(value: object) -> bool:
    """Returns whether a value is a mapping or an object with attributes of its own."""
    if isinstance(value, type):
        return False
    return isinstance(value, Mapping) or hasattr(value, "__dict__") or hasattr(value, "__slots__")


def _value(field: EventField, value: Any, path: str) -> Any:
    if field.type is FieldType.MILLIS and isinstance(value, datetime):
        return _milliseconds(value, path)
    if field.schema is not None and has_fields(value):
        return _object(field.schema, value, f"{path}." if path else "")
    if field.type is FieldType.LIST and isinstance(value, list | tuple | set | frozenset):
        return [_value(field.item, held, f"{path}[]") for held in value]
    if field.type is FieldType.MAP and isinstance(value, Mapping):
        return {key: _value(field.item, held, f"{path}[]") for key, held in value.items()}
    is_bytes = isinstance(value, bytes | bytearray | memoryview)
    if is_bytes and field.type not in (FieldType.BINARY, FieldType.JSON):
        raise InvalidRecordError("wrong-type", f"field {path!r} is bytes, and not declared as such")
    return value


def _object(schema: EventSchema, event: object, prefix: str) -> dict[str, Any]:
    if isinstance(event, Mapping):
        members = dict(event)
    else:
        members = {name: getattr(event, name) for name in schema.names if hasattr(event, name)}
    fields = [field for field in schema.fields if field.name in members]
    return members | {
        field.name: _value(field, members[field.name], prefix + field.name) for field in fields
    }


def _milliseconds(time: datetime, path: str) -> int:
    if time.utcoffset() is None:
        sentence = f"field {path!r} is a time without a zone, expected one with a zone"
        raise InvalidRecordError("wrong-type", sentence)
    milliseconds, rest = divmod(time - _EPOCH, _MILLISECOND)
    if rest:
        sentence = f"field {path!r} takes milliseconds, and the time has parts of one"
        raise InvalidRecordError("wrong-value", sentence)
    return milliseconds


def _members(value: object) -> dict[str, Any]:
    """Returns the members of an object that no field describes."""
    if isinstance(value, Mapping):
        return dict(value)
    if not hasattr(value, "__dict__"):
        raise TypeError(f"JSON has nothing for an object of the type {type(value).__name__}")
    return dict(vars(value))
