"""A worker's function as a task: what it takes, by the names of its parameters."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from headrace.model import Registered, Topic
from headrace.workers.tasks.task import RecordStatusObserver, WorkerRecord, WorkerTask

if TYPE_CHECKING:
    from headrace.events.avro.values import SchemaLookup
    from headrace.events.instances import EventReader
    from headrace.events.protobuf.values import ProtobufLookup
    from headrace.workers.tasks.deserializers import Deserialized, Deserializer
    from headrace.workers.tasks.timers import Timer

Function: TypeAlias = Callable[..., Any]
Readers: TypeAlias = "Mapping[str, EventReader | Deserialized]"
"""What reads a record's value as an event, by topic; empty for a function without an event."""

RECORD, OBSERVER, SEND, SHARED = "record", "observer", "send", "shared"
STATE, TIMERS, KEY = "state", "timers", "key"


@dataclass(frozen=True)
class Parameters:
    """What a worker's function takes.

    Attributes:
        record: name of the parameter for the record; empty: none.
        event: name of the parameter for the event; empty: none.
        annotation: of the event; ``None``: it has none, or it can't be resolved.
        others: of ``observer``, ``send``, ``shared``, ``state``, ``timers`` and ``key``, those that
            it takes.
        state: annotation of its state; ``None``: it has none.
        references: of the worker, those that it takes, with their annotations.
        unknown: parameters without a default that nothing is known for.
    """

    record: str
    event: str
    annotation: Any
    others: frozenset[str]
    references: Mapping[str, Any]
    unknown: tuple[str, ...]
    state: Any = None


def parameters_of(
    function: Function,
    references: Collection[str] = (),
    *,
    has_state: bool = False,
    has_key: bool = False,
) -> Parameters:
    """Returns what ``function`` takes.

    ``record``, ``observer``, ``send`` and ``shared`` are known by their names, a record also by its
    annotation ``WorkerRecord``. The first parameter, if it is none of these, is the event.

    Args:
        function: the user's.
        references: names of the worker's references.
        has_state: parameters ``state`` and ``timers`` are the worker's, no event or reference.
        has_key: a parameter ``key`` is the deserialized key.
    """
    hints = _hints(function)
    own = (OBSERVER, SEND, SHARED, *(STATE, TIMERS) * has_state, *[KEY] * has_key)
    record = event = ""
    others, unknown = [], []
    taken: dict[str, Any] = {}
    for position, parameter in enumerate(inspect.signature(function).parameters.values()):
        name = parameter.name
        if name == RECORD or hints.get(name) is WorkerRecord:
            record = name
        elif name in own:
            others.append(name)
        elif name in references:
            taken[name] = hints.get(name)
        elif parameter.default is not inspect.Parameter.empty:
            continue
        elif position == 0 and parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            event = name
        else:
            unknown.append(name)
    return Parameters(
        record,
        event,
        hints.get(event),
        frozenset(others),
        taken,
        tuple(unknown),
        hints.get(STATE) if has_state else None,
    )


def _hints(function: Function) -> Mapping[str, Any]:
    """Returns the annotations that can be resolved; names of a test's own scope can't be."""
    inner = function.func if isinstance(function, functools.partial) else function
    try:
        return typing.get_type_hints(inner)
    except (NameError, TypeError):
        return getattr(inner, "__annotations__", {})


class TimerFunction(NamedTuple):
    """A worker's function for timers, whose first parameter is the timer."""

    function: Function
    takes: Parameters


class FunctionTask(WorkerTask):
    """A task that is one function, and perhaps one for timers.

    Attributes:
        needs_schemas: whether reading some events may take schemas, which are looked up.
    """

    def __init__(
        self,
        function: Function,
        takes: Parameters,
        readers: Readers,
        *,
        read_key: Deserialized,
        needs_schemas: bool,
        on_timer: TimerFunction | None = None,
    ) -> None:
        self._function, self._takes, self._readers = function, takes, readers
        self._read_key = read_key
        self.needs_schemas = needs_schemas
        is_coroutine = inspect.iscoroutinefunction(function)
        if OBSERVER in takes.others:
            self.process = self._awaited_observed if is_coroutine else self._called_observed
        else:
            self.process = self._awaited if is_coroutine else self._called
        if on_timer is not None:
            self._on_timer = on_timer
            is_coroutine = inspect.iscoroutinefunction(on_timer.function)
            self.on_timer = self._awaited_timer if is_coroutine else self._called_timer  # type: ignore[method-assign]

    def needs_lookup(self, record: WorkerRecord) -> bool:
        """Returns whether ``process`` would make requests to the schema registry for a record."""
        return self._readers[record.topic].needs_lookup(record.value, record.headers)

    def look_up(self, record: WorkerRecord) -> None:
        """Makes these requests; ``process`` makes none for the schema from then on.

        Raises:
            InvalidRecordError: if the record is no event, or the registry has not its schema.
            RegistryUnreachableError: if the registry does not answer.
        """
        self._readers[record.topic](record.value, record.headers)

    async def _awaited(self, record: WorkerRecord) -> None:
        await self._function(**self._arguments(record))

    def _called(self, record: WorkerRecord) -> None:
        self._function(**self._arguments(record))

    async def _awaited_observed(self, record: WorkerRecord, observer: RecordStatusObserver) -> None:
        await self._function(**self._arguments(record), observer=observer)

    def _called_observed(self, record: WorkerRecord, observer: RecordStatusObserver) -> None:
        self._function(**self._arguments(record), observer=observer)

    async def _awaited_timer(self, timer: Timer) -> None:
        await self._on_timer.function(**self._timer_arguments(timer))

    def _called_timer(self, timer: Timer) -> None:
        self._on_timer.function(**self._timer_arguments(timer))

    def _timer_arguments(self, timer: Timer) -> dict[str, Any]:
        takes = self._on_timer.takes
        arguments = {name: getattr(self, name) for name in takes.others}
        arguments |= {name: self.references[name] for name in takes.references}
        if takes.event:
            arguments[takes.event] = timer
        return arguments

    def _arguments(self, record: WorkerRecord) -> dict[str, Any]:
        arguments = dict(self._fixed)
        if self._takes.record:
            arguments[self._takes.record] = record
        if self._takes.event:
            read = self._readers[record.topic]
            arguments[self._takes.event] = read(record.value, record.headers)
        for name in self._takes.references:
            arguments[name] = self.references[name]
        for name in (STATE, TIMERS):
            if name in self._takes.others:
                arguments[name] = getattr(self, name)
        if KEY in self._takes.others:
            arguments[KEY] = self._read_key(record.key)
        return arguments

    @functools.cached_property
    def _fixed(self) -> dict[str, Any]:
        """The arguments that are the same for all records."""
        return {name: getattr(self, name) for name in (SEND, SHARED) if name in self._takes.others}


