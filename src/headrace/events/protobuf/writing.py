"""Schemas of Protobuf of event classes, and their events as messages of a registered one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.events.parsing.parser import event_parser, slots
from headrace.events.parsing.values import reader_of, without_null
from headrace.events.protobuf.schemas import protobuf_schema
from headrace.events.protobuf.types import (
    TIMESTAMP,
    TIMESTAMP_FILE,
    WRAPPERS,
    is_map_field,
    kind_of,
)
from headrace.events.wire_format import HEADER
from headrace.model import EventField, EventSchema, FieldType, Protobuf, RegisteredSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

_FIRST_MESSAGE = b"\0"  # the indices of the first message of a file
_TYPES = {
    FieldType.STRING: "string",
    FieldType.LONG: "int64",
    FieldType.DOUBLE: "double",
    FieldType.BOOLEAN: "bool",
    FieldType.TIMESTAMP: TIMESTAMP,
    FieldType.MILLIS: TIMESTAMP,
    FieldType.DATE: "string",
    FieldType.DECIMAL: "string",
    FieldType.BINARY: "bytes",
}
_HOLDS = _TYPES | {FieldType.LONG: ("int64", "sint64", "sfixed64")}
_TIMES = (FieldType.TIMESTAMP, FieldType.MILLIS)


def protobuf_text(schema: EventSchema) -> str:
    """Returns the file of a class: a message with its fields, numbered in their order."""
    head = ['syntax = "proto3";', f'import "{TIMESTAMP_FILE}";']
    return "\n".join([*head, *_message(schema.name, schema, ""), ""])


def _message(name: str, schema: EventSchema, indent: str) -> Iterator[str]:
    yield f"{indent}message {name} {{"
    names: dict[EventSchema, str] = {}
    taken = {field.name for field in schema.fields}
    for number, field in enumerate(schema.fields, 1):
        held = field if field.element is None else field.element
        if held.schema is not None and held.schema not in names:
            nested = held.schema.name
            while nested in taken:  # by a field, or by another class of this name
                nested += "_"
            taken.add(nested)
            names[held.schema] = nested
            yield from _message(nested, held.schema, f"{indent}  ")
        kind = _TYPES[held.type] if held.schema is None else names[held.schema]
        if field.type is FieldType.LIST:
            kind = f"repeated {kind}"
        elif field.type is FieldType.MAP:
            kind = f"map<string, {kind}>"
        elif field.nullable:
            kind = f"optional {kind}"
        yield f"{indent}  {kind} {field.name} = {number};"
    yield f"{indent}}}"


class ProtobufWriter:
    """Writes events of a class as the first message of a registered schema.

    Args:
        schema: of the class.
        registered: the schema, with its id.

    Raises:
        ValueError: if the message can't hold every event of the class, with the field.
    """

    def __init__(self, schema: EventSchema, registered: RegisteredSchema) -> None:
        from google.protobuf.message_factory import GetMessageClass

        if registered.kind != Protobuf.registry_kind:
            raise ValueError(f"it is {registered.kind}, and not {Protobuf.registry_kind}")
        descriptor = protobuf_schema(registered).message([0])
        if descriptor is None:
            raise ValueError("it has no message")
        self._fill = _filler(schema, descriptor, "")
        self._header = HEADER.pack(0, registered.id) + _FIRST_MESSAGE
        self._parse = event_parser(schema)
        self._message: Callable[[], Any] = GetMessageClass(descriptor)

    def __call__(self, text: bytes) -> bytes:
        """Returns the value of a record for the JSON text of an event that was accepted."""
        message = self._message()
        self._fill(message, self._parse(text))
        # In the order of keys, so that the same event has the same bytes.
        return self._header + bytes(message.SerializeToString(deterministic=True))


_Set = Callable[[Any, Any], None]
"""Sets a field of a message to the value that the parser gives."""


def _filler(schema: EventSchema, descriptor: Descriptor, path: str) -> _Set:
    """Returns what sets the fields of a message by those of an event.

    Raises:
        ValueError: if the message can't hold them.
    """
    setters = []
    for slot, field in slots(schema).items():
        inner = f"{path}.{field.name}" if path else field.name
        written = descriptor.fields_by_name.get(field.name)
        if written is None:
            raise ValueError(f"message {descriptor.full_name} has no field {inner!r}")
        setters.append((slot, _setter(field, written, inner)))
    names = {field.name for field in schema.fields}
    for written in descriptor.fields:
        if written.is_required and written.name not in names:
            raise ValueError(f"field {written.full_name!r} is required, and no field of the class")

    def fill(message: Any, event: Any) -> None:
        for slot, set_field in setters:
            value = without_null(getattr(event, slot))
            if value is not None:
                set_field(message, value)

    return fill


def _setter(field: EventField, written: FieldDescriptor, path: str) -> _Set:
    if field.element is not None:
        return _container_setter(field, field.element, written, path)
    if written.is_repeated:
        raise ValueError(f"field {path!r} is repeated, and no list of the class")
    if field.nullable and not written.has_presence:
        raise ValueError(f"field {path!r} can be null, and is not optional in the schema")
    name = written.name
    if field.schema is not None or written.message_type is not None:
        fill = _value_filler(field, written, path)

        def set_message(message: Any, value: Any) -> None:
            held = getattr(message, name)
            held.SetInParent()
            fill(held, value)

        return set_message
    convert = _converter(field, written, path)
    return lambda message, value: setattr(message, name, convert(value))


def _container_setter(
    field: EventField, element: EventField, written: FieldDescriptor, path: str
) -> _Set:
    name, is_map = written.name, is_map_field(written)
    if not written.is_repeated or is_map != (field.type is FieldType.MAP):
        raise ValueError(f"field {path!r} is no {field.type.value} in the schema")
    if is_map:
        key, written = (written.message_type.fields_by_name[part] for part in ("key", "value"))
        if kind_of(key) != "string":
            raise ValueError(f"field {path!r} has keys that are no strings in the schema")
    path = f"{path}[]"
    if written.message_type is None:
        convert = _converter(element, written, path)
        if is_map:
            return lambda message, value: getattr(message, name).update(
                {text: convert(item) for text, item in value.items()}
            )
        return lambda message, value: getattr(message, name).extend(map(convert, value))
    fill = _value_filler(element, written, path)

    def fill_each(message: Any, value: Any) -> None:
        held = getattr(message, name)
        for key, item in value.items() if is_map else enumerate(value):
            fill(held[key] if is_map else held.add(), item)

    return fill_each


def _value_filler(field: EventField, written: FieldDescriptor, path: str) -> _Set:
    """Returns what fills the message of a value."""
    kind = "" if written.message_type is None else written.message_type.full_name
    if kind in WRAPPERS:
        convert = _converter(field, written.message_type.fields_by_name["value"], path)
        return lambda message, value: setattr(message, "value", convert(value))
    if kind == TIMESTAMP and field.type in _TIMES:
        return _time_filler(field)
    if field.schema is None or not kind or kind.startswith("google.protobuf."):
        raise ValueError(f"field {path!r} is {kind or kind_of(written)} in the schema")
    return _filler(field.schema, written.message_type, path)


def _time_filler(field: EventField) -> _Set:
    read: Callable[[Any], Any] = reader_of(field) or (lambda millis: millis * 1000)

    def fill(message: Any, value: Any) -> None:
        message.seconds, micros = divmod(read(value), 1_000_000)
        message.nanos = micros * 1000

    return fill


def _converter(field: EventField, written: FieldDescriptor, path: str) -> Callable[[Any], Any]:
    """Returns what makes a value of the message from what the parser gives."""
    kind = kind_of(written)
    if field.values and written.enum_type is not None:
        numbers = {name: value.number for name, value in written.enum_type.values_by_name.items()}
        missing = [text for text in field.values if text not in numbers]
        if missing:
            raise ValueError(f"field {path!r} is {kind}, which has no {missing[0]!r}")
        return numbers.__getitem__
    if field.type in _TIMES or kind not in _HOLDS.get(field.type, ()):
        kinds = _HOLDS.get(field.type, "a message")
        expected = kinds if isinstance(kinds, str) else " or ".join(kinds)
        raise ValueError(f"field {path!r} is {kind}, which does not hold all of {expected}")
    read = reader_of(field)
    if field.type is FieldType.BINARY and read is not None:
        return read
    if read is None:
        return lambda value: value
    return lambda value: f"{read(value):f}" if field.type is FieldType.DECIMAL else value
