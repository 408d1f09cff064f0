"""Values of Protobuf in Confluent's wire format, as messages and as the JSON text of an event.

Pipelines make columns of the messages. The text is for those that take one event at a time, and for
the reason and the words of a rejection, which are those of JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from headrace.events.protobuf.fields import ReadMessage, read_message
from headrace.events.protobuf.schemas import ProtobufSchema, protobuf_schema
from headrace.events.protobuf.texts import UnfitValueError, members
from headrace.events.rejection import NULL_VALUE
from headrace.events.wire_format import HEADER, NO_SCHEMA_ID, frame_size, schema_id_of
from headrace.model import EventSchema, RegisteredSchema, SchemaId

if TYPE_CHECKING:
    from headrace.events.rejection import Rejection

ProtobufLookup: TypeAlias = Callable[[SchemaId], RegisteredSchema | None]
"""Returns the schema of an id; ``None`` if the registry has no schema of that id.

Raises RegistryUnreachableError if the registry does not answer, and ValueError if the schema of the
id is not Protobuf.
"""

_NO_FIT = ("not-protobuf", "the value does not fit its schema")
_NO_INDICES = ("not-protobuf", "no indices of a message follow the id of the schema")
_MORE = 0x80  # marks the bytes of a number but its last
_MAX_INDICES = 64  # of messages within messages


class ProtobufReader:
    """Reads values of one message of one schema as events of a class."""

    def __init__(self, schema: ProtobufSchema, indices: Sequence[int], event: EventSchema) -> None:
        descriptor = schema.message(indices)
        if descriptor is None:
            raise LookupError(indices)
        from google.protobuf.message import DecodeError

        self.descriptor = descriptor
        self._decode_error: type[Exception] = DecodeError
        self.message: ReadMessage = read_message(descriptor, event)
        self._lenient = read_message(descriptor, event, texts_as_bytes=True)

    def parsed(self, body: Any) -> Any | Rejection:
        """Returns the message in the bytes of a value, or why there is none."""
        try:
            return self.message.parse(body)
        except self._decode_error:
            return self._why(body)

    def _why(self, body: bytes) -> Rejection:
        try:
            members(self._lenient.fields, self._lenient.parse(body))
        except UnfitValueError as error:
            return error.rejection
        except self._decode_error:
            pass
        return _NO_FIT

    def json_text(self, message: Any) -> bytes | Rejection:
        """Returns the JSON text of a message."""
        try:
            return msgspec.json.encode(members(self.message.fields, message))
        except UnfitValueError as error:
            return error.rejection


class ProtobufMessages:
    """Finds the reader of each value. Each schema is prepared once.

    Args:
        lookup: of the schemas that values were written with.
        schema: of the event class.
    """

    def __init__(self, lookup: ProtobufLookup, schema: EventSchema) -> None:
        self._lookup, self._schema = lookup, schema
        self._schemas: dict[bytes, ProtobufSchema | Rejection] = {}
        self._readers: dict[bytes, ProtobufReader] = {}

    def __call__(self, value: bytes | None) -> tuple[ProtobufReader, Any] | Rejection:
        """Returns what reads a record's value, and the bytes of its message; or why nothing does.

        Raises:
            RegistryUnreachableError: if its schema is not known, and the registry does not answer.
        """
        if value is None:
            return NULL_VALUE
        known = self._readers.get(value[: HEADER.size + 1])  # of the first message of a file
        if known is not None:
            return known, value[HEADER.size + 1 :]
        size = frame_size(value)
        if not size:
            return NO_SCHEMA_ID
        end = size + 1
        # A zero stands for the first message of the file.
        if value[size:end] != b"\0" and (end := _indices_end(value, size)) == 0:
            return _NO_INDICES
        reader = self._readers.get(value[:end]) or self._reader(value[:size], value[size:end])
        return (reader, value[end:]) if isinstance(reader, ProtobufReader) else reader

    def needs_lookup(self, value: bytes | None) -> bool:
        """Returns whether reading a value calls ``lookup``, which may take seconds."""
        size = 0 if value is None else frame_size(value)
        return value is not None and size > 0 and value[:size] not in self._schemas

    def _reader(self, frame: bytes, indices: bytes) -> ProtobufReader | Rejection:
        schema = self._schemas.get(frame)
        if schema is None:
            schema_id = schema_id_of(frame)
            try:
                registered = self._lookup(schema_id)
                # Unknown ids are not kept here: the registry may know them later.
                if registered is None:
                    return "unknown-schema", f"the registry has no schema with the id {schema_id}"
                schema = protobuf_schema(registered)
            except ValueError as error:
                sentence = f"the schema with the id {schema_id} can't be read: {error}"
                schema = "unreadable-schema", sentence
            self._schemas[frame] = schema
        if not isinstance(schema, ProtobufSchema):
            return schema
        path = [0] if indices == b"\0" else list(_varints(indices))[1:]
        try:
            reader = ProtobufReader(schema, path, self._schema)
        except LookupError:
            return "not-protobuf", f"the value is the message {path}, which its schema lacks"
        return self._readers.setdefault(frame + indices, reader)


class ProtobufTexts:
    """Turns values into the JSON texts of events.

    Args:
        lookup: of the schemas that values were written with.
        schema: of the event class.
    """

    def __init__(self, lookup: ProtobufLookup, schema: EventSchema) -> None:
        self._messages = ProtobufMessages(lookup, schema)
        self.needs_lookup = self._messages.needs_lookup

    def __call__(self, value: bytes | None) -> bytes | Rejection:
        """Returns the JSON text of a record's value, or why there is none.

        Raises:
            RegistryUnreachableError: if its schema is not known, and the registry does not answer.
        """
        reader, body = self._messages(value)
        if not isinstance(reader, ProtobufReader):
            return reader, body
        message = reader.parsed(body)
        return message if isinstance(message, tuple) else reader.json_text(message)


class ShownMessages:
    """Turns values into the JSON texts of their messages, for people.

    Args:
        lookup: of the schemas that values were written with.
    """

    def __init__(self, lookup: ProtobufLookup) -> None:
        self._messages = ProtobufMessages(lookup, EventSchema("any", ()))

    def __call__(self, value: bytes | None) -> bytes | Rejection:
        """Returns the JSON text of a record's value, or why there is none.

        Raises:
            RegistryUnreachableError: if its schema is not known, and the registry does not answer.
        """
        from google.protobuf.json_format import MessageToJson
        from google.protobuf.message_factory import GetMessageClass

        reader, body = self._messages(value)
        if not isinstance(reader, ProtobufReader):
            return reader, body
        try:
            message = GetMessageClass(reader.descriptor).FromString(body)
            text: str = MessageToJson(message, indent=None, preserving_proto_field_name=True)
        except Exception:  # noqa: BLE001 - such as a time beyond the calendar
            return _NO_FIT
        return text.encode()


def _varints(data: bytes) -> Iterator[int]:
    """Yields zigzag numbers."""
    number = shift = 0
    for byte in data:
        number |= (byte % _MORE) << shift
        shift += 7
        if byte < _MORE:
            yield (number >> 1) ^ -(number & 1)
            number = shift = 0


def _indices_end(value: bytes, start: int) -> int:
    """Returns where the indices of a message end, which follow their number; 0: they do not."""
    head = value[start : start + 10 * _MAX_INDICES]
    ends = [start + at + 1 for at, byte in enumerate(head) if byte < _MORE]
    if not ends:
        return 0
    (count,) = _varints(value[start : ends[0]])
    return ends[count] if 0 < count < min(len(ends), _MAX_INDICES) else 0
