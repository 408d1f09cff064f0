"""What must hold for the state of a worker before anything starts."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from headrace.model import Topic
from headrace.model.fault import Fault, at_least, duration
from headrace.model.partitioning import keeps_keys
from headrace.topics.rules import name_faults
from headrace.workers.declaration import Worker
from headrace.workers.tasks.function_task import (
    OBSERVER,
    STATE,
    TIMERS,
    Function,
    FunctionFactory,
    parameters_of,
)
from headrace.workers.tasks.partitioner import KeyHash, OneToOne
from headrace.workers.tasks.policy import RetryTopics
from headrace.workers.tasks.state import KeyState, StateForm
from headrace.workers.tasks.task import WorkerTask

# Restores read all of it, and compaction spares the open segment: a week by default.
_SEGMENT_MS = "3600000"
_COPIED = ("min.insync.replicas",)


def state_topic(worker: Worker) -> Topic:
    """Returns the topic that has the state of a worker: compacted, with the partitions it reads."""
    [topic] = worker.topics
    copied = {name: topic.config[name] for name in _COPIED if name in topic.config}
    return Topic(
        worker.state_topic,
        partitions=topic.partitions,
        replication=topic.replication,
        compaction=True,
        config={"segment.ms": _SEGMENT_MS} | copied,
    )


def state_faults(worker: Worker) -> Iterator[Fault]:
    """Yields what is wrong with a worker's state."""
    if worker.state is None:
        yield from _without_state(worker)
        return
    label = f"worker {worker.name!r} keeps a state"
    try:
        StateForm(worker.state)
    except TypeError as error:
        yield Fault(f"{label} of {worker.state!r}: {error}", "a type, such as a dataclass, or int")
        return
    if not worker.is_exactly_once:
        yield Fault(
            f"{label} and is at least once: a crash would count records twice",
            "guarantee=Guarantee.EXACTLY_ONCE",
        )
    yield from _topic_faults(worker, label)
    if isinstance(worker.on_failure, RetryTopics):
        yield Fault(
            f"{label} and has RetryTopics: other instances would process what failed, with "
            "another state, and later records of a key before it",
            "Retry(...), which keeps the order of a key",
        )
    if type(worker.partitioner) not in (OneToOne, KeyHash):
        yield Fault(
            f"{label}, and its partitioner is {worker.partitioner!r}: records of a key must be in "
            "one subpartition",
            "subpartitions=..., or KeyHash(...)",
        )
    yield from at_least(worker, "state_bytes", 1)
    if worker.state_ttl is not None:
        yield from duration(worker, "state_ttl", timedelta(milliseconds=1))
    for fault in name_faults(worker.state_topic):
        yield Fault(f"{label}: {fault.message}", fault.remedy)
    for name in (STATE, TIMERS):
        if name in worker.references:
            yield Fault(f"{label} and has a reference {name!r}", "another name of the reference")
    yield from _task_faults(worker, label)


def _without_state(worker: Worker) -> Iterator[Fault]:
    if worker.state_ttl is not None:
        yield Fault(f"worker {worker.name!r} has state_ttl, and no state", "state=...")
    on_timer = getattr(worker.task, "on_timer", None)
    if on_timer is not None and on_timer is not WorkerTask.on_timer:
        yield Fault(
            f"worker {worker.name!r} has on_timer, and no state, whose topic has the timers",
            "state=..., such as bool",
        )


def _topic_faults(worker: Worker, label: str) -> Iterator[Fault]:
    if len(worker.topics) > 1:
        yield Fault(
            f"{label} and reads {len(worker.topics)} topics: the instance of a key's partition "
            "differs between them",
            "one topic; other workers can send to it by key",
        )
    for topic in worker.topics:
        if not keeps_keys(topic.partitioning, topic.key):
            yield Fault(
                f"{label} for each record key, and the partitioning of topic {topic.name!r} puts "
                "records of a key into several partitions",
                "a topic with ByKey()",
            )


def _task_faults(worker: Worker, label: str) -> Iterator[Fault]:
    task: Any = worker.task
    if isinstance(task, FunctionFactory):
        yield from _function_faults(worker, task, label)
        return
    batch = getattr(task, "process_batch", None)
    process = getattr(task, "process", None)
    observes = process is not None and len(inspect.signature(process).parameters) > 2  # noqa: PLR2004 - self, record
    if batch is not None or (inspect.isclass(task) and observes):
        method = "process_batch" if batch is not None else "an observer"
        yield Fault(
            f"{label}, and {getattr(task, '__name__', task)} has {method}: a record would be "
            "processed before the one before it is done",
            "process(self, record)",
        )


def _function_faults(worker: Worker, task: FunctionFactory, label: str) -> Iterator[Fault]:
    name = task.function.__name__
    takes = parameters_of(task.function, task.references, has_state=True)
    if OBSERVER in takes.others:
        yield Fault(
            f"{label}, and {name} takes {OBSERVER}: a record would be processed before the one "
            "before it is done",
            f"no parameter {OBSERVER}",
        )
    if not takes.others & {STATE, TIMERS}:
        yield Fault(f"{label}, and {name} does not take it", f"a parameter {STATE}: KeyState[...]")
    if TIMERS in takes.others and task.on_timer is None:
        yield Fault(f"{label}, and {name} takes {TIMERS} without on_timer", "on_timer=...")
    if task.on_timer is not None:
        yield from _timer_faults(task.on_timer, task, label)
    if STATE in takes.others and not _fits(takes.state, worker.state):
        held = getattr(worker.state, "__name__", worker.state)
        yield Fault(f"{label} of {held}, and {name} takes another", f"{STATE}: KeyState[{held}]")


def _timer_faults(on_timer: Function, task: FunctionFactory, label: str) -> Iterator[Fault]:
    takes = parameters_of(on_timer, task.references, has_state=True)
    unknown = [*takes.unknown, *filter(None, [takes.record]), *({OBSERVER} & takes.others)]
    if unknown or not takes.event:
        names = ", ".join(unknown) or "no timer"
        yield Fault(
            f"{label}, and {getattr(on_timer, '__name__', on_timer)} takes {names}",
            "on_timer takes the timer first, and by these names state, timers, send and shared, "
            "and its references",
        )


def _fits(annotation: Any, type_: Any) -> bool:
    """Returns whether a parameter may be annotated so; one that can't be resolved may."""
    if annotation in (None, Any, object, KeyState) or isinstance(annotation, str):
        return True
    is_state = typing.get_origin(annotation) is KeyState
    return is_state and typing.get_args(annotation)[0] in (type_, Any)
