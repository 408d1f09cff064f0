"""How the events of a topic are written, where its format is one of the schema registry's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import UnknownFormatError
from headrace.events.avro.values import AvroWriter, avro_schema
from headrace.events.json_schema.schemas import JsonSchemaWriter, json_schema
from headrace.events.protobuf.writing import ProtobufWriter, protobuf_text
from headrace.model import Avro, EventSchema, Json, JsonSchema, Protobuf, Raw, RegisteredSchema

if TYPE_CHECKING:
    from headrace.model import Topic

EventWriter = Callable[[bytes], bytes]
"""Returns the value of a record for the JSON text of an event that was accepted."""


WrittenWith: TypeAlias = int | RegisteredSchema
"""The id of the schema of a class, or, of Protobuf, the registered schema."""


def written_schema(topic: Topic) -> RegisteredSchema | None:
    """Returns the schema that events of a topic are written with; None: they name none.

    Raises:
        UnknownFormatError: if the topic's format is none of the formats.
    """
    if topic.schema is None:
        return None
    match topic.record_format:
        case Avro():
            return RegisteredSchema(Avro.registry_kind, json.dumps(avro_schema(topic.schema)))
        case JsonSchema():
            return RegisteredSchema(JsonSchema.registry_kind, json.dumps(json_schema(topic.schema)))
        case Protobuf():
            return RegisteredSchema(Protobuf.registry_kind, protobuf_text(topic.schema))
        case Json() | Raw():
            return None
        case _:
            raise UnknownFormatError(topic.record_format)


def event_writer(topic: Topic, written: WrittenWith | None) -> EventWriter | None:
    """Returns what writes the events of a topic; None: their JSON texts are the values.

    Args:
        topic: of the events.
        written: with what, in the registry; None of topics without a :func:`written_schema`.

    Raises:
        ValueError: if a topic has a schema and none of its kind is given, or the other way round;
            of Protobuf also if the schema can't hold all events of the class.
    """
    match topic.record_format, topic.schema, written:
        case Avro(), EventSchema() as schema, int(schema_id):
            return AvroWriter(schema, schema_id)
        case JsonSchema(), EventSchema() as schema, int(schema_id):
            return JsonSchemaWriter(schema, schema_id)
        case Protobuf(), EventSchema() as schema, RegisteredSchema() as registered:
            return ProtobufWriter(schema, registered)
        case Json() | Raw(), _, None:
            return None
    raise ValueError(f"topic {topic.name!r} is {topic.record_format}, schema {written}")
