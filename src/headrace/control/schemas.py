"""The Avro schemas that a project's events are written with, and those that they are read with."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace

from headrace.events.avro import SchemaLookup, avro_schema
from headrace.kafka.schema_registry import look_up_schema, register
from headrace.model import Avro, Topic
from headrace.runtime.extras import require_extra
from headrace.settings import Settings
from headrace.workers import Worker
from headrace.workers.function_task import FunctionFactory


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
        topic.name: register(registry, topic.schema_subject, avro_schema(topic.schema))
        for topic in topics
        if isinstance(topic.record_format, Avro) and topic.schema is not None
    }


def schema_lookup(settings: Settings) -> SchemaLookup | None:
    """Returns the project's registry as a function, which can be pickled; ``None`` without one."""
    registry = settings.schema_registry
    return None if registry is None else functools.partial(look_up_schema, registry)


def with_schemas(worker: Worker, settings: Settings) -> Worker:
    """Returns a worker that is about to run, able to read events of Avro topics by value.

    Raises:
        ExtraMissingError: if it has to, and the extra ``avro`` is not installed.
    """
    task = worker.task
    if not isinstance(task, FunctionFactory) or not task.reads_avro:
        return worker
    require_extra("avro")
    return replace(worker, task=replace(task, schemas=schema_lookup(settings)))
