"""Dead letters of an instance: those that gather during one write go together in the next."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headrace.errors import BrokerUnreachableError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.dead_letters.letters import Position
from headrace.kafka.dead_letters.writer import DeadLetterWriter
from headrace.kafka.group.groups import first_timestamps
from headrace.model import DeadLetter, TopicPartition
from headrace.runtime.clock import now_in_ms
from headrace.workers.declaration import Worker
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.tasks.policy import RetryTopics
from headrace.workers.timing import WorkerTiming

Result = TypeVar("Result")

_LOG = logging.getLogger("headrace.workers")
# Between a producer's machine, which times records, and the one that writes their letters.
_MAX_CLOCK_DIFFERENCE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class _Pending:
    """A letter, and the future that ends once it is written."""

    letter: DeadLetter
    written: asyncio.Future[None]


class BatchedDeadLetters:
    """Writes the dead letters of an instance, in batches, by a :class:`DeadLetterWriter`.

    Everything happens on the event loop but for the calls of the writer, one at a time.

    Attributes:
        max_batch_letters: every record of a batch waits for all of its letters.
        max_remembered: letters of a topic; repeats of a record come shortly after it.
    """

    max_batch_letters = 500
    max_remembered = 100_000

    def __init__(
        self, worker: Worker, config: ClientConfig, timing: WorkerTiming = WorkerTiming()
    ) -> None:
        self._worker, self._config, self._timing = worker, config, timing
        self._pending: list[_Pending] = []
        self._writing: asyncio.Task[None] | None = None
        self._here: Mapping[TopicPartition, AssignedPartition] = {}
        self._rebalances = 0
        # A record that waits in a retry topic may come again at any time, from any partition.
        self._is_retried = isinstance(worker.on_failure, RetryTopics)
        max_remembered = self.max_remembered if self._is_retried else None
        self._writer = DeadLetterWriter(
            config, worker.name, worker.version, max_remembered=max_remembered
        )

    def on_rebalance(self, here: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Reads again what is written: other instances wrote letters of partitions, or will."""
        self._here = here
        self._rebalances += 1
        self._writer.forget()

    async def write(self, letter: DeadLetter) -> None:
        """Returns when ``letter`` is on all in-sync replicas, or was before.

        Cancelled before its write begins, it is not written.

        Raises:
            BrokerUnreachableError, SinkError, TopicMissingError: if it may be written or not.
        """
        pending = _Pending(letter, asyncio.get_running_loop().create_future())
        self._pending.append(pending)
        # Calls of the writer must not overlap: what comes meanwhile is its next batch.
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        await pending.written

    async def _write_all(self) -> None:
        while waiting := _still_waited_for(self._pending):
            size = self.max_batch_letters
            batch, self._pending = waiting[:size], waiting[size:]
            try:
                failures = await self._write_batch(batch)
            except Exception as error:  # noqa: BLE001 - raised where each letter is waited for
                failures = {pending.letter.position: error for pending in batch}
            for pending in _still_waited_for(batch):
                failure = failures.get(pending.letter.position)
                if failure is None:
                    pending.written.set_result(None)
                else:
                    pending.written.set_exception(failure)
        # Nothing was awaited since the check of what waits, so no letter can be missed.
        self._pending, self._writing = [], None

    async def _write_batch(self, batch: list[_Pending]) -> dict[Position, Exception]:
        """Returns why letters were not written, by their positions."""
        # A record may wait twice in a retry topic: its letters have one position, and one is kept.
        letters = {pending.letter.position: pending.letter for pending in batch}
        while unread := self._writer.unread_topics(letters.values()):
            await self._read_written(unread.pop())
        new = self._writer.unwritten(letters.values())
        ids = await self._request_with_retry(lambda: self._writer.topic_ids(new))
        waited_for = {pending.letter.position for pending in _still_waited_for(batch)}
        # The look-ups take time: a record may have been revoked meanwhile.
        new = [letter for letter in new if letter.position in waited_for]
        if not new:
            return {}
        failures = await asyncio.to_thread(self._writer.send, new, ids)
        return {new[index].position: failure for index, failure in failures.items()}

    async def _read_written(self, topic: str) -> None:
        # What belongs to the event loop is read here, not on the thread that waits for Kafka.
        rebalances = self._rebalances
        here = [assigned for assigned in self._here.values() if assigned.partition.topic == topic]
        undone = {assigned.partition: assigned.committable for assigned in here}
        times = {assigned.partition: assigned.times.at(assigned.committable) for assigned in here}

        def can_repeat(partition: TopicPartition, offset: int) -> bool:
            # A record that waits in a retry topic is done where it was read at first.
            return self._is_retried or (partition in undone and offset >= undone[partition])

        def read() -> None:
            since_ms = -1 if self._is_retried else self._oldest_ms(undone, times)
            self._writer.read_written(topic, can_repeat, since_ms)

        await self._request_with_retry(read)
        if rebalances != self._rebalances:  # it was read for the previous partitions
            self._writer.forget()

    def _oldest_ms(
        self, undone: Mapping[TopicPartition, int], times: Mapping[TopicPartition, int]
    ) -> int:
        """Returns since when letters of records that are not done were written; -1: unknown.

        A record is older than its letter, but for clocks that differ: by an hour at most, as long
        as no record is from the future.
        """
        unread = {partition: undone[partition] for partition, at in times.items() if at < 0}
        ends = {partition: end for partition, (_, end) in watermarks(self._config, unread).items()}
        unread = {partition: at for partition, at in unread.items() if at < ends[partition]}
        firsts = first_timestamps(self._config, unread)
        # Without the time of each first record, all letters must be read.
        if firsts.keys() < unread.keys():
            return -1
        known = [*firsts.values(), *(timestamp for timestamp in times.values() if timestamp >= 0)]
        now_ms = now_in_ms()
        oldest = min(known, default=now_ms)
        return -1 if oldest > now_ms else max(0, oldest - _MAX_CLOCK_DIFFERENCE_MS)

    async def _request_with_retry(self, request: Callable[[], Result]) -> Result:
        """Returns the result of ``request``, which is retried for as long as a write may take."""
        deadline = time.monotonic() + self._timing.letter_lookup_seconds
        while True:
            try:
                return await asyncio.to_thread(request)
            except BrokerUnreachableError as error:
                if time.monotonic() > deadline:
                    raise
                _LOG.warning(
                    "%s: dead-letter write delayed, broker unreachable: %s",
                    self._worker.name,
                    error,
                )
            await asyncio.sleep(self._timing.letter_retry_seconds)


def _still_waited_for(batch: list[_Pending]) -> list[_Pending]:
    return [pending for pending in batch if not pending.written.done()]
