"""JSON Schemas of event classes, and their events as JSON behind the id of such a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from headrace.events.parsing.parser import LONG_RANGE, event_struct
from headrace.events.wire_format import HEADER, frame_size
from headrace.model import EventField, EventSchema, FieldType

JsonObject: TypeAlias = dict[str, Any]
_ZONE = re.compile("([+-][0-9]{2})([0-9]{2})$")

DECIMAL_PATTERN = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"

JSON_TYPES: Mapping[FieldType, JsonObject] = {
    FieldType.STRING: {"type": "string"},
    FieldType.LONG: {"type": "integer", "minimum": LONG_RANGE[0], "maximum": LONG_RANGE[1]},
    FieldType.DOUBLE: {"type": "number"},
    FieldType.BOOLEAN: {"type": "boolean"},
    FieldType.TIMESTAMP: {"type": "string", "format": "date-time"},
    FieldType.MILLIS: {"type": "integer", "description": "milliseconds since 1970, UTC"},
    FieldType.DATE: {"type": "string", "format": "date"},
    FieldType.DECIMAL: {"type": ["number", "string"], "pattern": DECIMAL_PATTERN},
    FieldType.BINARY: {"type": "string", "contentEncoding": "base64"},
    FieldType.JSON: {},
}

JSON_KINDS: Mapping[FieldType, tuple[str, ...]] = {
    FieldType.STRING: ("string",),
    FieldType.LONG: ("integer",),
    FieldType.DOUBLE: ("number", "integer"),
    FieldType.BOOLEAN: ("boolean",),
    FieldType.TIMESTAMP: ("string",),
    FieldType.MILLIS: ("integer",),
    FieldType.DATE: ("string",),
    FieldType.DECIMAL: ("number", "integer", "string"),
    FieldType.BINARY: ("string",),
    FieldType.STRUCT: ("object",),
    FieldType.LIST: ("array",),
    FieldType.MAP: ("object",),
}
"""The types of JSON that a field takes."""


def json_schema(schema: EventSchema) -> JsonObject:
    """Returns the schema that events of a class are written with.

    It allows no fields but those of the class: where it did, registries would take a field that is
    added later for one that older events may have with any value, and reject the class.
    """
    draft = {"$schema": "http://json-schema.org/draft-07/schema#", "title": schema.name}
    return draft | _object(schema)


def _object(schema: EventSchema) -> JsonObject:
    return {
        "type": "object",
        "required": [field.name for field in schema.fields if not field.nullable],
        "properties": {field.name: _or_null(field) for field in schema.fields},
        "additionalProperties": False,
    }


def _or_null(field: EventField) -> JsonObject:
    described = _value(field)
    if not field.nullable or field.type is FieldType.JSON:
        return described
    # As Confluent's clients write it, whose registry compares the two branches by themselves.
    return {"oneOf": [{"type": "null"}, described]}


def _value(field: EventField) -> JsonObject:
    if field.schema is not None:
        return _object(field.schema)
    if field.values:
        return {"type": "string", "enum": [*field.values]}
    if field.element is None:
        return dict(JSON_TYPES[field.type])
    held = _or_null(field.element)
    if field.type is FieldType.MAP:
        return {"type": "object", "additionalProperties": held}
    return {"type": "array", "items": held}


def json_text(value: bytes | None) -> bytes | None:
    """Returns the JSON text of a record's value, which may stand behind the id of its schema.

    The id says nothing about the text that its class does not: no registry is asked.
    """
    return value if value is None else value[frame_size(value) :]


class _Time:
    """The text of a time, as validators of the format ``date-time`` take it.

    The class takes a space for the T, and a zone without its colon.
    """

    def __init__(self, text: str) -> None:
        self.text = _ZONE.sub(r"\1:\2", f"{text[:10]}T{text[11:]}")


class JsonSchemaWriter:
    """Writes events of a class with the schema of :func:`json_schema`.

    What the class lacks is left out, and what it has and the event lacks is null.

    Args:
        schema: of the class.
        schema_id: of its JSON Schema, in the registry.
    """

    def __init__(self, schema: EventSchema, schema_id: int) -> None:
        self._header = HEADER.pack(0, schema_id)
        struct = event_struct(schema, time=_Time)
        self._parse = msgspec.json.Decoder(struct, dec_hook=lambda _, text: _Time(text)).decode
        self._encode = msgspec.json.Encoder(enc_hook=lambda time: time.text).encode

    def __call__(self, text: bytes) -> bytes:
        """Returns the value of a record for the JSON text of an event that was accepted."""
        return self.of_text(self._encode(self._parse(text)))

    def of_text(self, text: bytes) -> bytes:
        """Returns the value for a text that has the fields of the class and no others.

        Its times are as validators of the format ``date-time`` take them.
        """
        return self._header + text
