"""Timers of record keys, by stream time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from headrace.workers.tasks.task import WorkerRecord

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Timer(msgspec.Struct, frozen=True):
    """A timer that is due.

    Attributes:
        key: of the record that set it.
        time: that it was set to, in UTC.
    """

    key: bytes
    time: datetime


class TimerRecord(WorkerRecord, frozen=True):
    """A timer in place of a record, in a lane: with its key, and its time as the timestamp.

    Its value is what a dead letter of it has, which belongs to no record.
    """

    @property
    def timer(self) -> Timer:
        """What a task is given."""
        return Timer(self.key or b"", _EPOCH + self.timestamp_ms * _MILLISECOND)

    def __str__(self) -> str:
        return f"the timer of key {self.key!r} at {self.timer.time.isoformat()}"


class KeyTimers:
    """The timers that are set for the key of the record that is processed.

    A worker calls ``on_timer`` once for each, when the stream time of the partition has reached it.
    What an attempt changes counts when its record is done, and is dropped when it fails. The rules
    are those of :mod:`headrace.workers.state`. To be used while the record is processed, on any
    thread, not after that.

    Args:
        times: for direct calls of a worker's function, as in tests: those that are set.
    """

    def __init__(self, times: Iterable[datetime] = ()) -> None:
        self._times = {_milliseconds(time) for time in times}

    @property
    def times(self) -> tuple[datetime, ...]:
        """The times of the key's timers, the first one first."""
        self._check_open()
        return tuple(_EPOCH + time * _MILLISECOND for time in sorted(self._times))

    def set(self, time: datetime) -> None:
        """Sets a timer to ``time``, rounded up to a millisecond.

        A key may have many timers, and one for each time. A time before the stream time at the
        record becomes that: the timer is due at once.

        Raises:
            InvalidRecordError: if the record has no key.
            ValueError: if the time has no zone, or, in ``on_timer``, is not after the timer's.
            WorkerStateError: if the worker has no ``on_timer``.
        """
        self._check_open()
        self._times.add(self._settable(_milliseconds(time)))

    def delete(self, time: datetime) -> None:
        """Deletes the timer of a time; harmless where there is none.

        Raises:
            InvalidRecordError: if the record has no key.
            ValueError: if the time has no zone.
        """
        self._check_open()
        self._times.discard(_milliseconds(time))

    def clear(self) -> None:
        """Deletes all timers of the key.

        Raises:
            InvalidRecordError: if the record has no key.
        """
        self._check_open()
        self._times.clear()

    def _settable(self, time_ms: int) -> int:
        """Returns the time of a timer that is set to ``time_ms``."""
        return time_ms

    def _check_open(self) -> None:
        """Raises what forbids a use."""


def _milliseconds(time: datetime) -> int:
    if time.tzinfo is None:
        message = f"a timer at {time.isoformat()}, a time without a zone"
        raise ValueError(f"{message}: write datetime(..., tzinfo=UTC)")
    return -((_EPOCH - time) // _MILLISECOND)
