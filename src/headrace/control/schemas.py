"""The schemas that a project's events are written with, and those that they are read with."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

from headrace.errors import ExtraMissingError, RegistryUnreachableError
from headrace.events.avro import SchemaLookup
from headrace.events.avro_references import AvroSchemas
from headrace.events.json_schema_comparison import allowed_but_not_taken
from headrace.events.protobuf import ProtobufLookup
from headrace.events.written import WrittenWith
from headrace.kafka.schema_registry import latest_schema, look_up
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
from headrace.settings import Settings
from headrace.sinks.kafka.registered import registered_schema
from headrace.workers import Worker
from headrace.workers.function_task import FunctionFactory


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
    """Warns of events that the registered JSON Schema of a topic allows and its class rejects.

    Nothing is refused for it: a subject says what may be sent, most of which never is, and may
    change while pipelines run. What is sent and rejected is a dead letter with its field.
    """
    for topic in topics:
        if settings.schema_registry is None or not isinstance(topic.record_format, JsonSchema):
            continue
        subject, where = topic.schema_subject, f"topic {topic.name!r}"
        extra = topic.record_format.extra
        try:
            latest = latest_schema(settings.schema_registry, subject, extra)
        except (ExtraMissingError, RegistryUnreachableError) as error:
            yield Fault(f"{where}: its class is not compared with {subject!r}: {error}")
            continue
        if latest is not None and topic.schema is not None:
            for phrase in _not_taken(latest, topic.schema):
                message = f"{where}: by the schema {subject!r} {phrase}"
                yield Fault(message, "declare the class so, unless no sender does that")


def _not_taken(latest: RegisteredSchema, schema: EventSchema) -> Iterable[str]:
    if latest.kind != JsonSchema.registry_kind:
        return [f"events are {latest.kind}, and not JSON"]
    try:
        referenced = {name: json.loads(text) for name, text in reversed(latest.referenced)}
        phrases = allowed_but_not_taken(json.loads(latest.text), referenced, schema)
        return dict.fromkeys(phrases)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        return [f"nothing can be compared: it is no JSON Schema ({error})"]


def require_extras(topics: Iterable[Topic]) -> None:
    """Checks that the extras of the formats of topics are installed.

    Raises:
        ExtraMissingError: if one is not.
    """
    for topic in topics:
        if isinstance(topic.record_format, Registered):
            require_extra(topic.record_format.extra)


def schema_lookup(settings: Settings) -> SchemaLookup | None:
    """Returns the project's registry as a function, which can be pickled; ``None`` without one."""
    registry = settings.schema_registry
    if registry is None:
        return None
    return AvroSchemas(functools.partial(look_up, registry, Avro.registry_kind))


def protobuf_lookup(settings: Settings) -> ProtobufLookup | None:
    """Returns the project's registry as a function of its schemas of Protobuf, as the other."""
    registry = settings.schema_registry
    if registry is None:
        return None
    return functools.partial(look_up, registry, Protobuf.registry_kind)


def with_schemas(worker: Worker, settings: Settings) -> Worker:
    """Returns a worker that is about to run, able to read events of registered formats by value.

    Raises:
        ExtraMissingError: if it has to, and the extra of a format is not installed.
    """
    task = worker.task
    if not isinstance(task, FunctionFactory) or not task.needs_schemas:
        return worker
    require_extras(task.topics)
    schemas, protobuf = schema_lookup(settings), protobuf_lookup(settings)
    return replace(worker, task=replace(task, schemas=schemas, protobuf=protobuf))
