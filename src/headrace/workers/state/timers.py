"""The timers of a partition, by lane, and those of a key during one attempt."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import msgspec

from headrace.errors import WorkerStateError
from headrace.workers.tasks.timers import KeyTimers, TimerRecord

_TIMES = msgspec.json.Decoder(tuple[int, ...])
_SPARE_ENTRIES = 64


def encoded_times(times: tuple[int, ...]) -> bytes | None:
    """Returns the timers of a key as the changelog has them; ``None``: there are none."""
    return msgspec.json.encode(times) if times else None


def decoded_times(encoded: bytes | None) -> tuple[int, ...]:
    """Returns the timers of a key, milliseconds since 1970.

    Raises:
        msgspec.DecodeError: if they are no list of whole numbers.
    """
    return () if encoded is None else _TIMES.decode(encoded)


class LaneQueues:
    """Which timer of a lane is next, in the order of their times.

    Args:
        count: of lanes.
        lane_of: returns the lane of a key.

    Attributes:
        times: of the timers of each key, ascending.
    """

    def __init__(self, count: int, lane_of: Callable[[bytes], int]) -> None:
        self.times: dict[bytes, tuple[int, ...]] = {}
        self._lane_of = lane_of
        self._queues: list[list[tuple[int, bytes]]] = [[] for _ in range(count)]
        self._live = [0] * count
        self._earliest = math.inf  # no timer is due before

    def set(self, key: bytes, times: tuple[int, ...]) -> None:
        """Replaces the timers of a key."""
        former = self.times.pop(key, ())
        if times:
            self.times[key] = times
        lane = self._lane_of(key)
        queue = self._queues[lane]
        for time in set(times).difference(former):
            heapq.heappush(queue, (time, key))
            self._earliest = min(self._earliest, time)
        self._live[lane] += len(times) - len(former)
        # A timer that is moved with each record leaves an entry behind each time.
        if len(queue) > 2 * self._live[lane] + _SPARE_ENTRIES:
            queue[:] = sorted({entry for entry in queue if self._is_set(entry)})

    def due(self, lane: int, now_ms: int) -> tuple[int, bytes] | None:
        """Returns time and key of the next timer of a lane, if its time has come."""
        head = self._head(lane)
        return head if head is not None and head[0] <= now_ms else None

    def due_lanes(self, now_ms: int) -> list[int]:
        """Returns the lanes that have a timer whose time has come."""
        if now_ms < self._earliest:
            return []
        heads = [self._head(lane) for lane in range(len(self._queues))]
        self._earliest = min((head[0] for head in heads if head), default=math.inf)
        return [lane for lane, head in enumerate(heads) if head and head[0] <= now_ms]

    def has_due(self, key: bytes, now_ms: int) -> bool:
        """Returns whether a key has a timer whose time has come."""
        times = self.times.get(key)
        return times is not None and times[0] <= now_ms

    def _head(self, lane: int) -> tuple[int, bytes] | None:
        queue = self._queues[lane]
        while queue and not self._is_set(queue[0]):
            heapq.heappop(queue)
        return queue[0] if queue else None

    def _is_set(self, entry: tuple[int, bytes]) -> bool:
        time, key = entry
        return time in self.times.get(key, ())


class AttemptTimers(KeyTimers):
    """The timers of a record's key during one attempt. On the thread of the task.

    Args:
        times: that are set.
        now_ms: the stream time at the record, or the time of the timer that is called.
        fired: that timer, which is removed; ``None``: a record is processed.
        is_taken: whether the task has ``on_timer``.
        check_open: raises what forbids a use.
    """

    def __init__(
        self,
        times: tuple[int, ...],
        now_ms: int,
        fired: TimerRecord | None,
        check_open: Callable[[], None],
        *,
        is_taken: bool,
    ) -> None:
        super().__init__()
        self._before = times
        self._times = set(times)
        if fired is not None:
            self._times.discard(fired.timestamp_ms)
        self._now_ms, self._fired = now_ms, fired
        self._is_taken, self._may_use = is_taken, check_open

    @property
    def is_changed(self) -> bool:
        """Whether the key has other timers than before."""
        return tuple(sorted(self._times)) != self._before

    @property
    def encoded(self) -> bytes | None:
        """The timers as the changelog has them."""
        return encoded_times(tuple(sorted(self._times)))

    def _settable(self, time_ms: int) -> int:
        if self._fired is not None and time_ms <= self._now_ms:
            raise ValueError(f"{self._fired} sets one that is not later: it would never end")
        return max(time_ms, self._now_ms)

    def _check_open(self) -> None:
        if not self._is_taken:
            raise WorkerStateError("timers are used, and the worker has no on_timer")
        self._may_use()
