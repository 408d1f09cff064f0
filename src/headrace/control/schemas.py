"""The Avro schemas that the events of a project's topics are written with."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.events.avro import avro_schema
from headrace.kafka.schema_registry import register
from headrace.model import Avro, Topic
from headrace.settings import Settings


def schema_ids(topics: Iterable[Topic], settings: Settings) -> dict[str, int]:
    """Returns the ids of the schemas of Avro topics, by topic; registers those that are new.

    Raises:
        RegistryUnreachableError: if the registry does not answer.
        SchemaRejectedError: if the registry does not take a schema, such as for its rules of
            compatibility.
    """
    registry = settings.schema_registry
    if registry is None:
        return {}
    return {
        topic.name: register(registry, f"{topic.name}-value", avro_schema(topic.schema))
        for topic in topics
        if isinstance(topic.record_format, Avro) and topic.schema is not None
    }
