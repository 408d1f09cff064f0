"""What must hold for the references of a worker before anything starts."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.model import Topic
from headrace.model.fault import Fault, at_least, is_a
from headrace.topics.durability import declared_retention
from headrace.topics.envelope_rules import no_envelope
from headrace.workers.declaration import Worker
from headrace.workers.tasks.function_task import (
    OBSERVER,
    RECORD,
    SEND,
    SHARED,
    FunctionFactory,
    parameters_of,
)
from headrace.workers.tasks.references import References

_OWN_NAMES = frozenset({RECORD, SEND, OBSERVER, SHARED})


def reference_type_faults(worker: Worker) -> Iterator[Fault]:
    """Yields which parts of a worker's references are not what the model says."""
    references: Any = worker.references
    if not is_a(references, Mapping):
        yield Fault(f"{_label(worker)}: references is {references!r}", '{"accounts": accounts}')
        return
    for name, topic in references.items():
        if not is_a(name, str):
            yield Fault(f"{_label(worker)}: the name of a reference is {name!r}", "text")
        if not is_a(topic, Topic) or not is_a(topic.name, str):
            yield Fault(f"{_label(worker)}: reference {name!r} is {topic!r}", "a declared Topic")


def reference_faults(worker: Worker) -> Iterator[Fault]:
    """Yields what is wrong with a worker's references."""
    for name, topic in worker.references.items():
        if not name.isidentifier() or name in _OWN_NAMES:
            yield Fault(
                f"{_label(worker)}: {name!r} is not a name of a reference",
                f"a name of Python, other than {', '.join(sorted(_OWN_NAMES))}",
            )
        yield from no_envelope(topic, f"{_label(worker)} looks values up in")
        if not topic.is_compacted and declared_retention(topic) is None:
            yield Fault(
                f"{_label(worker)}: reference {topic.name!r} is not compacted, and declares no "
                "retention",
                "Topic(compaction=True), or retention=... longer than a value counts",
            )
    yield from at_least(worker, "reference_bytes", 1)
    if isinstance(worker.task, FunctionFactory):
        yield from _parameter_faults(worker, worker.task)


def _parameter_faults(worker: Worker, task: FunctionFactory) -> Iterator[Fault]:
    function = task.function.__name__
    taken = parameters_of(task.function, task.references, has_state=task.has_state).references
    for name, topic in worker.references.items():
        if name not in taken:
            yield Fault(
                f"{_label(worker)}: {function} does not take its reference {name!r}",
                f"a parameter {name}: References[...], or no such reference",
            )
        elif not _fits(taken[name], topic):
            event = bytes if topic.event is None else topic.event
            yield Fault(
                f"{_label(worker)}: {function} takes {name}: {_shown(taken[name])}, and topic "
                f"{topic.name!r} holds {event.__name__}",
                f"annotate it with References[{event.__name__}]",
            )


def _fits(annotation: Any, topic: Topic) -> bool:
    """Returns whether a parameter may be annotated so; one that can't be resolved may."""
    if annotation in (None, Any, object, References) or isinstance(annotation, str):
        return True
    event = bytes if topic.event is None else topic.event
    is_table = typing.get_origin(annotation) is References
    return is_table and typing.get_args(annotation)[0] in (event, Any)


def _shown(annotation: Any) -> str:
    held = "".join(f"[{_shown(argument)}]" for argument in typing.get_args(annotation)[:1])
    return f"{getattr(annotation, '__name__', annotation)}{held}"


def _label(worker: Worker) -> str:
    return f"worker {worker.name!r}"
