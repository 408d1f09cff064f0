"""Avro schemas of event classes, and Avro values as the JSON text that their parser reads.

Avro is read by way of JSON text, so that what an event may be, and the wording of a rejection, are
the same in both formats.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from headrace.events.avro.bounds import (
    BoundedWalk,
    MalformedError,
    is_bounded,
    may_exceed_long,
)
from headrace.events.avro.schemas import parsed_schema, prepared, skipped
from headrace.events.avro.types import MismatchError, fitted
from headrace.events.parsing.makers import Maker, container_maker, fields_maker
from headrace.events.parsing.parser import event_parser
from headrace.events.parsing.values import reader_of
from headrace.events.rejection import NULL_VALUE
from headrace.events.wire_format import HEADER, NO_SCHEMA_ID, frame_size, schema_id_of
from headrace.model import EventField, EventSchema, FieldType, SchemaId

if TYPE_CHECKING:
    from headrace.events.rejection import Rejection

AvroSchema: TypeAlias = Any
"""A schema as its JSON document is parsed: a name, a list (a union) or an object."""

_AVRO_TYPES: Mapping[FieldType, AvroSchema] = {
    FieldType.STRING: "string",
    FieldType.LONG: "long",
    FieldType.DOUBLE: "double",
    FieldType.BOOLEAN: "boolean",
    FieldType.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    FieldType.MILLIS: {"type": "long", "logicalType": "timestamp-millis"},
    FieldType.DATE: {"type": "int", "logicalType": "date"},
    FieldType.BINARY: "bytes",
}

SchemaLookup: TypeAlias = Callable[[SchemaId], AvroSchema | None]
"""Returns the schema of an id; ``None`` if the registry has no schema of that id.

Raises RegistryUnreachableError if the registry does not answer, and ValueError if the schema of the
id is not Avro.
"""

_NO_FIT = ("not-avro", "the value does not fit its schema")
_TOO_DEEP = ("too-deep", "the value is nested too deep to be read")
_TIMES = ("date", "timestamp", "local-timestamp")
_ANY_HEADER = bytes(HEADER.size)


def avro_schema(schema: EventSchema) -> AvroSchema:
    """Returns the schema that events of a class are written with."""
    return _record(schema, set())


def _record(schema: EventSchema, taken: set[str]) -> AvroSchema:
    """Returns the record of a class; a name that is taken by an outer class gets a number."""
    name, number = schema.name, 2
    while name in taken:
        name, number = f"{schema.name}{number}", number + 1
    taken.add(name)
    fields = [_avro_field(field, taken) for field in schema.fields]
    return {"type": "record", "name": name, "fields": fields}


def _avro_field(field: EventField, taken: set[str]) -> AvroSchema:
    kind = _avro_type(field, taken)
    if not field.nullable:
        return {"name": field.name, "type": kind}
    return {"name": field.name, "type": ["null", kind], "default": None}


def _avro_type(field: EventField, taken: set[str]) -> AvroSchema:
    if field.schema is not None:
        return _record(field.schema, taken)
    if field.element is not None:
        held = _avro_type(field.element, taken)
        held = ["null", held] if field.element.nullable else held
        is_list = field.type is FieldType.LIST
        return {"type": "array", "items": held} if is_list else {"type": "map", "values": held}
    if field.type is FieldType.DECIMAL:
        digits, scale = field.precision.digits, field.precision.scale
        kind = {"type": "bytes", "logicalType": "decimal"}
        return kind | {"precision": digits, "scale": scale}
    return _AVRO_TYPES[field.type]


class AvroWriter:
    """Writes events of a class with the schema of :func:`avro_schema`.

    Args:
        schema: of the class.
        schema_id: of its Avro schema, in the registry.
    """

    def __init__(self, schema: EventSchema, schema_id: int) -> None:
        import fastavro

        self._header = HEADER.pack(0, schema_id)
        self._parse = event_parser(schema)
        self._fields = fields_maker(schema, _maker)
        self._avro = fastavro.parse_schema(avro_schema(schema))
        self._write: Callable[..., None] = fastavro.schemaless_writer

    def __call__(self, text: bytes) -> bytes:
        """Returns the value of a record for the JSON text of an event that was accepted."""
        return self.of_fields(self._fields(self._parse(text)))

    def of_fields(self, fields: Mapping[str, Any]) -> bytes:
        """Returns the value for the fields of an event, as fastavro takes them.

        Times are datetimes with a zone or, where the class has ``EpochMillis``, milliseconds since
        1970; a decimal has no more digits than its field, before the point and after it.
        """
        stream = io.BytesIO()
        stream.write(self._header)
        self._write(stream, self._avro, fields)
        return stream.getvalue()


def _maker(field: EventField) -> Maker | None:
    """Returns what makes a value for fastavro; ``None`` if the parser's is one."""
    if field.schema is not None:
        return fields_maker(field.schema, _maker)
    return reader_of(field) if field.element is None else container_maker(field, _maker)


