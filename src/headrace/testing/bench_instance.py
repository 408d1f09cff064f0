"""An instance of a worker whose topics are lists: its lanes and policies are the real ones."""

from __future__ import annotations

import asyncio
import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace.kafka.client.clients import producer
from headrace.kafka.group.start_positions import StartPosition
from headrace.kafka.write import record as write
from headrace.model import DeadLetter, TopicPartition
from headrace.runtime.clock import Clock
from headrace.workers.declaration import Worker
from headrace.workers.exactly_once.sender import open_sends
from headrace.workers.failures.failure_log import FailureLog
from headrace.workers.failures.failures import Failures
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.attempt import RecordAttempt, Sends
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.held import CallSends
from headrace.workers.lanes.lane import Lane
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.sender import ProducerRecord, Sender, Sent
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.lanes.timers import LaneTimers
from headrace.workers.lifespan import SharedResources
from headrace.workers.references.table import ReferenceTables
from headrace.workers.states import LaneState
from headrace.workers.tasks.function_task import is_tombstone
from headrace.workers.tasks.record import ConsumedRecord
from headrace.workers.tasks.retry_topics import retry_topics
from headrace.workers.tasks.sent_events import encoding
from headrace.workers.tasks.task import Headers, Send, WorkerRecord, WorkerTask

Result = TypeVar("Result")

# `init` and `close` may wait for something outside the loop, and no record is in process then.
_AWAITED_STATES = frozenset({LaneState.STARTING, LaneState.DRAINING})


class Outcome(enum.StrEnum):
    """What became of a record. ``pending``: it waits, is in process, or between two attempts.

    ``tombstone``: it has no value, and its topic leaves such records out.
    """

    PENDING = "pending"
    PROCESSED = "processed"
    SKIPPED = "skipped"
    DEAD_LETTER = "dead letter"
    TOMBSTONE = "tombstone"


_OUTCOMES = {
    "skipped": Outcome.SKIPPED,
    "dead_letters": Outcome.DEAD_LETTER,
    "retried": Outcome.PENDING,
}


@dataclass
class FedRecord:
    """A record that a bench was given, and what became of it until now.

    Attributes:
        record: as its task sees it at the first attempt.
        outcome: changes while the bench runs.
        errors: what its attempts failed with, in order.
    """

    record: WorkerRecord
    outcome: Outcome = Outcome.PENDING
    errors: list[BaseException] = field(default_factory=list)


