"""The schemas that a project's events are written with, and those that they are read with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from headrace.errors import ExtraMissingError, HeadraceError, RegistryUnreachableError
from headrace.events.avro import comparison as avro_comparison
from headrace.events.avro.references import AvroSchemas
from headrace.events.avro.values import SchemaLookup
from headrace.events.json_schema import comparison as json_schema_comparison
from headrace.events.protobuf import comparison as protobuf_comparison
from headrace.events.protobuf.values import ProtobufLookup
from headrace.events.written import WrittenWith, event_writer
from headrace.kafka.admin.schema_registry import latest_schema, lookup_of
from headrace.model import (
    Avro,
    EventSchema,
    JsonSchema,
    Protobuf,
    Registered,
    RegisteredSchema,
    Topic,
)
from headrace.model.fault import Fault
from headrace.runtime.extras import require_extra
from headrace.settings import SchemaRegistrySettings, Settings
from headrace.topics.registered_schemas import registered_schema

_MAX_REQUESTS = 16
_COMPARISONS = {
    Avro.registry_kind: avro_comparison.allowed_but_not_taken,
    JsonSchema.registry_kind: json_schema_comparison.allowed_but_not_taken,
    Protobuf.registry_kind: protobuf_comparison.allowed_but_not_taken,
}


def written_with(topics: Iterable[Topic], settings: Settings) -> dict[str, WrittenWith]:
    """Returns what events are written with, by topic; registers schemas that are new.

    Raises:
        RegistryUnreachableError: if the registry does not answer.
        SchemaRejectedError: if the registry does not take a schema, such as for its rules of
            compatibility.
        SchemaMismatchError: if the newest schema of a Protobuf topic can't hold all events.
    """
    registry = settings.schema_registry
    if registry is None:
        return {}
    return {
        topic.name: written
        for topic in topics
        if (written := registered_schema(topic, registry)) is not None
    }


def schema_warnings(topics: Iterable[Topic], settings: Settings) -> Iterator[Fault]:
    """Warns where the newest registered schema of a topic allows what its class rejects.

    Nothing is refused for it: a subject says what may be sent, most of which never is, and may
    change while pipelines run. What is sent and rejected is a dead letter with its field. Of
    Protobuf, also what can't be written with that schema is a warning: whatever writes to the topic
    is refused at its start.
    """
    registry = settings.schema_registry
    compared = [
        (topic, topic.record_format)
        for topic in topics
        if isinstance(topic.record_format, Registered)
    ]
    if registry is None or not compared:
        return
    # In parallel: a registry that does not respond takes up to 20 s for each topic.
    with ThreadPoolExecutor(_MAX_REQUESTS) as threads:
        latest_schemas = [*threads.map(lambda pair: _latest(registry, *pair), compared)]
    for (topic, record_format), latest in zip(compared, latest_schemas, strict=True):
        if isinstance(latest, HeadraceError):
            where, subject = f"topic {topic.name!r}", topic.schema_subject
            yield Fault(f"{where}: its class is not compared with {subject!r}: {latest}")
        elif latest is not None and topic.schema is not None:
            yield from _differences(topic, topic.schema, record_format.registry_kind, latest)


def _latest(
    registry: SchemaRegistrySettings, topic: Topic, record_format: Registered
) -> RegisteredSchema | HeadraceError | None:
    """Returns the newest schema of a topic, or why it is not known."""
    try:
        return latest_schema(registry, topic.schema_subject, record_format.extra)
    except (ExtraMissingError, RegistryUnreachableError) as error:
        return error


def _differences(
    topic: Topic, schema: EventSchema, kind: str, latest: RegisteredSchema
) -> Iterator[Fault]:
    where, subject = f"topic {topic.name!r}", topic.schema_subject
    phrases: Iterable[str] = [f"events are {latest.kind}, and not {kind}"]
    if latest.kind == kind:
        try:
            phrases = dict.fromkeys(_COMPARISONS[kind](latest, schema))
        except ValueError as error:
            phrases = [f"nothing can be compared: {error}"]
        else:
            yield from _write_faults(topic, latest)
    for phrase in phrases:
        message = f"{where}: by the schema {subject!r} {phrase}"
        yield Fault(message, "declare the class so, unless no sender does that")


def _write_faults(topic: Topic, latest: RegisteredSchema) -> Iterator[Fault]:
    if not isinstance(topic.record_format, Protobuf):
        return  # the schema of the class is registered
    try:
        event_writer(topic, latest)
    except ValueError as error:
        subject = topic.schema_subject
        yield Fault(
            f"topic {topic.name!r}: no events can be written with the schema {subject!r}: {error}",
            "change the class or the schema, unless nothing of this project writes to the topic",
        )


def require_extras(topics: Iterable[Topic]) -> None:
    """Checks that the extras of the formats of topics are installed.

    Raises:
        ExtraMissingError: if one is not.
    """
    for topic in topics:
        if isinstance(topic.record_format, Registered):
            require_extra(topic.record_format.extra)


def schema_lookup(settings: Settings) -> SchemaLookup | None:
    """Returns what looks up schemas of Avro in the project's registry; ``None`` without one."""
    registry = settings.schema_registry
    return None if registry is None else AvroSchemas(lookup_of(registry, Avro.registry_kind))


def protobuf_lookup(settings: Settings) -> ProtobufLookup | None:
    """Returns what looks up schemas of Protobuf in the project's registry; ``None`` without one."""
    registry = settings.schema_registry
    return None if registry is None else lookup_of(registry, Protobuf.registry_kind)
