"""What a worker reads events of registered formats with."""

from __future__ import annotations

from dataclasses import replace

from headrace.settings import Settings
from headrace.topics.schemas import protobuf_lookup, require_extras, schema_lookup
from headrace.workers import Worker
from headrace.workers.tasks.function_task import FunctionFactory


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