def is_tombstone(task: Callable[[], WorkerTask], record: WorkerRecord) -> bool:
    """Returns whether a record only says that its key was deleted, and ``task`` takes events."""
    return (
        record.value is None
        and isinstance(task, FunctionFactory)
        and record.topic in task.topics_without_tombstones
    )


@dataclass(frozen=True)
class FunctionFactory:
    """Makes the tasks of a function that is given events of ``topics``.

    What reads events is created once for all tasks, and not pickled.

    Attributes:
        function: the user's.
        topics: that the worker reads.
        schemas: by which values of registered formats are read; ``None`` in a declaration, which
            knows no schema registry.
        protobuf: the same of Protobuf topics.
        references: names of the worker's references.
        has_state: whether the worker keeps a state.
        on_timer: the user's function for timers; ``None``: the worker sets none.
        value_deserializer: reads values, where no topic has an event class.
        key_deserializer: reads keys.
    """

    function: Function
    topics: tuple[Topic, ...] = ()
    schemas: SchemaLookup | None = None
    protobuf: ProtobufLookup | None = None
    references: tuple[str, ...] = ()
    has_state: bool = False
    on_timer: Function | None = None
    value_deserializer: Deserializer | None = None
    key_deserializer: Deserializer | None = None

    def __call__(self) -> FunctionTask:
        """Returns a task."""
        from headrace.workers.tasks.deserializers import Deserialized

        return FunctionTask(
            self.function,
            self.takes,
            self._readers,
            read_key=Deserialized(self.key_deserializer, KEY),
            needs_schemas=self.needs_schemas,
            on_timer=self._timer_function,
        )

    # What is cached is left out: it is made of classes that only this process has.
    def __reduce__(self) -> tuple[type[FunctionFactory], tuple[Any, ...]]:
        own = (self.function, self.topics, self.schemas, self.protobuf, self.references)
        later = (self.on_timer, self.value_deserializer, self.key_deserializer)
        return FunctionFactory, (*own, self.has_state, *later)

    @property
    def needs_schemas(self) -> bool:
        """Whether the function is given events of a registered format."""
        is_registered = any(isinstance(topic.record_format, Registered) for topic in self.topics)
        return is_registered and bool(self.takes.event)

    @functools.cached_property
    def topics_without_tombstones(self) -> frozenset[str]:
        """Names of the topics whose tombstones the function is not given, as it takes events."""
        topics = self.topics if self.takes.event else ()
        return frozenset(topic.name for topic in topics if topic.leaves_out_tombstones)

    @functools.cached_property
    def takes(self) -> Parameters:
        """What the function takes."""
        has_key = self.key_deserializer is not None
        return parameters_of(
            self.function, self.references, has_state=self.has_state, has_key=has_key
        )

    @functools.cached_property
    def _timer_function(self) -> TimerFunction | None:
        if self.on_timer is None:
            return None
        takes = parameters_of(self.on_timer, self.references, has_state=self.has_state)
        return TimerFunction(self.on_timer, takes)

    @functools.cached_property
    def _readers(self) -> Readers:
        # Declaring a worker needs neither.
        from headrace.events.instances import event_reader
        from headrace.workers.tasks.deserializers import Deserialized

        topics = self.topics if self.takes.event else ()
        if self.value_deserializer is not None:
            own = Deserialized(self.value_deserializer, "value")
            return {topic.name: own for topic in topics}
        reader = functools.partial(event_reader, schemas=self.schemas, protobuf=self.protobuf)
        return {topic.name: reader(topic) for topic in topics}
