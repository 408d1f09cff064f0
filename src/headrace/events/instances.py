"""A record's value as an instance of its topic's event class, for code that takes one at a time.

A record is rejected here for what a pipeline rejects it for, with the same reason: the parser, the
readers of single values and the bounds of the event time are the same.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import time
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from headrace.errors import InvalidRecordError, UnknownFormatError
from headrace.events.avro.values import AvroTexts, SchemaLookup
from headrace.events.json_schema.schemas import json_text
from headrace.events.parsing.makers import Maker, container_maker, fields_maker
from headrace.events.parsing.parser import event_parser
from headrace.events.parsing.repeated_keys import parsed_again
from headrace.events.parsing.values import as_read, reader_of
from headrace.events.protobuf.values import ProtobufLookup, ProtobufTexts
from headrace.events.rejection import out_of_bounds, rejection
from headrace.events.wire_format import framed
from headrace.model import Avro, EpochMillis, FieldType, Json, JsonSchema, Protobuf, Raw

if TYPE_CHECKING:
    from headrace.model import EventField, EventSchema, Topic

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_MILLIS = EpochMillis(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class EventReader(Protocol):
    """Reads record values of one topic as its events. May be called on any thread."""

    def __call__(self, value: bytes | None, headers: Headers = ()) -> Any:
        """Returns the event in the ``value`` of a record with ``headers``.

        Raises:
            InvalidRecordError: if it is no event of the topic.
            RegistryUnreachableError: if the schema of an Avro or Protobuf value is not known, and
                the schema registry does not answer.
        """

    def needs_lookup(self, value: bytes | None, headers: Headers = ()) -> bool:
        """Returns whether reading ``value`` makes requests to the schema registry.

        They block, up to 20 seconds while the registry is unreachable: too long for an event loop.
        """
        ...


class _UnreadableError(Exception):
    """A value that the parser took can't be read as its field's type."""


def event_reader(
    topic: Topic,
    clock: Callable[[], float] = time.time,
    schemas: SchemaLookup | None = None,
    protobuf: ProtobufLookup | None = None,
) -> EventReader:
    """Returns what reads record values of ``topic``.

    Of a topic without an event class it returns the value as it is, bytes or ``None``. Otherwise it
    returns an instance: of a dataclass, named tuple or msgspec struct through its constructor, of a
    ``TypedDict`` a dict, of any other class with the fields as attributes. Times are ``datetime``
    in UTC, or ``EpochMillis``, which is one; a field of type ``Any`` is what its JSON says.

    Args:
        topic: whose event class, format and bounds count.
        clock: gives the time of day, in seconds, from which late bounds are counted.
        schemas: by which the values of an Avro topic are read.
        protobuf: by which the values of a Protobuf topic are read.

    Raises:
        UnknownFormatError: if the topic's format is none of the formats.
        ValueError: if the topic is Avro or Protobuf, and there are no schemas.
    """
    record_format = topic.record_format
    if topic.event is None or topic.schema is None:
        return _ValueReader()
    match record_format:
        case Raw():
            return _ValueReader()
        case Json():
            return _JsonReader(topic, topic.event, topic.schema, clock)
        case JsonSchema():
            return _JsonSchemaReader(_JsonReader(topic, topic.event, topic.schema, clock))
        case Avro():
            if schemas is None:
                raise _no_schemas(topic)
            read_json = _JsonReader(topic, topic.event, as_read(topic.schema), clock)
            return _BinaryReader(read_json, AvroTexts(schemas, topic.schema))
        case Protobuf():
            if protobuf is None:
                raise _no_schemas(topic)
            schema = as_read(topic.schema)
            read_json = _JsonReader(topic, topic.event, schema, clock)
            return _BinaryReader(read_json, ProtobufTexts(protobuf, schema))
        case _:
            raise UnknownFormatError(record_format)


def _no_schemas(topic: Topic) -> ValueError:
    what = f"topic {topic.name!r} is {type(topic.record_format).__name__}"
    return ValueError(f"{what}, and there are no schemas to read it with")


class _ValueReader:
    """Leaves values as they are."""

    def __call__(self, value: bytes | None, headers: Headers = ()) -> Any:  # noqa: ARG002
        return value

    def needs_lookup(self, value: bytes | None, headers: Headers = ()) -> bool:  # noqa: ARG002
        return False


class _JsonReader:
    """Reads JSON objects."""

    def __init__(
        self, topic: Topic, event: type, schema: EventSchema, clock: Callable[[], float]
    ) -> None:
        self._topic, self._schema, self._clock = topic, schema, clock
        self._parse = event_parser(schema)
        self._fields = _fields_maker(event, schema)
        self._construct = _constructor(event)

    def needs_lookup(self, value: bytes | None, headers: Headers = ()) -> bool:  # noqa: ARG002
        return False

    def __call__(self, value: bytes | None, headers: Headers = ()) -> Any:  # noqa: ARG002
        try:
            fields = self._fields(self._parsed(value))
        except _UnreadableError:
            raise InvalidRecordError(*rejection(value, self._schema)) from None
        self._check_time(fields)
        return self._construct(fields)

    def _parsed(self, value: bytes | None) -> msgspec.Struct:
        try:
            return self._parse(value)
        except (ValueError, TypeError, RecursionError) as error:
            again = parsed_again(value, self._schema, self._parse, error)
        if isinstance(again, tuple):
            raise InvalidRecordError(*again)
        return again

    def _check_time(self, fields: Mapping[str, Any]) -> None:
        name = self._topic.event_time
        if name is None or fields[name] is None:
            return
        time_us = (fields[name] - _EPOCH) // _MICROSECOND
        earliest_us, latest_us = self._topic.event_time_bounds(self._clock())
        if not earliest_us <= time_us <= latest_us:
            raise InvalidRecordError(*out_of_bounds(name, time_us, earliest_us, latest_us))


class _JsonSchemaReader:
    """Reads JSON objects behind the ids of their schemas."""

    def __init__(self, read_json: _JsonReader) -> None:
        self._read_json = read_json

    def needs_lookup(self, value: bytes | None, headers: Headers = ()) -> bool:  # noqa: ARG002
        return False

    def __call__(self, value: bytes | None, headers: Headers = ()) -> Any:
        return self._read_json(json_text(framed(value, headers)))


class _BinaryReader:
    """Reads Avro and Protobuf values by way of their JSON texts."""

    def __init__(self, read_json: _JsonReader, json_text: AvroTexts | ProtobufTexts) -> None:
        self._read_json, self._json_text = read_json, json_text

    def needs_lookup(self, value: bytes | None, headers: Headers = ()) -> bool:
        return self._json_text.needs_lookup(framed(value, headers))

    def __call__(self, value: bytes | None, headers: Headers = ()) -> Any:
        text = self._json_text(framed(value, headers))
        if not isinstance(text, bytes):
            raise InvalidRecordError(*text)
        return self._read_json(text)


def _fields_maker(event: type, schema: EventSchema) -> Callable[[msgspec.Struct], dict[str, Any]]:
    """Returns what makes the fields of an event from the parser's struct, by name."""
    hints = typing.get_type_hints(event)
    return fields_maker(schema, lambda field: _maker(field, hints[field.name]))


