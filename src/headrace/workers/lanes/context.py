"""What the lanes of an instance share."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.model import TopicPartition
from headrace.runtime.clock import Clock, now_in_ms
from headrace.workers.declaration import Worker
from headrace.workers.lanes.attempt import RecordAttempt
from headrace.workers.lanes.blocked import BlockedLanes
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.tasks.task import Send, WorkerRecord, WorkerTask
from headrace.workers.timing import WorkerTiming


class FailureOutcomes(Protocol):
    """What lanes report of their records and attempts. All on the event loop."""

    def read(self, assigned: Any, offset: int, *, is_new: bool) -> None:
        """Notes that a record of ``assigned`` was read that is this worker's to do.

        Also one that was read, or done, before: it is not new.
        """

    def attempt_failed(self, record: WorkerRecord, error: BaseException) -> None:
        """Logs an attempt that failed; its policy is asked next."""

    def succeeded(self, attempt: RecordAttempt) -> None:
        """Notes that a task did a record."""

    def on_rebalance(self, here: Mapping[TopicPartition, Any]) -> None:
        """Notes that partitions came or went; ``here`` are those of the instance."""

    async def end(self, attempt: RecordAttempt, error: BaseException) -> str:
        """Returns the metric of what became of a record without further attempts, once it is done.

        Raises:
            HeadraceError: if the instance has to end.
        """
        ...


@dataclass(frozen=True)
class LaneContext:
    """What lanes use of their instance. All on the event loop.

    Attributes:
        worker: whose lanes they are.
        make: makes a task.
        threads: for tasks of ordinary functions.
        send: writes to Kafka.
        failures: ends records for which no attempt is left.
        counts: of the instance, by the names of the metrics.
        on_fatal: called with an error that ends the instance.
        clock: the time of day.
        timing: how long lanes wait for their tasks.
    """

    worker: Worker
    make: Callable[[], WorkerTask]
    threads: TaskThreads
    send: Send
    failures: FailureOutcomes
    counts: Counter[str]
    on_fatal: Callable[[BaseException], None]
    clock: Clock = now_in_ms
    timing: WorkerTiming = WorkerTiming()

    @functools.cached_property
    def blocked(self) -> BlockedLanes:
        """The lanes that wait until their first record is due, or accepted."""
        return BlockedLanes(self.clock)
