"""What must hold for a declared worker before anything starts."""

from __future__ import annotations

import inspect
import typing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from headrace.model import DeadLetterLimit, Guarantee, Start, Topic, TopicPartition
from headrace.model.fault import Fault, at_least, duration, is_a
from headrace.model.source import dead_letter_limit_faults
from headrace.settings import Settings
from headrace.topics.envelope_rules import no_envelope
from headrace.topics.rules import name_faults
from headrace.workers import (
    DeadLetters,
    Retry,
    RetryTopics,
    Skip,
    Stop,
    Worker,
    WorkerTask,
)
from headrace.workers.references.rules import reference_faults, reference_type_faults
from headrace.workers.state.rules import state_faults
from headrace.workers.tasks.function_task import KEY, SHARED, FunctionFactory, Parameters
from headrace.workers.tasks.policy import ending
from headrace.workers.tasks.retry_topics import retry_topics

_ENDS = (Stop, Skip, DeadLetters)
_POLICIES = (*_ENDS, Retry, RetryTopics)


def worker_faults(worker: Worker) -> Iterator[Fault]:
    """Yields what is wrong with one worker by itself."""
    yield from _topic_faults(worker)
    yield from _task_faults(worker)
    yield from _partitioner_faults(worker)
    yield from _policy_faults(worker)
    yield from _number_faults(worker)
    yield from _config_faults(worker)
    yield from _lifespan_faults(worker)
    yield from reference_faults(worker)
    yield from state_faults(worker)


def site_faults(worker: Worker, settings: Settings) -> Iterator[Fault]:
    """Yields what is wrong with the site of a worker."""
    sites = (settings.site, *settings.sites)
    if worker.site and worker.site not in sites:
        message = f"{_label(worker)} reads at site {worker.site!r}, which headrace.toml has not"
        yield Fault(message, f"declared: {', '.join(sites)}; or add [sites.{worker.site}.kafka]")
    if worker.is_exactly_once and worker.site not in ("", settings.site):
        yield Fault(
            f"{_label(worker)} is exactly once and reads at site {worker.site!r}",
            "a transaction is of one cluster: leave out guarantee, or mirror the topic",
        )


def sends_dead_letters(worker: Worker) -> bool:
    """Whether records that fail for good go to their topic's dead letters."""
    return isinstance(ending(worker.on_failure), DeadLetters)


def worker_type_faults(worker: Worker) -> Iterator[Fault]:
    """Yields which parts of a worker are not what the model says."""
    if not is_a(worker.name, str):
        yield Fault(f"worker name {worker.name!r} is not text")
    if not is_a(worker.site, str):
        yield Fault(f"{_label(worker)}: site is {worker.site!r}", "the name of a site")
    topics: Any = worker.topic
    task: Any = worker.task
    for topic in topics if isinstance(topics, list | tuple) else [topics]:
        if not is_a(topic, Topic) or not is_a(topic.name, str):
            yield Fault(f"{_label(worker)}: topic is {topic!r}", "a declared Topic, or several")
    if not callable(task):
        yield Fault(f"{_label(worker)}: task is {task!r}", "a WorkerTask class")
    yield from reference_type_faults(worker)
    policy: Any = worker.on_failure
    if type(policy) not in _POLICIES:
        yield Fault(f"{_label(worker)}: on_failure is {policy!r}", _words(_POLICIES))
    elif isinstance(policy, Retry | RetryTopics) and type(policy.then) not in _ENDS:
        yield Fault(f"{type(policy).__name__}.then is {policy.then!r}", _words(_ENDS))


def _words(kinds: Sequence[type]) -> str:
    return "one of " + ", ".join(f"{kind.__name__}()" for kind in kinds)


def _retry_topic_faults(worker: Worker) -> Iterator[Fault]:
    for name in retry_topics(worker):
        for fault in name_faults(name):
            yield Fault(f"{_label(worker)}, retries: {fault.message}", fault.remedy)


def _topic_faults(worker: Worker) -> Iterator[Fault]:
    if not worker.topics:
        yield Fault(f"{_label(worker)} has no topic")
    for name, count in Counter(topic.name for topic in worker.topics).items():
        if count > 1:
            yield Fault(f"{_label(worker)} reads topic {name!r} {count} times", "read it once")
    for topic in worker.topics:
        yield from no_envelope(topic, f"{_label(worker)} reads")
    if sends_dead_letters(worker):
        for topic in worker.topics:
            for fault in name_faults(topic.dead_letters):
                yield Fault(f"{_label(worker)}, dead letters: {fault.message}", fault.remedy)