@dataclass(frozen=True)
class SentRecord:
    """A record that a task sent. A bench of the worker that reads its topic can be fed with it.

    Attributes:
        topic: it was sent to.
        value: its bytes.
        key: its bytes, or ``None``.
        headers: in their order.
        partition: that the task named; -1: none, so the key decides.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = -1


@dataclass(frozen=True)
class Message:
    """A record with the methods of confluent-kafka's message."""

    at: TopicPartition
    number: int
    content: SentRecord
    timestamp_ms: int

    def topic(self) -> str:
        """Returns the topic's name."""
        return self.at.topic

    def partition(self) -> int:
        """Returns the partition's number."""
        return self.at.partition

    def offset(self) -> int:
        """Returns the offset in the partition."""
        return self.number

    def key(self) -> bytes | None:
        """Returns the key."""
        return self.content.key

    def value(self) -> bytes | None:
        """Returns the value."""
        return self.content.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Returns the headers."""
        return list(self.content.headers)

    def timestamp(self) -> tuple[int, int]:
        """Returns 1 (the producer's time) and milliseconds since 1970."""
        # 1: the producer has set the time, as it does by default.
        return 1, self.timestamp_ms

    def leader_epoch(self) -> None:
        """Returns ``None``: no leader has written the record."""


class BenchInstance:
    """Runs the lanes of a worker. Made on an event loop, and used there.

    Attributes:
        assignments: its partitions.
        counts: by the names of the metrics.
        tasks: every task that was made, in order.
        sent: what tasks sent, without what went to retry topics.
        dead_letters: what the policy wrote.
        failing_topics: by name, the error that a send to it fails with.
        failure: what an instance would have ended with; ``None``: it runs.
        is_waited_for: whatever is pending is assumed to run outside the loop.
    """

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._worker, self._clock = worker, clock
        self._origins = retry_topics(worker)
        self._offsets: defaultdict[TopicPartition, int] = defaultdict(int)
        self._fed: dict[tuple[str, int, int], FedRecord] = {}
        self.counts: Counter[str] = Counter()
        self.tasks: list[WorkerTask] = []
        self.sent: list[SentRecord] = []
        self.dead_letters: list[DeadLetter] = []
        self.failing_topics: dict[str, Exception] = {}
        self.failure: BaseException | None = None
        self.is_waited_for = False
        self._threads = _CountedThreads(worker.parallelism, f"{worker.name}-task")
        send = _ListSender(self._take_sent).send
        if worker.is_exactly_once:
            send = _HoldingListSender(self._hold_sent).send
        sends_events = encoding(send, worker.event_topics)
        failures = _RecordedFailures(
            worker, _ListedDeadLetters(self.dead_letters), send, clock, self._fed_of
        )
        self._shared, self._is_sharing = SharedResources(worker, self._fail), False
        self._references = ReferenceTables(worker)
        make = self._references.given_to(self._shared.given_to(self._make))
        context = LaneContext(
            worker, make, self._threads, sends_events, failures, self.counts, self._fail, clock
        )
        self.assignments = PartitionSet(context)
        if worker.is_exactly_once:
            self.assignments.publish = self._publish
        timers = LaneTimers(context, self.assignments)
        self._timers = [asyncio.ensure_future(run()) for run in timers.loops]
        for timer in self._timers:
            timer.add_done_callback(self._check_timer)

    async def start(self, partitions: Iterable[TopicPartition]) -> None:
        """Enters the worker's lifespan and assigns partitions, which start at offset 0.

        References have what was referred to before.
        """
        for table in self._references.tables.values():
            table.publish()
        self._is_sharing = True
        await self._shared.enter()
        self._is_sharing = False
        starts = [StartPosition(partition, 0, "", "") for partition in partitions]
        self.assignments.assign(self._worker.consumer_group, starts)

    def state(self) -> dict[bytes, Any]:
        """Returns the values of the state, by record key."""
        partitions = (assigned.state for assigned in self.assignments.values())
        return {key: value for kept in partitions if kept for key, value in kept.decoded().items()}

    def refer(self, name: str, key: bytes, value: bytes | None, timestamp_ms: int) -> None:
        """Takes a record of a reference, as its topic would have it."""
        table = self._references.tables[name]
        record = SentRecord(table.topic.name, value, key)
        partition = TopicPartition(table.topic.name, 0)
        message = Message(partition, table.taken, record, timestamp_ms)
        table.take(key, None if value is None else message)

    async def deliver(self, records: Iterable[SentRecord], timestamp_ms: int) -> list[FedRecord]:
        """Puts records into their lanes, as one fetch; returns what becomes of them."""
        return [self._deliver(record, timestamp_ms) for record in records]

    def is_busy(self, has_sockets: bool) -> bool:
        """Whether something outside the loop is awaited."""
        if self._threads.calls:
            return True
        is_at_work = self._is_sharing or any(
            lane.in_process or lane.state in _AWAITED_STATES for lane in self.assignments.lanes
        )
        return is_at_work and (has_sockets or self.is_waited_for)

    async def close(self) -> None:
        """Waits for what is in process, as a stopped instance does, and closes the tasks."""
        await self.assignments.drain(self._worker.drain_timeout.total_seconds())
        for timer in self._timers:
            timer.cancel()
        # For is_busy: leaving may wait for sockets, and no lane is at work any more.
        self._is_sharing = True
        try:
            await self._shared.leave()
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            self._fail(error)
        self._threads.shutdown(wait=False)

    def _make(self) -> WorkerTask:
        task = self._worker.task()
        self.tasks.append(task)
        return task

    def _deliver(self, content: SentRecord, timestamp_ms: int) -> FedRecord:
        partition = TopicPartition(content.topic, max(content.partition, 0))
        message = Message(partition, self._offsets[partition], content, timestamp_ms)
        self._offsets[partition] += 1
        consumed = ConsumedRecord.of(message, self._origins)
        fed = self._fed.setdefault(_position(consumed.record), FedRecord(consumed.record))
        if is_tombstone(self._worker.task, consumed.record):
            fed.outcome = Outcome.TOMBSTONE
        self.assignments.put(consumed)
        return fed

    def _hold_sent(self, record: ProducerRecord, headers: Headers, sent: Sent) -> None:
        """Holds a record with the call that sends it, until that is done, as an instance does."""
        topic, value, key, partition = record
        error, sends = self.failing_topics.get(topic), sent.sends
        if error is None and sends is not None:
            held = write.ProducerRecord(topic, key, value, headers, partition)
            sends.hold(held, write.weight_of(held))
        sent.end(error)

    def _publish(self, _: AssignedPartition, __: Lane, ___: int, sent: CallSends) -> None:
        for record in sent.records:
            if self.assignments.state is not None and record.topic == self.assignments.state.topic:
                continue  # of its state, which is in memory
            place = (record.headers, record.partition)
            self._put(SentRecord(record.topic, record.value, record.key, *place))

    def _put(self, content: SentRecord) -> None:
        if content.topic in self._origins:
            # Later, as from a topic: now, it would enter its lane within the failed attempt.
            asyncio.get_running_loop().call_soon(self._deliver_retry, content)
        else:
            self.sent.append(content)

    def _take_sent(self, record: ProducerRecord, headers: Headers, sent: Sent) -> None:
        topic, value, key, partition = record
        content = SentRecord(topic, value, key, headers, partition)
        error = self.failing_topics.get(topic)
        if error is None:
            self._put(content)
        sent.end(error)

    def _deliver_retry(self, content: SentRecord) -> None:
        """Reads a record from its retry topic; the lane holds it until it is due."""
        partition = TopicPartition(content.topic, 0)
        if partition not in self.assignments:
            group = f"{self._worker.consumer_group}:retry"
            self.assignments.assign(group, [StartPosition(partition, 0, "", "")])
        self._deliver(content, self._clock())

    def _fed_of(self, record: WorkerRecord) -> FedRecord:
        # Timers are not fed.
        return self._fed.setdefault(_position(record), FedRecord(record))

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error

    def _check_timer(self, timer: asyncio.Future[None]) -> None:
        error = None if timer.cancelled() else timer.exception()
        if error is not None:
            self._fail(error)


class _ListSender(Sender):
    """Gives what is sent to ``take`` in place of a producer."""

    def __init__(self, take: Callable[[ProducerRecord, Headers, Sent], None]) -> None:
        super().__init__({})
        self._take = take
        # Has no brokers: it is asked for nothing but whether it would take a record.
        self._client = producer({})

    def enqueue(self, record: ProducerRecord, headers: Headers, sent: Sent) -> None:
        # Raises what it would in a real worker, such as for a value that is too large.
        self._client.produce(*record, headers=list(headers))
        # The record was only checked, so it leaves the queue again.
        self._client.purge(blocking=False)
        self._client.poll(0)
        topic, value, key, partition = record
        in_bytes = tuple((name, _as_bytes(content)) for name, content in headers)
        self._take((topic, _as_bytes(value), _as_bytes(key), partition), in_bytes, sent)


class _HoldingListSender(_ListSender):
    """Sends for a record that is not done, or not at all, as an exactly-once instance does."""

    def _sends(self, topic: str, *, is_here: bool) -> Sends:
        return open_sends(topic, is_here=is_here)


def _as_bytes(content: str | bytes | None) -> bytes | None:
    """Returns what is in the topic of what the client library takes."""
    if content is None:
        return None
    return content.encode() if isinstance(content, str) else bytes(content)


class _ListedDeadLetters:
    """Dead letters in a list, in place of a topic."""

    def __init__(self, letters: list[DeadLetter]) -> None:
        self._letters = letters

    def on_rebalance(self, here: Mapping[TopicPartition, AssignedPartition]) -> None:
        """No other instance writes letters."""

    async def write(self, letter: DeadLetter) -> None:
        self._letters.append(letter)


class _CountedThreads(TaskThreads):
    """Counts the calls whose answers the event loop has not got yet."""

    calls = 0

    async def call(self, name: str, function: Callable[[], Result]) -> Result:
        self.calls += 1
        try:
            return await super().call(name, function)
        finally:
            self.calls -= 1


class _RecordedFailures(Failures):
    """The policy of an instance, which says what became of each record that was fed."""

    def __init__(
        self,
        worker: Worker,
        letters: _ListedDeadLetters,
        send: Send,
        clock: Clock,
        fed_of: Callable[[WorkerRecord], FedRecord],
    ) -> None:
        super().__init__(worker, letters, send, clock)
        self._fed_of = fed_of
        self.log = _RecordedAttempts(worker.name, fed_of)

    def succeeded(self, attempt: RecordAttempt) -> None:
        super().succeeded(attempt)
        self._fed_of(attempt.record).outcome = Outcome.PROCESSED

    async def end(self, attempt: RecordAttempt, error: BaseException) -> str:
        name = await super().end(attempt, error)
        self._fed_of(attempt.record).outcome = _OUTCOMES[name]
        return name


class _RecordedAttempts(FailureLog):
    """The log of failed attempts, which keeps their errors too."""

    def __init__(self, worker: str, fed_of: Callable[[WorkerRecord], FedRecord]) -> None:
        super().__init__(worker)
        self._fed_of = fed_of

    def failed(self, record: WorkerRecord, error: BaseException) -> None:
        super().failed(record, error)
        self._fed_of(record).errors.append(error)


def _position(record: WorkerRecord) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
