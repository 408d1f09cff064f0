"""How the events of a topic are written, where its format is one of the schema registry's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import UnknownFormatError
from headrace.events.avro import AvroWriter, avro_schema
from headrace.events.json_schema import JsonSchemaWriter, json_schema
from headrace.model import Avro, Json, JsonSchema, Raw

if TYPE_CHECKING:
    from headrace.model import Topic

EventWriter = Callable[[bytes], bytes]
"""Returns the value of a record for the JSON text of an event that was accepted."""


class WrittenSchema(NamedTuple):
    """A schema as it is registered.

    Attributes:
        kind: the registry's name of its language.
        text: the schema.
    """

    kind: str
    text: str


def written_schema(topic: Topic) -> WrittenSchema | None:
    """Returns the schema that events of a topic are written with; None: they name none.

    Raises:
        UnknownFormatError: if the topic's format is none of the formats.
    """
    if topic.schema is None:
        return None
    match topic.record_format:
        case Avro():
            return WrittenSchema("AVRO", json.dumps(avro_schema(topic.schema)))
        case JsonSchema():
            return WrittenSchema("JSON", json.dumps(json_schema(topic.schema)))
        case Json() | Raw():
            return None
        case _:
            raise UnknownFormatError(topic.record_format)


def event_writer(topic: Topic, schema_id: int | None) -> EventWriter | None:
    """Returns what writes the events of a topic; None: their JSON texts are the values.

    Args:
        topic: of the events.
        schema_id: of its :func:`written_schema`, in the registry; None of other topics.

    Raises:
        ValueError: if there is an id and no schema, or no id of one.
    """
    record_format, schema = topic.record_format, topic.schema
    is_written = schema is not None and not isinstance(record_format, Json | Raw)
    if is_written != (schema_id is not None):
        raise ValueError(f"topic {topic.name!r} is {record_format}, schema {schema_id}")
    if schema is None or schema_id is None:
        return None
    if isinstance(record_format, JsonSchema):
        return JsonSchemaWriter(schema, schema_id)
    return AvroWriter(schema, schema_id)