# -- the task -------------------------------------------------------------------------------------


def _task_faults(worker: Worker) -> Iterator[Fault]:
    if isinstance(worker.task, FunctionFactory):
        yield from _function_faults(worker, worker.task)
    elif inspect.isclass(worker.task):
        yield from _class_faults(worker, worker.task)
    elif not _binds(worker.task):
        yield Fault(
            f"{_label(worker)}: task must be callable without arguments", "a WorkerTask class"
        )


def _function_faults(worker: Worker, task: FunctionFactory) -> Iterator[Fault]:
    function = task.function
    for part in ("value", KEY):
        deserializer: Any = getattr(task, f"{part}_deserializer")
        if deserializer is not None and not callable(deserializer):
            yield Fault(
                f"{_label(worker)}: {part}_deserializer is {deserializer!r}",
                f"a function of the {part}'s bytes",
            )
            return
    takes = task.takes
    if takes.unknown or not (takes.record or takes.event):
        names = ", ".join(takes.unknown) or "neither the event nor the record"
        yield Fault(
            f"{_label(worker)}: {function.__name__} takes {names}",
            "a worker's function takes the event first, and by these names record, send, observer "
            "and shared, its references, and state and key where it declares state and "
            "key_deserializer",
        )
        return
    yield from _deserializer_faults(worker, task)
    if task.value_deserializer is None:
        yield from _event_faults(worker, function.__name__, takes)
    if SHARED in takes.others and worker.lifespan is None:
        yield Fault(
            f"{_label(worker)}: {function.__name__} takes {SHARED}, and nothing is shared",
            "declare what makes it: lifespan=...",
        )


def _deserializer_faults(worker: Worker, task: FunctionFactory) -> Iterator[Fault]:
    """Yields where a deserializer has nothing to read, or something else reads it already."""
    if task.value_deserializer is not None:
        for topic in worker.topics:
            if topic.event is not None:
                yield Fault(
                    f"{_label(worker)} has a value_deserializer, and topic {topic.name!r} an event "
                    "class",
                    "declare one of them",
                )
        if not task.takes.event:
            yield Fault(
                f"{_label(worker)} has a value_deserializer, and {task.function.__name__} takes no "
                "value",
                "take it as the first parameter",
            )
    if task.key_deserializer is not None:
        if KEY in worker.references:
            yield Fault(
                f"{_label(worker)} has a key_deserializer, and a reference {KEY!r}",
                "give the reference another name",
            )
        if KEY not in task.takes.others:
            yield Fault(
                f"{_label(worker)} has a key_deserializer, and {task.function.__name__} takes no "
                f"{KEY}",
                f"name a parameter {KEY}",
            )


def _event_faults(worker: Worker, function: str, takes: Parameters) -> Iterator[Fault]:
    """Yields where the function is given another class than it is annotated with."""
    annotation = takes.annotation
    if not takes.event or isinstance(annotation, str) or annotation in (None, Any, object):
        return
    accepted = typing.get_args(annotation) or (annotation,)
    for topic in worker.topics:
        event = bytes if topic.event is None else topic.event
        if event not in accepted:
            shown = getattr(annotation, "__name__", annotation)
            yield Fault(
                f"{_label(worker)}: {function} takes {takes.event}: {shown}, and topic "
                f"{topic.name!r} holds {event.__name__}",
                f"annotate it with {event.__name__}",
            )


def _class_faults(worker: Worker, task: type) -> Iterator[Fault]:
    if not issubclass(task, WorkerTask):
        yield Fault(f"{_label(worker)}: {task.__name__} is not a WorkerTask", "derive it from one")
        return
    if not _binds(task):
        yield Fault(
            f"{_label(worker)}: {task.__name__} can't be made without arguments",
            "task=lambda: MyTask(...), or take them from config in init",
        )
    batch = getattr(task, "process_batch", None)
    method = task.process if batch is None else batch
    if method.__qualname__.startswith(("WorkerTask.", "BatchWorkerTask.")):
        yield Fault(f"{_label(worker)}: {task.__name__} does not define {method.__name__}")
    elif not (_binds(method, 2) or (batch is None and _binds(method, 3))):
        yield Fault(
            f"{_label(worker)}: {task.__name__}.{method.__name__} has other parameters",
            "process(self, record[, observer]), or process_batch(self, records)",
        )


