"""The state of the partitions of an instance, in memory. On the event loop, but for lookups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRecordError, StateTooLargeError, WorkerStateError
from headrace.kafka.write.record import ProducerRecord
from headrace.model.durations import milliseconds
from headrace.workers.state.changelog import RESERVED, TIMERS, StoredValues, position_record
from headrace.workers.state.expiry import Expiry, set_at_headers, set_at_of
from headrace.workers.state.stream_time import NEVER, StreamTime
from headrace.workers.state.timers import (
    AttemptTimers,
    LaneQueues,
    decoded_times,
    encoded_times,
)
from headrace.workers.tasks.state import KeyState, StateForm
from headrace.workers.tasks.task import takes_timers
from headrace.workers.tasks.timers import TimerRecord

if TYPE_CHECKING:
    from headrace.kafka.group.commits import OffsetCommit
    from headrace.workers.declaration import Worker
    from headrace.workers.tasks.task import Headers, WorkerRecord, WorkerTask


class WorkerState:
    """The state of an instance.

    Args:
        worker: that declares it.
        on_fatal: called with the error when there is more than the worker allows.

    Attributes:
        topic: that has it.
        form: of the values.
        ttl_ms: after which a value is over that no record has set; ``None``: never.
        keys: how many have a value.
        bytes: of keys and values.
    """

    def __init__(self, worker: Worker, on_fatal: Callable[[BaseException], None]) -> None:
        self.topic, self.form = worker.state_topic, StateForm(worker.state)
        ttl = worker.state_ttl
        self.ttl_ms = None if ttl is None else milliseconds(ttl)
        self.keys = self.bytes = 0
        self._worker, self._on_fatal = worker, on_fatal

    def grow(self, keys: int, size: int) -> None:
        """Counts keys and bytes that came, or went."""
        self.keys += keys
        self.bytes += size
        if size > 0 and self.bytes > self._worker.state_bytes:
            limit = self._worker.state_bytes
            self._on_fatal(StateTooLargeError(self._worker.name, self.topic, self.bytes, limit))


class PartitionState:
    """The values of one partition, by record key, as JSON.

    Attributes:
        number: of the partition.
        values: of records that are done.
        stream_time: of the partition.
        timers: of the keys of records that are done.
    """

    def __init__(self, whole: WorkerState, number: int) -> None:
        self.number, self.values = number, dict[bytes, bytes]()
        self.stream_time = StreamTime()
        self.timers = LaneQueues(1, lambda _: 0)
        self._whole, self._bytes = whole, 0
        self._expiry = None if whole.ttl_ms is None else Expiry(whole.ttl_ms)

    @property
    def topic(self) -> str:
        """The topic that has it."""
        return self._whole.topic

    def decoded(self) -> dict[bytes, Any]:
        """Returns the values by key, as a record would see them that comes next."""
        decode, now = self._whole.form.decode, self.stream_time.latest
        return {
            key: decode(value) for key, value in self.values.items() if not self._is_over(key, now)
        }

    def of(self, record: WorkerRecord) -> AttemptState:
        """Returns what an attempt at ``record`` sees and changes."""
        value = None if record.key is None else self.values.get(record.key)
        if record.key is not None and self._is_over(record.key, self._time_at(record)):
            value = None
        return AttemptState(record.key, value, self._whole.form)

    def restore(self, stored: StoredValues) -> None:
        """Begins with what is stored."""
        if stored.position is not None:
            self.stream_time.restore(stored.position.stream_time_ms)
        for key, value in stored.values.items():
            self._take(key, value, stored.set_at.get(key))
        for key, times in stored.timers.items():
            self._take_timers(key, decoded_times(times))

    def divide(self, count: int, lane_of: Callable[[bytes], int]) -> None:
        """Names the lanes of its timers, before there is one."""
        self.timers = LaneQueues(count, lane_of)

    def read(self, offset: int, timestamp_ms: int) -> None:
        """Notes that a record of the partition was read, whatever becomes of it."""
        self.stream_time.read(offset, timestamp_ms)

    def due_lanes(self) -> list[int]:
        """Returns the lanes that have a timer whose time has come."""
        return self.timers.due_lanes(self.stream_time.latest)

    def due_timer(self, topic: str, lane: int, offset: int | None) -> TimerRecord | None:
        """Returns the next timer of a lane that is due.

        Args:
            topic: that is read.
            lane: whose records before ``offset`` are done.
            offset: of its next record; ``None``: it has none.
        """
        time = self.stream_time
        due = self.timers.due(lane, time.latest if offset is None else time.at(offset))
        if due is None:
            return None
        at, key = due
        return TimerRecord(topic, self.number, -1, key, b'{"timer_ms":%d}' % at, (), at)

    def without(self, timer: TimerRecord) -> ProducerRecord:
        """Returns what removes a timer that no attempt has dealt with."""
        key = timer.key or b""
        times = tuple(at for at in self.timers.times.get(key, ()) if at != timer.timestamp_ms)
        return ProducerRecord(self.topic, TIMERS + key, encoded_times(times), (), self.number)

    def apply(self, records: Iterable[ProducerRecord]) -> None:
        """Takes the changes among what was sent for a record that is done."""
        for record in records:
            if record.topic != self.topic or record.key is None:
                continue
            if record.key.startswith(TIMERS):
                self._take_timers(record.key[len(TIMERS) :], decoded_times(record.value))
            else:
                self._take(record.key, record.value, set_at_of(record.headers))

    def over(self, offset: int, max_bytes: int) -> tuple[bytes, ...]:
        """Returns keys of values that are over for the record at ``offset`` and all after it.

        The oldest first, until the keys have ``max_bytes``.
        """
        if self._expiry is None:
            return ()
        now = self.stream_time.before(offset)
        # A timer that was due before it is over sees it.
        over = self._expiry.over(now, max_bytes)
        return tuple(key for key in over if not self.timers.has_due(key, now))

    def records_of(self, commit: OffsetCommit, over: Iterable[bytes]) -> tuple[ProducerRecord, ...]:
        """Returns what a transaction writes beside changes: deletions, and its position."""
        deleted = (ProducerRecord(self.topic, key, None, (), self.number) for key in over)
        stream_time_ms = self.stream_time.before(commit.offset)
        return *deleted, position_record(self.topic, commit, stream_time_ms)

    def release(self, offset: int, over: Iterable[bytes]) -> bool:
        """Forgets values whose deletion is written; returns whether more are over.

        One that a record at ``offset`` or later has set meanwhile stays.
        """
        now = self.stream_time.before(offset)
        for key in over:
            if self._is_over(key, now):
                self._take(key, None)
        self.stream_time.forget(offset)
        return bool(self.over(offset, 1))

    def drop(self) -> None:
        """Forgets all values: another instance has the partition."""
        self._whole.grow(-len(self.values), -self._bytes)
        self.values, self._bytes = {}, 0
        if self._whole.ttl_ms is not None:
            self._expiry = Expiry(self._whole.ttl_ms)
        for key in list(self.timers.times):
            self.timers.set(key, ())

    def kept_by(
        self, task: WorkerTask, process: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        """Returns a method of a task, which is given the state and sends its change at the end.

        Within the call, so that a change that the topic does not take fails the attempt.
        """
        is_taken = takes_timers(task)

        async def call(record: WorkerRecord) -> None:
            task.state = state = self.of(record)
            task.timers = timers = self._timers_of(record, state.check_open, is_taken=is_taken)
            try:
                await process(record)
            finally:
                is_changed = state.end()
            key, number = record.key, self.number
            if is_changed:
                headers = self._headers(record) if state.encoded is not None else ()
                task.send(self.topic, state.encoded, key=key, headers=headers, partition=number)
            if timers.is_changed and key is not None:
                task.send(self.topic, timers.encoded, key=TIMERS + key, partition=number)

        return call

    def _headers(self, record: WorkerRecord) -> Headers:
        """Returns those of a value that ``record`` has set."""
        if self._expiry is None:
            return ()
        return set_at_headers(self._time_at(record))

    def _time_at(self, record: WorkerRecord) -> int:
        """Returns the stream time at a record, or that to which a timer was set."""
        is_timer = isinstance(record, TimerRecord)
        return record.timestamp_ms if is_timer else self.stream_time.at(record.offset)

    def _timers_of(
        self, record: WorkerRecord, check_open: Callable[[], None], *, is_taken: bool
    ) -> AttemptTimers:
        times = () if record.key is None else self.timers.times.get(record.key, ())
        fired = record if isinstance(record, TimerRecord) else None
        return AttemptTimers(times, self._time_at(record), fired, check_open, is_taken=is_taken)

    def _take_timers(self, key: bytes, times: tuple[int, ...]) -> None:
        former = self.timers.times.get(key, ())
        self.timers.set(key, times)
        size = _timer_bytes(key, times) - _timer_bytes(key, former)
        self._bytes += size
        self._whole.grow(0, size)

    def _is_over(self, key: bytes, now_ms: int) -> bool:
        return self._expiry is not None and self._expiry.is_over(key, now_ms)

    def _take(self, key: bytes, value: bytes | None, set_at: int | None = None) -> None:
        former = self.values.pop(key, None)
        before = 0 if former is None else len(key) + len(former)
        after = 0 if value is None else len(key) + len(value)
        if value is not None:
            self.values[key] = value
        if self._expiry is not None and value is not None:
            self._expiry.set(key, NEVER if set_at is None else set_at)
        elif self._expiry is not None:
            self._expiry.forget(key)
        self._bytes += after - before
        self._whole.grow((value is not None) - (former is not None), after - before)


def _timer_bytes(key: bytes, times: tuple[int, ...]) -> int:
    encoded = encoded_times(times)
    return 0 if encoded is None else len(TIMERS) + len(key) + len(encoded)


class AttemptState(KeyState[Any]):
    """The state of a record's key during one attempt. On the thread of the task.

    Attributes:
        encoded: the value as JSON; ``None``: there is none.
    """

    def __init__(self, key: bytes | None, encoded: bytes | None, form: StateForm) -> None:
        self.encoded = encoded
        self._key, self._form = key, form
        self._is_changed = self._has_ended = False

    def get(self, default: Any = None) -> Any:
        """Returns the value, or ``default``."""
        self.check_open()
        return default if self.encoded is None else self._form.decode(self.encoded)

    def set(self, value: Any) -> None:
        """Keeps another value."""
        if value is None:
            raise TypeError("None is no state: state.delete() keeps no value")
        encoded = self._form.encode(value)
        self.check_open()
        self.encoded, self._is_changed = encoded, True

    def delete(self) -> None:
        """Keeps no value."""
        self.check_open()
        self._is_changed = self._is_changed or self.encoded is not None
        self.encoded = None

    def end(self) -> bool:
        """Allows no use from now on; returns whether something was changed."""
        self._has_ended = True
        return self._is_changed

    def check_open(self) -> None:
        """Checks that it can be used.

        Raises:
            WorkerStateError: if the record is done or has failed.
            InvalidRecordError: if the record has no key of its own.
        """
        if self._has_ended:
            raise WorkerStateError(
                "the state of a record was used after the record was done or had failed"
            )
        if self._key is None:
            raise InvalidRecordError("no-key", "a record without a key has no state")
        if self._key.startswith(RESERVED):
            raise InvalidRecordError("reserved-key", f"keys with {RESERVED!r} are headrace's own")
