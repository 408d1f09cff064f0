"""The declaration of a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

from headrace.model import Guarantee, Start, Topic
from headrace.model.declared import DeclaredValue
from headrace.workers.tasks.function_task import FunctionFactory
from headrace.workers.tasks.partitioner import KeyHash, OneToOne, WorkerPartitioner
from headrace.workers.tasks.policy import FailurePolicy, Stop
from headrace.workers.tasks.task import WorkerTask

if TYPE_CHECKING:
    from headrace.topics.spreads.placing import SpreadTopics
    from headrace.workers.references.lookups import EventLookups
    from headrace.workers.tasks.deserializers import Deserializer

Lifespan: TypeAlias = Callable[[Mapping[str, Any]], AbstractAsyncContextManager[Any]]
"""Called with the worker's ``config``; see :attr:`Worker.lifespan`."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_COMMIT_EVERY = timedelta(seconds=5)
_TRANSACTION_EVERY = timedelta(milliseconds=200)


@dataclass(frozen=True)
class Worker(DeclaredValue):
    """Records of topics, processed one at a time by a task. Declaring one runs nothing.

    Delivery is what ``guarantee`` says. Order: records of one subpartition are processed in the
    order of their offsets; see ``on_failure`` for what a failure does to it.

    Attributes:
        name: in commands, logs, metrics and dead letters.
        topic: a topic, or several.
        task: called without arguments for each subpartition: a :class:`WorkerTask` class, or a
            function that makes one.
        partitioner: divides partitions into subpartitions.
        on_failure: what happens to a record that failed.
        processing_timeout: from the start of ``process`` until it returns, or its end is reported
            to its observer. Waiting for its turn or a thread, being held, and the time between
            attempts do not count. Also of ``init`` and ``punctuate``.
        punctuate_every: interval of ``punctuate``; ``None``: never.
        commit_every: interval of commits; ``None``: 5 s, or 200 ms if exactly once, as readers see
            what was sent after a commit. A crash repeats what was done since the last one that
            was answered: while a rebalance waits for a member that was killed, there is none.
        queue_bytes: of records that wait or are in process, over the whole instance. Partitions
            with less than their share continue when it is full, up to twice as much.
        batch_records: most records of a ``process_batch``.
        parallelism: threads for tasks of ordinary functions.
        drain_timeout: what is in process when an instance stops may take so long.
        revoke_timeout: what is in process of a partition that goes to another instance may take so
            long; meanwhile nothing is read of those that stay. What is not done then starts over
            in the other instance.
        config: handed to the lifespan and to each task's ``init``.
        lifespan: makes what all tasks of an instance share, such as an HTTP client: a function of
            ``config`` that returns an async context manager (``contextlib.asynccontextmanager``).
            Entered once, on the event loop, before the instance joins its group; what it gives is
            ``shared`` of each task, and of a function that takes ``shared``. Left after all tasks
            are closed, also after a failure; not after ``kill -9``. What it raises, at
            any time, ends the instance. Entering may take as long as ``init``, leaving ten seconds.
        group: consumer group; by default ``headrace.<name>``.
        start: where it begins in a topic that it has committed nothing of: with the earliest
            records, or with those that come after its first start.
        version: written to dead letters, so that a fix can be distinguished from what it fixed.
        references: topics in which tasks look values up by record key, by the names that functions
            take: every instance holds the newest record of each key in memory. What tasks see, and
            when: :mod:`headrace.workers.references`.
        reference_bytes: of keys and values of all references, as they are in their topics. More
            ends the instance. As objects in memory they take several times that.
        site: whose cluster has the topics, by its name in ``headrace.toml``; empty: the project's
            own. All that belongs to the records that are read is at that cluster: the group with
            its positions, retry topics, dead letters. What tasks send goes to the project's own
            cluster, where references are read too. A crash repeats sends, as within one cluster.
            headrace creates no topics at another site but retry topics.
        guarantee: what a crash may do to what is sent, dead letters and retry topics included. At
            least once: it may be there twice. Exactly once: readers of committed records see what
            was sent for a record once; see :mod:`headrace.workers.exactly_once`.
        state: the type of a value that it keeps for each record key, such as a dataclass; ``None``:
            it keeps none. Only exactly once; see :mod:`headrace.workers.state`.
        state_bytes: of keys and values of the state of one instance. More ends the instance.
        state_ttl: a value that no record has set for so long, by the stream time of its partition,
            is deleted; ``None``: never.
        lookups: set by headrace where the worker runs.
        spread_topics: set by headrace where the worker runs: topics of the project that place what
            is sent to them by account, as `headrace topics spread` has applied.
        event_topics: set by headrace where the worker runs: the project's topics, whose events
            tasks send as objects.
    """

    name: str
    topic: Topic | Sequence[Topic]
    task: Callable[[], WorkerTask]
    partitioner: WorkerPartitioner = field(default_factory=OneToOne)
    on_failure: FailurePolicy = field(default_factory=Stop)
    processing_timeout: timedelta = timedelta(minutes=5)
    punctuate_every: timedelta | None = None
    commit_every: timedelta | None = None
    queue_bytes: int = 128 * 1024 * 1024
    batch_records: int = 10_000
    parallelism: int = 4
    drain_timeout: timedelta = timedelta(seconds=30)
    revoke_timeout: timedelta = timedelta(seconds=2)
    config: Mapping[str, Any] = field(default_factory=dict)
    lifespan: Lifespan | None = None
    group: str = ""
    start: Start = Start.EARLIEST
    version: str = "1"
    references: Mapping[str, Topic] = field(default_factory=dict)
    reference_bytes: int = 64 * 1024 * 1024
    site: str = ""
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    state: Any = None
    state_bytes: int = 256 * 1024 * 1024
    state_ttl: timedelta | None = None
    lookups: EventLookups | None = field(default=None, repr=False, compare=False)
    spread_topics: SpreadTopics | None = field(default=None, repr=False, compare=False)
    event_topics: tuple[Topic, ...] = field(default=(), repr=False, compare=False)

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics, also when there is only one."""
        return (self.topic,) if isinstance(self.topic, Topic) else tuple(self.topic)

    @property
    def consumer_group(self) -> str:
        """The Kafka consumer group of all instances."""
        return self.group or f"headrace.{self.name}"

    @property
    def is_exactly_once(self) -> bool:
        """Whether what is sent and the offsets of its records are committed in one transaction."""
        return self.guarantee is Guarantee.EXACTLY_ONCE

    @property
    def state_topic(self) -> str:
        """The name of the topic that has its state, if it keeps one."""
        return f"{self.consumer_group}.state"

    @property
    def commit_interval(self) -> timedelta:
        """The interval of commits, also where none is declared."""
        default = _TRANSACTION_EVERY if self.is_exactly_once else _COMMIT_EVERY
        return default if self.commit_every is None else self.commit_every


@dataclass(frozen=True)
class FunctionWorker(Worker, Generic[Arguments, Result]):
    """A worker that was made of a function, and can be called as that."""

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Calls the function itself, as if it were not decorated: no policy, no deadline."""
        function = cast("FunctionFactory", self.task).function
        return cast("Result", function(*args, **kwargs))