def _binds(function: Callable[..., Any], arguments: int = 0) -> bool:
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # no signature to look at
        return True
    return True


# -- the rest -------------------------------------------------------------------------------------


def _partitioner_faults(worker: Worker) -> Iterator[Fault]:
    partitioner = worker.partitioner
    missing = [
        name
        for name in ("subpartition", "count")
        if inspect.isclass(partitioner) or not callable(getattr(partitioner, name, None))
    ]
    if missing:
        yield Fault(
            f"{_label(worker)}: partitioner is {partitioner!r}",
            "KeyHash(64), or an object with subpartition(record) and count(partition)",
        )
    elif hasattr(partitioner, "subpartitions"):
        yield from at_least(partitioner, "subpartitions", 1)
    else:
        yield from _count_faults(worker)


def _count_faults(worker: Worker) -> Iterator[Fault]:
    for topic in worker.topics:
        try:
            count: Any = worker.partitioner.count(TopicPartition(topic.name, 0))
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            count = f"{type(error).__name__}: {error}"
        if type(count) is not int or count < 1:
            yield Fault(
                f"{_label(worker)}: partitioner counts {count!r} subpartitions of {topic.name}[0]",
                "a whole number of at least 1",
            )


def _policy_faults(worker: Worker) -> Iterator[Fault]:
    policy = worker.on_failure
    if isinstance(policy, Retry):
        yield from at_least(policy, "attempts", 1)
        yield from duration(policy, "first_delay", timedelta(0))
        yield from duration(policy, "max_delay", timedelta(0))
    elif isinstance(policy, RetryTopics):
        wrong = list(_delay_faults(policy))
        yield from wrong or _retry_topic_faults(worker)
    end = ending(policy)
    if isinstance(end, DeadLetters):
        if is_a(end.limit, DeadLetterLimit):
            yield from dead_letter_limit_faults(end.limit)
        else:
            yield Fault(f"DeadLetters.limit is {end.limit!r}", "a DeadLetterLimit")


def _delay_faults(policy: RetryTopics) -> Iterator[Fault]:
    delays = policy.delays
    if not is_a(delays, list | tuple) or not delays:
        yield Fault(f"RetryTopics.delays is {delays!r}", "at least one timedelta")
        return
    for delay in delays:
        if not is_a(delay, timedelta) or delay <= timedelta(0):
            yield Fault(f"RetryTopics.delays holds {delay!r}; each must be a timedelta above zero")


def _number_faults(worker: Worker) -> Iterator[Fault]:
    shortest = timedelta(microseconds=1)
    yield from duration(worker, "processing_timeout", shortest)
    if worker.commit_every is not None:
        yield from duration(worker, "commit_every", shortest)
    if worker.punctuate_every is not None:
        yield from duration(worker, "punctuate_every", shortest)
    yield from duration(worker, "drain_timeout", timedelta(0))
    yield from duration(worker, "revoke_timeout", timedelta(0))
    for name in ("queue_bytes", "batch_records", "parallelism"):
        yield from at_least(worker, name, 1)


def _config_faults(worker: Worker) -> Iterator[Fault]:
    if not is_a(worker.config, Mapping):
        yield Fault(f"{_label(worker)}: config is {worker.config!r}", "a dict")
    if worker.start not in {Start.EARLIEST, Start.LATEST}:
        remedy = "Start.EARLIEST or Start.LATEST; what is committed always counts first"
        yield Fault(f"{_label(worker)}: start is {worker.start!r}", remedy)
    guarantees = (Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE)
    if worker.guarantee not in guarantees:
        yield Fault(
            f"{_label(worker)}: guarantee is {worker.guarantee!r}",
            "Guarantee.AT_LEAST_ONCE or Guarantee.EXACTLY_ONCE",
        )
    for name in ("version", "group"):
        text = getattr(worker, name)
        if not is_a(text, str):
            yield Fault(f"{_label(worker)}: {name} is {text!r}; it must be text")


def _lifespan_faults(worker: Worker) -> Iterator[Fault]:
    lifespan: Any = worker.lifespan
    if lifespan is None:
        return
    if inspect.isasyncgenfunction(lifespan) or not callable(lifespan):
        yield Fault(
            f"{_label(worker)}: lifespan is {lifespan!r}",
            "a function of config, decorated with contextlib.asynccontextmanager",
        )


def _label(worker: Worker) -> str:
    return f"worker {worker.name!r}"
