"""What a worker reads events of registered formats with."""

from __future__ import annotations

from dataclasses import replace

from headrace.model import Registered
from headrace.settings import Settings
from headrace.topics.schemas import protobuf_lookup, require_extras, schema_lookup
from headrace.workers import Worker
from headrace.workers.references.lookups import EventLookups
from headrace.workers.tasks.function_task import FunctionFactory


def with_schemas(worker: Worker, settings: Settings) -> Worker:
    """Returns a worker that is about to run, able to read events of registered formats.

    Raises:
        ExtraMissingError: if it has to, and the extra of a format is not installed.
    """
    task = worker.task
    looked_up = worker.references.values()
    needs_lookups = any(isinstance(topic.record_format, Registered) for topic in looked_up)
    takes_events = isinstance(task, FunctionFactory) and task.needs_schemas
    if not needs_lookups and not takes_events:
        return worker
    require_extras(looked_up)
    schemas, protobuf = schema_lookup(settings), protobuf_lookup(settings)
    worker = replace(worker, lookups=EventLookups(schemas, protobuf))
    if isinstance(task, FunctionFactory) and takes_events:
        require_extras(task.topics)
        worker = replace(worker, task=replace(task, schemas=schemas, protobuf=protobuf))
    return worker
