"""The schemas in the registry that events of a topic are written with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import SchemaMismatchError
from headrace.events.written import WrittenWith, event_writer, written_schema
from headrace.kafka.admin.schema_registry import latest_schema, register
from headrace.model import Protobuf, Topic

if TYPE_CHECKING:
    from headrace.settings import SchemaRegistrySettings


def registered_schema(topic: Topic, registry: SchemaRegistrySettings) -> WrittenWith | None:
    """Returns what events of a topic are written with; None where their format has no schema.

    It is registered under the topic's subject if it is not yet. Of Protobuf, the newest schema of
    the subject is taken where there is one, because a class has no numbers of fields.

    Raises:
        ExtraMissingError: if the extra of the format is not installed.
        RegistryUnreachableError: if the registry does not answer.
        SchemaRejectedError: if it rejects the schema.
        SchemaMismatchError: if the newest schema can't hold all events of the class.
    """
    schema = written_schema(topic)
    if schema is None:
        return None
    subject = topic.schema_subject
    if not isinstance(topic.record_format, Protobuf):
        return register(registry, subject, schema.kind, schema.text)
    latest = latest_schema(registry, subject, topic.record_format.extra)
    try:
        event_writer(topic, latest or schema)
    except ValueError as error:
        raise SchemaMismatchError(registry.url, subject, str(error)) from error
    return latest or replace(schema, id=register(registry, subject, schema.kind, schema.text))
