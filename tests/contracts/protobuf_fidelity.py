"""Random schemas of Protobuf for random event classes, and their events as a writer sends them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from google.protobuf.message_factory import GetMessageClass

from headrace.events.protobuf.schemas import protobuf_schema
from headrace.model import RegisteredSchema

if TYPE_CHECKING:
    from tests.contracts.fidelity import Held, Record

HEAD = (
    'syntax = "proto3"; import "google/protobuf/timestamp.proto"; '
    'import "google/protobuf/wrappers.proto"; '
)
TIMESTAMP = "google.protobuf.Timestamp"
KINDS: Mapping[str, list[str]] = {
    "Text": ["string"],
    "Choice": ["string"],
    "Integer": ["int64", "sint64", "sfixed64"],
    "Double": ["double"],
    "Truth": ["bool"],
    "Time": [TIMESTAMP, "string"],
    "Millis": [TIMESTAMP],
    "Day": ["string"],
    "Exact": ["string"],
    "Bytes": ["bytes"],
}
WRAPPERS = {"string": "String", "int64": "Int64", "double": "Double", "bool": "Bool"}


def schema_of(rng: Random, record: Record) -> str:
    """Returns a file, as one of the writers of such events has it."""
    fields = _fields(rng, record.fields)
    return f"{HEAD} message M0 {{ {fields} repeated bytes undeclared = 900; }}"


def _fields(rng: Random, held: Mapping[str, Held]) -> str:
    numbers = iter(rng.sample(range(1, 800), len(held)))
    parts = []
    for place, (name, field) in enumerate(held.items()):
        kind, number, label = field.kind, next(numbers), ""
        item = getattr(kind, "item", field)
        nested = getattr(item.kind, "fields", None)
        if nested is not None:
            written = f"N{place}"
            parts.append(f"message {written} {{ {_fields(rng, nested)} }}")
        else:
            written = rng.choice(KINDS[type(item.kind).__name__])
        if type(kind).__name__ == "Array":
            label = "repeated "
        elif type(kind).__name__ == "Mapped":
            written = f"map<string, {written}>"
        elif field.nullable and written in WRAPPERS and rng.random() < 0.3:
            written = f"google.protobuf.{WRAPPERS[written]}Value"
        elif (field.nullable or rng.random() < 0.3) and nested is None:
            label = "optional "
        parts.append(f"{label}{written} {name} = {number};")
    return " ".join(parts)


def written(rng: Random, text: str, record: Record, event: Mapping[str, Any]) -> bytes:
    """Returns a message without what stands before it."""
    made = GetMessageClass(protobuf_schema(RegisteredSchema("PROTOBUF", text)).message([0]))()
    _put_all(made, record.fields, event)
    if rng.random() < 0.5:
        made.undeclared.append(rng.randbytes(5))
    return made.SerializeToString()


def _put_all(message: Any, fields: Mapping[str, Held], event: Mapping[str, Any]) -> None:
    for name, held in fields.items():
        value = event[name]
        if value is None:
            continue
        field = message.DESCRIPTOR.fields_by_name[name]
        target = getattr(message, name)
        item = getattr(held.kind, "item", held)
        if isinstance(value, list):
            for part in value:
                if field.message_type is None:
                    target.append(_scalar(part))
                else:
                    _put(target.add(), item, part)
        elif type(held.kind).__name__ == "Mapped":
            of_message = field.message_type.fields_by_name["value"].message_type
            for key, part in value.items():
                if of_message is None:
                    target[key] = _scalar(part)
                else:
                    _put(target[key], item, part)
        elif field.message_type is None:
            setattr(message, name, _scalar(value))
        else:
            target.SetInParent()
            _put(target, held, value)


def _put(message: Any, held: Held, value: Any) -> None:
    if hasattr(held.kind, "fields"):
        _put_all(message, held.kind.fields, value)
    elif message.DESCRIPTOR.full_name == TIMESTAMP:
        micros = held.kind.datum(value) * (1000 if type(held.kind).__name__ == "Millis" else 1)
        message.seconds, rest = divmod(micros, 1_000_000)
        message.nanos = rest * 1000 + 999 * (type(held.kind).__name__ == "Time")
    else:
        message.value = _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, str | bytes | bool | int | float):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else f"{value:f}"
