"""A worker on a bench: fed by hand, without Kafka, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import dataclasses
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

import msgspec

from headrace.errors import WorkerStateError
from headrace.events.avro.references import AvroSchemas
from headrace.events.parsing.event_json import event_json
from headrace.events.written import EventWriter, event_writer, written_schema
from headrace.model import (
    Avro,
    DeadLetter,
    EventSchema,
    Protobuf,
    RegisteredSchema,
    SchemaId,
    Topic,
    TopicPartition,
    value_at,
)
from headrace.testing.bench_instance import BenchInstance, FedRecord, SentRecord
from headrace.testing.stepped_loop import SteppedLoop
from headrace.workers.declaration import Worker
from headrace.workers.references.lookups import EventLookups
from headrace.workers.tasks.function_task import FunctionFactory
from headrace.workers.tasks.references import References, record_key
from headrace.workers.tasks.task import Headers, WorkerTask

_START = datetime(2026, 1, 1, tzinfo=UTC)
_PATIENCE = timedelta(seconds=5)
_LIFESPAN_SECONDS = 60.0


class WorkerBench:
    """Runs a worker as an instance does, but for Kafka.

    Lanes, partitioner, failure policy, dead-letter limit, deadlines and ``accept`` are the real
    ones. Topics are lists: what the task sends is confirmed at once, and stands in :attr:`sent`.
    Nothing is committed.

    The clock stands still until :meth:`advance` moves it: ``asyncio.sleep``, timeouts and
    ``loop.time()`` of a coroutine follow it, as do delays of policies, deadlines and
    ``punctuate``. ``time.time()`` does not. The local time is that of the test; commands make it
    UTC.

    Each call returns when nothing more can happen before the clock moves. It waits in real time for
    threads and open sockets, for ``patience`` without an event at most. Use it from an ordinary
    function, not from a coroutine, and as a context manager: at its end the worker is drained and
    its tasks are closed.

    Args:
        worker: a declared worker, or what makes its tasks, such as a class.
        config: in place of the worker's own.
        references: what the worker's references have at the start, by name: see :meth:`refer`.
        topics: those that the task sends events to as objects, beside those of the worker; a
            running worker has all of its project.
        partitions: of each topic, all assigned at once.
        now: what the clock shows at the start, with a zone.
        patience: longest real time to wait for something outside the event loop.

    Raises:
        ValueError: if ``now`` has no zone.
        WorkerError: if an instance would end, such as in ``init``. So does each method.

    Attributes:
        sent: records that tasks sent, in order; of a worker that is exactly once, when the record
            that they were sent for is done.
        dead_letters: records that the policy made dead letters.
        tasks: the tasks that were made, one for each subpartition.
        counts: by the names of the metrics, such as ``processed`` and ``retried``.
        failing_topics: assign an error to a topic's name, and sends to it fail with that.
    """

    def __init__(  # noqa: PLR0913 - each with a default
        self,
        worker: Worker | Callable[[], WorkerTask],
        *,
        config: Mapping[str, Any] | None = None,
        references: Mapping[str, Mapping[Any, object]] | None = None,
        topics: Sequence[Topic] = (),
        partitions: int = 1,
        now: datetime = _START,
        patience: timedelta = _PATIENCE,
    ) -> None:
        if now.tzinfo is None:
            message = f"now is {now.isoformat()}, a time without a zone"
            raise ValueError(f"{message}: write datetime(..., tzinfo=UTC)")
        if not isinstance(worker, Worker):
            worker = Worker("bench", Topic("bench"), worker)
        if config is not None:
            worker = dataclasses.replace(worker, config=config)
        worker = dataclasses.replace(worker, event_topics=(*worker.topics, *topics))
        self._topics = {topic.name: topic for topic in worker.topics}
        self._writers, worker = _with_writers(worker)
        loop = self._loop = SteppedLoop(patience.total_seconds())
        self._start = now
        # From the loop's clock: the time of day and deadlines can't move apart.
        start_ms = round(now.timestamp() * 1000)
        instance = self._instance = loop.complete(
            _made(worker, lambda: start_ms + round(loop.moved * 1000))
        )
        loop.is_busy = instance.is_busy
        seconds = worker.drain_timeout.total_seconds() + _LIFESPAN_SECONDS
        # A bench that a test drops, such as after a failed assertion, closes its tasks and its loop
        # too: else their warnings would come up in another test.
        self._finalizer = weakref.finalize(self, _close, loop, instance, seconds)
        self.sent: list[SentRecord] = instance.sent
        self.dead_letters: list[DeadLetter] = instance.dead_letters
        self.tasks: list[WorkerTask] = instance.tasks
        self.counts: Mapping[str, int] = instance.counts
        self.failing_topics: dict[str, Exception] = instance.failing_topics
        self._references = worker.references
        numbers = range(partitions)
        assigned = [TopicPartition(name, number) for name in self._topics for number in numbers]
        try:
            for name, values in (references or {}).items():
                self._refer(name, values)
            loop.complete(instance.start(assigned), _LIFESPAN_SECONDS)
        except BaseException:
            self._finalizer()
            raise
        self._settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What a task's close raises would hide the error of the test.
        if error is None:
            self.close()
        else:
            self._finalizer()

    @property
    def now(self) -> datetime:
        """What the clock shows."""
        return self._start + timedelta(seconds=self._loop.moved)

    def feed(
        self,
        *values: object,
        key: bytes | str | None = None,
        headers: Headers = (),
        topic: str = "",
        partition: int = 0,
    ) -> list[FedRecord]:
        """Gives the worker records, together as one fetch; returns what becomes of each.

        Args:
            values: bytes, text, ``None`` (a tombstone), or a :class:`SentRecord` of another bench
                with its own key and headers. Anything else is written as JSON: a dict, an instance
                of the event class, a dataclass.
                JSON for a topic of another format is written in that, with the schema of the event
                class.
            key: of each record; by default the field ``Topic.key`` of a dict or dataclass.
            headers: of each record.
            topic: one that the worker reads; its first by default.
            partition: one that is assigned.

        Raises:
            ValueError: if the worker does not read the topic or has not the partition.
            InvalidRecordError: if JSON can't hold an event as it is, such as a time without a zone
                in an ``EpochMillis`` field.
            WorkerError: if an instance would end at a record, such as by the policy ``Stop``.
        """
        self._check_open()
        encoded_key = key.encode() if isinstance(key, str) else key
        records = [
            value
            if isinstance(value, SentRecord)
            else self._record(value, topic, encoded_key, headers)
            for value in values
        ]
        placed = [self._placed(record, partition) for record in records]
        fed = self._loop.complete(self._instance.deliver(placed, self._now_ms))
        self._settle()
        return fed

    def refer(self, name: str, values: Mapping[Any, object]) -> None:
        """Gives a reference newer values, as its topic would get them; ``None`` deletes a key.

        Args:
            name: of the reference, as the worker declares it.
            values: by key, which is bytes, text or a whole number. Values are written as those of
                :meth:`feed` are, and read by the topic's event class.

        Raises:
            ValueError: if the worker has no such reference.
            InvalidRecordError: as of :meth:`feed`.
        """
        self._check_open()
        self._refer(name, values)
        self._settle()

    @property
    def state(self) -> References[Any]:
        """The values of the worker's state, of records that are done, by record key.

        ``bench.state["ann"]``, as those of :class:`~headrace.References`; without the keys that
        have no value.
        """
        return References(self._instance.state())

    def _refer(self, name: str, values: Mapping[Any, object]) -> None:
        if name not in self._references:
            names = ", ".join(self._references) or "none"
            raise ValueError(f"the worker has no reference {name!r}, only {names}")
        topic = self._references[name]
        for key, value in values.items():
            encoded = self._in_format(topic.name, value, _encoded(value, topic.schema))
            self._instance.refer(name, record_key(key), encoded, self._now_ms)

    def advance(self, by: timedelta) -> None:
        """Moves the clock. Everything that falls due until then happens, each at its own time.

        Deadlines are looked at once a second: move the clock a second beyond one.
        """
        self._check_open()
        self._loop.advance(by.total_seconds())
        self._raise_failure()

    def wait(self) -> None:
        """Waits for what the bench can't see, such as a thread of yours that has an observer.

        Returns when nothing is in process, or after ``patience`` without an event.
        """
        self._check_open()
        self._instance.is_waited_for = True
        self._loop.advance()
        self._instance.is_waited_for = False
        self._raise_failure()

    def committable(self, topic: str = "", partition: int = 0) -> int:
        """Returns the offset that could be committed: of the first record that is not done."""
        name = topic or next(iter(self._topics))
        return self._instance.assignments[TopicPartition(name, partition)].committable

    def close(self) -> None:
        """Drains the worker and closes its tasks, once.

        Raises:
            Exception: if a task's ``close`` failed.
        """
        has_failed = self._instance.failure is not None
        self._finalizer()
        if not has_failed and self._instance.failure is not None:
            raise self._instance.failure

    @property
    def _now_ms(self) -> int:
        return round(self.now.timestamp() * 1000)

    def _settle(self) -> None:
        self._loop.advance()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._instance.failure is not None:
            self._finalizer()
            raise self._instance.failure

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            ended = "was closed" if self._instance.failure is None else "failed"
            raise WorkerStateError(f"the bench {ended}: make another one")

    def _record(self, value: object, topic: str, key: bytes | None, headers: Headers) -> SentRecord:
        name = topic or next(iter(self._topics))
        declared = self._topics.get(name)
        encoded = _encoded(value, None if declared is None else declared.schema)
        document = encoded or b"{}"
        encoded = self._in_format(name, value, encoded)
        path = None if declared is None else declared.key
        if key is None and path is not None and not isinstance(value, bytes | str | None):
            own = value_at(msgspec.json.decode(document), path)
            key = None if own is None else str(own).encode()
        return SentRecord(name, encoded, key, headers)

    def _in_format(self, topic: str, value: object, document: bytes | None) -> bytes | None:
        """Returns a document, which is ``value`` as JSON, in the format of a topic."""
        if document is None or topic not in self._writers or isinstance(value, bytes):
            return document
        return self._writers[topic](document)

    def _placed(self, record: SentRecord, partition: int) -> SentRecord:
        if record.topic not in self._topics:
            names = ", ".join(self._topics)
            raise ValueError(f"the worker does not read {record.topic!r}, only {names}")
        number = partition if record.partition < 0 else record.partition
        if TopicPartition(record.topic, number) not in self._instance.assignments:
            message = f"the bench has no partition {number} of {record.topic!r}"
            raise ValueError(f"{message}: make it with WorkerBench(..., partitions={number + 1})")
        return dataclasses.replace(record, partition=number)


def _encoded(value: object, schema: EventSchema | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return msgspec.json.encode(value) if schema is None else event_json(schema, value)


def _with_writers(worker: Worker) -> tuple[dict[str, EventWriter], Worker]:
    """Returns what writes events of registered formats, by topic, and the worker that reads them.

    The place of a topic among those of the worker is the id of its schema.
    """
    topics = (*worker.topics, *worker.references.values())
    schemas: dict[SchemaId, RegisteredSchema] = {
        number: dataclasses.replace(schema, id=number)
        for number, topic in enumerate(topics)
        if (schema := written_schema(topic)) is not None
    }
    writers = {}
    for number, topic in enumerate(topics):
        schema = schemas.get(number)
        is_whole = isinstance(topic.record_format, Protobuf)
        writer = event_writer(topic, schema if is_whole or schema is None else schema.id)
        if writer is not None:
            writers[topic.name] = writer
    if not writers:
        return writers, worker
    avro = {n: schema for n, schema in schemas.items() if schema.kind == Avro.registry_kind}
    lookups = EventLookups(AvroSchemas(avro.get), schemas.get)
    worker = dataclasses.replace(worker, lookups=lookups)
    if isinstance(worker.task, FunctionFactory):
        task = dataclasses.replace(worker.task, schemas=lookups.avro, protobuf=lookups.protobuf)
        worker = dataclasses.replace(worker, task=task)
    return writers, worker


async def _made(worker: Worker, clock: Callable[[], int]) -> BenchInstance:
    return BenchInstance(worker, clock)


def _close(loop: SteppedLoop, instance: BenchInstance, seconds: float) -> None:
    loop.complete(instance.close(), seconds)
    # Coroutines that the user's code has started and does not await.
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.advance()
    loop.close()