class AvroReader:
    """Reads values that were written with one schema.

    Args:
        writer: that schema.
        schema: of the event class, whose fields are read and all others skipped; ``None``: values
            are of any type.

    Raises:
        ValueError: if values of ``writer`` can't be read.

    Attributes:
        written: the writer's schema as fastavro parses it, and the types that it names.
        is_bounded: whether it bounds how deep values nest, and how many items they have.
    """

    def __init__(self, writer: AvroSchema, schema: EventSchema | None = None) -> None:
        import fastavro

        try:
            self.written = parsed, named = parsed_schema(writer)
            self.is_bounded = is_bounded(parsed, named)
            self._walk = BoundedWalk(parsed, named)
            if schema is not None:
                parsed = fitted(parsed, named, schema)
                named = {name: skipped(definition) for name, definition in named.items()}
        except Exception as error:  # also of what fastavro lets pass, such as a size that is a text
            raise ValueError(_sentence(error)) from error
        self._fault = BoundedWalk(parsed, named, self._read_leaf)
        self._writer = prepared(parsed, named)
        self._read: Callable[..., Any] = fastavro.schemaless_reader

    def json_text(self, value: bytes) -> bytes | Rejection:
        """Returns the JSON text of a value, which follows the header of the wire format."""
        refused = None if self.is_bounded else self._walk(value, HEADER.size)
        if refused:
            return refused
        stream = io.BytesIO(value)
        stream.seek(HEADER.size)
        try:
            text = msgspec.json.encode(self._read(stream, self._writer, None))
        except MismatchError as error:
            return error.rejection
        except RecursionError:
            return _TOO_DEEP
        except Exception:  # noqa: BLE001 - fastavro raises whatever its parts do
            # Read again, more slowly, to name the field.
            return self._fault(value, HEADER.size) or _NO_FIT
        # fastavro reads longer integers without an error, and only a walk finds them.
        refused = self._walk(value, HEADER.size) if may_exceed_long(value, text) else None
        rest = len(value) - stream.tell()
        if rest and not refused:
            refused = "trailing-data", f"{rest} bytes follow the value that its schema describes"
        return refused or text

    def json_texts(self, values: bytes, count: int) -> list[tuple[bytes, bytes | Rejection]]:
        """Returns values that follow each other, each with its JSON text or why there is none.

        Raises:
            MalformedError: if there are not so many: nothing else says where one ends.
        """
        if count > len(values):
            raise MalformedError(f"{len(values)} bytes can't hold {count} records")
        parts, end = [], 0
        for _ in range(count):
            begin, end = end, self._walk.end(values, end)
            parts.append(values[begin:end])
        if end < len(values):
            raise MalformedError(f"{len(values) - end} bytes follow its last record")
        return [(part, self.json_text(_ANY_HEADER + part)) for part in parts]

    def _read_leaf(self, schema: AvroSchema, written: bytes) -> None:
        try:
            self._read(io.BytesIO(written), prepared(schema, {}), None)
        except UnicodeDecodeError as error:
            raise MalformedError("is a string that is not UTF-8", "not-utf8") from error
        except Exception as error:
            of_dict = isinstance(schema, dict) and schema.get("logicalType", schema["type"])
            kind = str(of_dict or schema)
            if kind.startswith(_TIMES):
                raise MalformedError("is outside the years 1 to 9999", "out-of-range") from error
            raise MalformedError(f"is no {kind}, which its schema says it is") from error


def _sentence(error: Exception) -> str:
    """Returns why values of a schema can't be read."""
    from fastavro.schema import SchemaParseException, UnknownType

    if isinstance(error, UnknownType):
        return f"it names the type {error.name!r}, which it does not define"
    if isinstance(error, SchemaParseException):
        return str(error)
    return f"it is no schema of Avro's ({error})"


class AvroTexts:
    """Turns values in Confluent's wire format into JSON texts. Each schema is prepared once.

    Args:
        lookup: of the schemas that values were written with.
        schema: of the event class whose events they are; ``None``: values are of any type.
    """

    def __init__(self, lookup: SchemaLookup, schema: EventSchema | None = None) -> None:
        self._lookup, self._schema = lookup, schema
        self._readers: dict[bytes, AvroReader | Rejection] = {}

    def __call__(self, value: bytes | None) -> bytes | Rejection:
        """Returns the JSON text of a record's value, or why there is none.

        Raises:
            RegistryUnreachableError: if its schema is not known, and the registry does not answer.
        """
        if value is None:
            return NULL_VALUE
        size = frame_size(value)
        if not size:
            return NO_SCHEMA_ID
        reader = self.reader(value[:size])
        if not isinstance(reader, AvroReader):
            return reader
        return reader.json_text(value if size == HEADER.size else _ANY_HEADER + value[size:])

    def reader(self, frame: bytes) -> AvroReader | Rejection:
        """Returns what reads the values behind an id of a schema, or why nothing does.

        Raises:
            RegistryUnreachableError: if its schema is not known, and the registry does not answer.
        """
        return self._readers.get(frame) or self._new_reader(frame)

    def needs_lookup(self, value: bytes | None) -> bool:
        """Returns whether reading a value calls ``lookup``, which may take seconds."""
        size = 0 if value is None else frame_size(value)
        return value is not None and size > 0 and value[:size] not in self._readers

    def _new_reader(self, frame: bytes) -> AvroReader | Rejection:
        schema_id = schema_id_of(frame)
        try:
            writer = self._lookup(schema_id)
            # Unknown ids are not kept here: the registry may know them later, and then says so.
            if writer is None:
                return "unknown-schema", f"the registry has no schema with the id {schema_id}"
            reader: AvroReader | Rejection = AvroReader(writer, self._schema)
        except ValueError as error:
            sentence = f"the schema with the id {schema_id} can't be read: {error}"
            reader = "unreadable-schema", sentence
        return self._readers.setdefault(frame, reader)
