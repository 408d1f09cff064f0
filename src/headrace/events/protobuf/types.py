"""Protobuf's types: which of them a field of an event class takes, and how it is read from them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.model import EventField, FieldType

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor

WELL_KNOWN = "google.protobuf."
TIMESTAMP = f"{WELL_KNOWN}Timestamp"
TIMESTAMP_FILE = "google/protobuf/timestamp.proto"
WRAPPERS = {
    f"{WELL_KNOWN}{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


class Reading(enum.Enum):
    """What a value of the message is for the class."""

    PLAIN = "the value"
    UNSIGNED = "an integer that may be beyond 64 bits with a sign"
    NUMBER = "a double, which may be no number"
    ENUM = "the number of a text"
    TIME = "seconds and nanoseconds"
    TEXT = "a text that holds a time, a date or a decimal"
    INTEGER = "an integer that is a decimal"
    STRUCT = "a message"
    LIST = "items"
    MAP = "values by texts"
    MISMATCH = "of a type that the field does not take"


TAKEN: Mapping[FieldType, str] = {
    FieldType.STRING: "string or an enum",
    FieldType.LONG: "an integer",
    FieldType.DOUBLE: "double, float or an integer of 32 bits",
    FieldType.BOOLEAN: "bool",
    FieldType.TIMESTAMP: f"{TIMESTAMP} or string",
    FieldType.DATE: "string",
    FieldType.DECIMAL: "string or an integer",
    FieldType.BINARY: "bytes",
    FieldType.STRUCT: "a message",
    FieldType.LIST: "a list",
    FieldType.MAP: "a map whose keys are strings",
}


def reading_of(written: FieldDescriptor, declared: EventField) -> Reading | None:
    """Returns how a value that is no message is read; None: the class does not take it."""
    kind, of_class = kind_of(written), declared.type
    is_integer = kind in _INTEGERS
    if of_class is FieldType.LONG and is_integer:
        return Reading.UNSIGNED if kind in ("uint64", "fixed64") else Reading.PLAIN
    if of_class is FieldType.DECIMAL and is_integer:
        return Reading.INTEGER
    if of_class is FieldType.DOUBLE and kind in (*_NARROW, "float", "double"):
        return Reading.NUMBER
    if kind == "string" and of_class in (FieldType.TIMESTAMP, FieldType.DATE, FieldType.DECIMAL):
        return Reading.TEXT
    if of_class is FieldType.STRING and written.enum_type is not None:
        return Reading.ENUM
    plain = {FieldType.STRING: "string", FieldType.BOOLEAN: "bool", FieldType.BINARY: "bytes"}
    return Reading.PLAIN if plain.get(of_class) == kind else None


_NARROW = ("int32", "sint32", "uint32", "fixed32", "sfixed32")
_INTEGERS = (*_NARROW, "int64", "sint64", "uint64", "fixed64", "sfixed64")


def kind_of(written: FieldDescriptor) -> str:
    """Returns Protobuf's name of a type that is no message."""
    if written.enum_type is not None:
        return f"enum {written.enum_type.full_name}"
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    name: str = FieldDescriptorProto.Type.Name(written.type)
    return name.removeprefix("TYPE_").lower()


def json_kind_of(written: FieldDescriptor) -> str:
    """Returns the type in JSON of a type that is no message."""
    kind = kind_of(written)
    if kind in _INTEGERS:
        return "integer"
    return {"float": "number", "double": "number", "bool": "boolean"}.get(kind, "string")


def texts_of(written: FieldDescriptor) -> dict[int, str]:
    """Returns the names of an enum by number: of aliases, the first."""
    texts: dict[int, str] = {}
    for value in written.enum_type.values:
        texts.setdefault(value.number, value.name)
    return texts


def is_map_field(written: FieldDescriptor) -> bool:
    """Returns whether a field is a map."""
    message = written.message_type
    return message is not None and bool(message.GetOptions().map_entry)