def _maker(field: EventField, hint: object) -> Maker | None:
    """Returns what makes a value of ``hint`` from what the parser gives; ``None`` if it is one."""
    bare = _without_none(hint)
    if isinstance(bare, type) and issubclass(bare, enum.Enum):
        return bare
    if field.schema is not None and isinstance(bare, type):
        fields, construct = _fields_maker(bare, field.schema), _constructor(bare)
        return lambda struct: construct(fields(struct))
    if field.element is not None:
        held = typing.get_args(bare)[-1]
        return container_maker(field, lambda element: _maker(element, held))
    read = reader_of(field)
    make = _MAKERS.get(field.type)
    if bare is EpochMillis and field.type is FieldType.TIMESTAMP:  # of Avro, whose times have units
        make = _epoch_millis
    if read is None:
        return make
    return functools.partial(_read, read, make or (lambda result: result))


def _read(read: Maker, make: Maker, value: Any) -> Any:
    result = read(value)
    if result is None:
        raise _UnreadableError
    return make(result)


def _epoch_millis(micros: int) -> EpochMillis:
    return _EPOCH_MILLIS + timedelta(microseconds=micros)


_MAKERS: Mapping[FieldType, Maker] = {
    FieldType.TIMESTAMP: lambda micros: _EPOCH + timedelta(microseconds=micros),
    FieldType.MILLIS: lambda millis: _EPOCH_MILLIS + timedelta(milliseconds=millis),
    FieldType.JSON: msgspec.json.decode,
}


def _constructor(event: type) -> Callable[[dict[str, Any]], Any]:
    """Returns what makes an instance of ``event`` from its fields."""
    if typing.is_typeddict(event):
        return dict
    if dataclasses.is_dataclass(event):
        return _dataclass_constructor(event)
    if issubclass(event, msgspec.Struct | tuple):
        return lambda fields: event(**fields)

    def plain(fields: dict[str, Any]) -> Any:
        return _set_all(object.__new__(event), fields)

    return plain


def _dataclass_constructor(event: type) -> Callable[[dict[str, Any]], Any]:
    """Returns a constructor: ``__init__`` takes the fields it has, the others are set later."""
    later = [field.name for field in dataclasses.fields(event) if not field.init]
    if not later:
        return lambda fields: event(**fields)

    def construct(fields: dict[str, Any]) -> Any:
        values = {name: fields[name] for name in later}
        rest = {name: value for name, value in fields.items() if name not in values}
        return _set_all(event(**rest), values)

    return construct


def _set_all(instance: Any, values: Mapping[str, Any]) -> Any:
    for name, value in values.items():
        object.__setattr__(instance, name, value)  # also of frozen classes and those with slots
    return instance


def _without_none(hint: object) -> object:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        return arms[0] if len(arms) == 1 else hint
    return hint