_STOP = Stop()


def worker(  # noqa: D417, PLR0913 - one for each attribute of Worker, where it is described
    *,
    topic: Topic | Sequence[Topic],
    subpartitions: int = 1,
    name: str = "",
    partitioner: WorkerPartitioner | None = None,
    on_failure: FailurePolicy = _STOP,
    processing_timeout: timedelta = Worker.processing_timeout,
    punctuate_every: timedelta | None = Worker.punctuate_every,
    commit_every: timedelta | None = Worker.commit_every,
    queue_bytes: int = Worker.queue_bytes,
    parallelism: int = Worker.parallelism,
    drain_timeout: timedelta = Worker.drain_timeout,
    revoke_timeout: timedelta = Worker.revoke_timeout,
    config: Mapping[str, Any] | None = None,
    lifespan: Lifespan | None = Worker.lifespan,
    group: str = Worker.group,
    start: Start = Worker.start,
    version: str = Worker.version,
    references: Mapping[str, Topic] | None = None,
    reference_bytes: int = Worker.reference_bytes,
    site: str = Worker.site,
    guarantee: Guarantee = Worker.guarantee,
    state: Any = Worker.state,
    state_bytes: int = Worker.state_bytes,
    state_ttl: timedelta | None = Worker.state_ttl,
    on_timer: Callable[..., Any] | None = None,
    value_deserializer: Deserializer | None = None,
    key_deserializer: Deserializer | None = None,
) -> Callable[[Callable[Arguments, Result]], FunctionWorker[Arguments, Result]]:
    """Makes a function a worker. The function can still be called.

    ::

        @worker(topic=orders, subpartitions=64)
        async def charge(order: Order, record: WorkerRecord, send: Send) -> None:
            receipt = await ask(order.customer, order.price)
            send("receipts", receipt, key=record.key)

    The function takes what it names, in any order: the **first** parameter, if it is none of the
    following, is the event: an instance of the topic's event class, read as pipelines read it, or
    the value's bytes where the topic has no event class. A record whose value is no event meets the
    failure policy as an invalid one. ``record`` is the :class:`WorkerRecord`, ``send`` writes to
    Kafka, ``observer`` ends the record, ``shared`` is what ``lifespan`` gives. Names of
    ``references`` are :class:`References`. Where the worker declares it, ``state`` is the
    :class:`KeyState` of the record's key, ``timers`` its :class:`KeyTimers`, and ``key`` what
    ``key_deserializer`` makes of the key.

    Args:
        topic: a topic, or several.
        subpartitions: lanes of each partition; records of one key stay in order. Short for
            ``partitioner=KeyHash(subpartitions)``.
        name: of the worker; the function's, with hyphens, by default.
        on_timer: called with each :class:`Timer` that is due, in place of a record; takes the timer
            first, and of the above ``state``, ``timers``, ``send``, ``shared`` and references.
        partitioner: as of :class:`Worker`, which describes all further arguments but two.
        value_deserializer: makes of the bytes of a value what the first parameter is given, of
            topics without an event class: :mod:`headrace.workers.tasks.deserializers` says when it
            is called, and what becomes of a record for which it raises.
        key_deserializer: the same of the key, for a parameter ``key``.
    """

    def declare(function: Callable[Arguments, Result]) -> FunctionWorker[Arguments, Result]:
        topics = tuple(topic) if isinstance(topic, list | tuple) else (topic,)
        by_key = OneToOne() if subpartitions == 1 else KeyHash(subpartitions)
        return FunctionWorker(
            name or function.__name__.replace("_", "-"),
            topic,
            FunctionFactory(
                function,
                topics,
                references=_names(references),
                has_state=state is not None,
                on_timer=on_timer,
                value_deserializer=value_deserializer,
                key_deserializer=key_deserializer,
            ),
            partitioner=by_key if partitioner is None else partitioner,
            on_failure=on_failure,
            processing_timeout=processing_timeout,
            punctuate_every=punctuate_every,
            commit_every=commit_every,
            queue_bytes=queue_bytes,
            parallelism=parallelism,
            drain_timeout=drain_timeout,
            revoke_timeout=revoke_timeout,
            config={} if config is None else config,
            lifespan=lifespan,
            group=group,
            start=start,
            version=version,
            references={} if references is None else references,
            reference_bytes=reference_bytes,
            site=site,
            guarantee=guarantee,
            state=state,
            state_bytes=state_bytes,
            state_ttl=state_ttl,
        )

    return declare


def _names(references: Mapping[str, Topic] | None) -> tuple[str, ...]:
    """Returns the names of references; none where they are no mapping, which a check reports."""
    return tuple(references) if isinstance(references, Mapping) else ()
