"""What a worker does with records: the interface a user implements.

One task serves one subpartition of one partition, from the moment the partition is assigned to
this instance until it is revoked. Its methods are never called at the same time:

========================  ======================================================================
``init``                  once, before everything else
``accept``                on the event loop, before each attempt; repeated after it returned False
``process``               once for a record and attempt, in the order of the offsets
``process_batch``         instead of both, for tasks that define it
``on_timer``              once for a timer and attempt, by stream time, where there is a state
``punctuate``             every ``punctuate_every``, also while a record is held
``close``                 once, also after a failure; not after ``kill -9``
========================  ======================================================================

A coroutine function runs on the event loop: it must not block. An ordinary function runs on a
thread.

A crash repeats every record that was not done, and those done since the last commit which its
metadata could not hold; so ``process`` may see a record again, in the same order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from headrace.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.workers.tasks.references import References
    from headrace.workers.tasks.state import KeyState
    from headrace.workers.tasks.timers import KeyTimers, Timer

Headers = tuple[tuple[str, bytes | None], ...]

_RECORD_OVERHEAD_BYTES = 200


class WorkerSubpartition(msgspec.Struct, frozen=True, order=True):
    """A lane of a partition: ``index`` is what the partitioner says of its records."""

    topic: str
    partition: int
    index: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}].{self.index}"


class WorkerRecord(msgspec.Struct, frozen=True):
    """One record of a topic.

    Attributes:
        topic: where it is.
        partition: of the topic.
        offset: in the partition.
        key: its bytes, or ``None``.
        value: its bytes; ``None`` deletes the key in a compacted topic.
        headers: in their order; a name may repeat.
        timestamp_ms: milliseconds since 1970, -1 for none.
        attempt: 1 at first; earlier ones failed.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = -1
    attempt: int = 1

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record is in."""
        return TopicPartition(self.topic, self.partition)

    @property
    def weight(self) -> int:
        """Bytes that it takes while it waits, about."""
        size = _RECORD_OVERHEAD_BYTES + len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += len(name) + len(value or b"")
        return size

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


class RecordStatusObserver(Protocol):
    """Says what became of a record. Its methods may be called from any thread, once.

    After the partition was revoked, a call does nothing: another instance has the record.
    """

    def on_success(self) -> None:
        """The record is done."""

    def on_failure(self, error: BaseException) -> None:
        """The record failed: the worker's policy decides."""


class Send(Protocol):
    """Writes a record to a topic, for the record that is being processed.

    That one is not done before all in-sync replicas have what was sent for it; the next one of its
    subpartition does not wait for that. To wait for it earlier, await the result, which raises what
    the broker answered.
    """

    def __call__(
        self,
        topic: str,
        value: Any,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = -1,
    ) -> Awaitable[None]:
        """Takes effect at once; the key decides where ``partition`` is -1.

        The value is bytes, a text, or None, which deletes the key in a compacted topic; or an event
        of a topic of the project with an event class and the format ``Json()``: an instance of the
        class, or any object or mapping with its fields, as :class:`headrace.EventProducer` takes
        it. It is written as JSON, and has the key that the topic declares unless ``key`` is there.

        Of a topic of the project that declares ``ByAccount(lead=...)``, account and event time
        decide, as with `headrace ingest`: see docs/reference/partitioning.md.

        Raises:
            SpreadsUnknownError: if it is not known which spreads count for the event.
            RecordRejectedError: if such a topic's record has no account or event time.
            EventRejectedError: if an event does not fit its topic.
            TypeError: if nothing says how the value is written.
        """


class WorkerTask:
    """Processes the records of one subpartition. See the top of this module for when and how often.

    Each method may be a coroutine function or an ordinary one.

    Define :meth:`process` in one of two forms. ``process(self, record)``: the record is done when
    it returns, and failed when it raises; the next one waits for it. ``process(self, record,
    observer)``: the record is done when the observer gets its end, and the next one follows as soon
    as the method returns, so that many are in flight.

    Attributes:
        send: writes to Kafka; there from ``init`` on.
        shared: what the worker's ``lifespan`` gives; there from ``init`` on, ``None`` without one.
        references: by name, each as it is at the moment when it is looked up here: what was got
            does not change. There from ``init`` on.
        state: of the key of the record in ``process``, where the worker keeps a state.
        timers: of that key. In ``on_timer`` both are of the timer's key.
    """

    send: Send
    shared: Any
    references: Mapping[str, References[Any]]
    state: KeyState[Any]
    timers: KeyTimers

    def init(
        self, subpartition: WorkerSubpartition, config: Mapping[str, Any]
    ) -> Awaitable[None] | None:
        """Prepares the task. ``config`` is the worker's, as it was declared."""

    def accept(self, record: WorkerRecord) -> bool:  # noqa: ARG002 - for those who override it
        """``False`` holds this record, and with it only this subpartition.

        Called again when another record of this instance arrives or is done, after ``punctuate``,
        and once a second. A held record does not time out. Must be quick. What it raises is a
        failed attempt.
        """
        return True

    if TYPE_CHECKING:
        process: Callable[..., Any]
        """Processes a record, in one of two forms. Define this or ``process_batch``."""
    else:

        def process(self, record: WorkerRecord) -> None:
            raise NotImplementedError

    def on_timer(self, timer: Timer) -> Awaitable[None] | None:
        """Does what is due at a timer that was set for a key; to be defined with ``timers``.

        Called once for each timer, in the order of their times, between records of its key: before
        the first one at which the stream time of the partition has reached it. What it sends, sets
        and deletes is in one transaction with the removal of the timer. What it raises meets the
        policy, as that of ``process``: an attempt follows, or the timer is removed without it.
        """
        raise NotImplementedError(f"on_timer of {timer}")

    def punctuate(self, now: datetime) -> Awaitable[None] | None:
        """Does what is due at intervals, with or without records. ``now`` is in UTC."""

    def close(self) -> Awaitable[None] | None:
        """Releases what ``init`` acquired. No record is in process any more."""


def takes_timers(task: WorkerTask) -> bool:
    """Returns whether a task has ``on_timer``."""
    return getattr(task.on_timer, "__func__", None) is not WorkerTask.on_timer


class BatchWorkerTask(WorkerTask):
    """Processes many records of one subpartition at once, as Arrow.

    ``process_batch`` gets what waits, up to the worker's ``batch_records``, in the order of the
    offsets. Columns: ``offset`` int64, ``timestamp`` timestamp[ms, UTC], ``key`` binary, ``value``
    binary. All records are done when it returns. When it raises, each record is tried alone, so
    that only the bad ones meet the failure policy.
    """

    def process_batch(self, records: pa.RecordBatch) -> Awaitable[None] | None:
        """Processes records; to be defined."""
        raise NotImplementedError


def arrow_batch(records: Sequence[WorkerRecord]) -> pa.RecordBatch:
    """``records`` as :class:`BatchWorkerTask` gets them."""
    import pyarrow as pa

    columns = {
        "offset": pa.array([record.offset for record in records], pa.int64()),
        "timestamp": pa.array(
            [record.timestamp_ms if record.timestamp_ms >= 0 else None for record in records],
            pa.timestamp("ms", "UTC"),
        ),
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)
