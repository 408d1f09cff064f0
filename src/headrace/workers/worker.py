"""The declaration of a worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from headrace.model import Start, Topic
from headrace.workers.partitioner import KeyHash, OneToOne, WorkerPartitioner
from headrace.workers.policy import FailurePolicy, Stop
from headrace.workers.task import RecordStatusObserver, Send, WorkerRecord, WorkerTask

Process: TypeAlias = Callable[..., Any]
"""``f(record)``; it may also take ``observer`` and ``send``, by these names."""

SyncTasks: TypeAlias = Literal["threads", "processes"]


@dataclass(frozen=True)
class Worker:
    """Records of topics, processed one at a time by a task. Declaring one runs nothing.

    Delivery is at least once. Order: records of one subpartition are processed in the order of
    their offsets; see ``on_failure`` for what a failure does to it.

    Attributes:
        name: also the consumer group (``headrace.<name>``).
        topic: a topic, or several.
        task: called without arguments for each subpartition: a :class:`WorkerTask` class, or a
            function that makes one.
        partitioner: divides partitions into subpartitions.
        on_failure: what happens to a record that failed.
        processing_timeout: from where ``process`` is begun until it returns, or its observer is
            told. Waiting for its turn or a thread, being held, and the time between attempts do not
            count. Also of ``init`` and ``punctuate``.
        punctuate_every: interval of ``punctuate``; ``None``: never.
        commit_every: interval of commits. A crash repeats what was done since the last one that
            was answered: while a rebalance waits for a member that was killed, there is none.
        queue_bytes: of records that wait or are in process, over the whole instance. Partitions
            with less than their share go on when it is full, up to twice as much.
        batch_records: most records of a ``process_batch``.
        sync_tasks: where tasks of ordinary functions run. ``processes`` are for work that keeps a
            processor busy.
        parallelism: threads or processes for them.
        drain_timeout: what is in process when an instance stops may take so long.
        revoke_timeout: what is in process of a partition that goes to another instance may take so
            long; meanwhile nothing is read of those that stay. What is not done then begins anew
            in the other instance.
        config: handed to each task's ``init``.
        start: where it begins in a topic that it has committed nothing of: with the earliest
            records, or with those that come from its first start on.
        version: written to dead letters, so that a fix can be told from what it fixed.
    """

    name: str
    topic: Topic | Sequence[Topic]
    task: Callable[[], WorkerTask]
    partitioner: WorkerPartitioner = field(default_factory=OneToOne)
    on_failure: FailurePolicy = field(default_factory=Stop)
    processing_timeout: timedelta = timedelta(minutes=5)
    punctuate_every: timedelta | None = None
    commit_every: timedelta = timedelta(seconds=5)
    queue_bytes: int = 128 * 1024 * 1024
    batch_records: int = 10_000
    sync_tasks: SyncTasks = "threads"
    parallelism: int = 4
    drain_timeout: timedelta = timedelta(seconds=30)
    revoke_timeout: timedelta = timedelta(seconds=2)
    config: Mapping[str, Any] = field(default_factory=dict)
    start: Start = Start.EARLIEST
    version: str = "1"

    @property
    def topics(self) -> tuple[Topic, ...]:
        """The topics, also when there is only one."""
        return (self.topic,) if isinstance(self.topic, Topic) else tuple(self.topic)

    @property
    def consumer_group(self) -> str:
        """Kafka consumer group of all instances."""
        return f"headrace.{self.name}"


class WorkerOptions(TypedDict, total=False):
    """Attributes of :class:`Worker` that :func:`worker` takes by these names."""

    partitioner: WorkerPartitioner
    on_failure: FailurePolicy
    start: Start
    processing_timeout: timedelta
    punctuate_every: timedelta | None
    commit_every: timedelta
    queue_bytes: int
    batch_records: int
    sync_tasks: SyncTasks
    parallelism: int
    drain_timeout: timedelta
    revoke_timeout: timedelta
    config: Mapping[str, Any]
    version: str


class FunctionTask(WorkerTask):
    """A task that is one function without state."""

    def __init__(self, function: Process) -> None:
        wanted = set(inspect.signature(function).parameters)
        self._function = function
        self._wants_send = "send" in wanted
        if "observer" in wanted:
            self.process = self._observed
        elif inspect.iscoroutinefunction(function):
            self.process = self._awaited
        else:
            self.process = self._sync

    async def _awaited(self, record: WorkerRecord) -> None:
        await self._function(record, **self._given())

    async def _observed(self, record: WorkerRecord, observer: RecordStatusObserver) -> None:
        await self._function(record, observer=observer, **self._given())

    def _sync(self, record: WorkerRecord) -> None:
        self._function(record, **self._given())

    def _given(self) -> dict[str, Send]:
        return {"send": self.send} if self._wants_send else {}


def worker(
    *,
    topic: Topic | Sequence[Topic],
    subpartitions: int = 1,
    name: str = "",
    **declared: Unpack[WorkerOptions],
) -> Callable[[Process], Worker]:
    """Makes a function a worker.

    ::

        @worker(topic=clicks, subpartitions=64)
        async def enrich(record, send):
            await send("enriched", await look_up(record.value), key=record.key)

    Args:
        topic: a topic, or several.
        subpartitions: lanes of each partition; records of one key stay in order.
        name: of the worker; the function's, with hyphens, by default.
        declared: further attributes of :class:`Worker`.
    """
    if "partitioner" not in declared and subpartitions != 1:
        declared["partitioner"] = KeyHash(subpartitions)

    def declare(function: Process) -> Worker:
        own = name or function.__name__.replace("_", "-")
        return Worker(own, topic, FunctionFactory(function), **declared)

    return declare


@dataclass(frozen=True)
class FunctionFactory:
    """Makes the tasks of a function."""

    function: Process

    def __call__(self) -> FunctionTask:
        """A task."""
        return FunctionTask(self.function)
