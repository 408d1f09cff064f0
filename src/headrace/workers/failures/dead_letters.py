"""Dead letters of an instance: those that gather during one write go together in the next."""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from headrace.errors import BrokerUnreachableError, SinkError
from headrace.kafka.client import MESSAGE_TIMEOUT_MS, ClientConfig, watermarks
from headrace.kafka.dead_letters import Position, dead_letter_records, find_written
from headrace.kafka.groups import first_timestamps
from headrace.kafka.sending import send_each
from headrace.model import DeadLetter, TopicPartition
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.policy import RetryTopics
from headrace.workers.worker import Worker

Result = TypeVar("Result")

_LOG = logging.getLogger("headrace.workers")
_MAX_AT_ONCE = 500
_MAX_REMEMBERED = 100_000
_PATIENCE_SECONDS = MESSAGE_TIMEOUT_MS / 1000
_ASK_AGAIN_SECONDS = 1.0
_CLOCKS_DIFFER_MS = 3_600_000  # by no more, as long as no record is from the future


@dataclass(frozen=True, slots=True)
class _Gathered:
    """A letter, and the future that ends once it is there."""

    letter: DeadLetter
    written: asyncio.Future[None]


class DeadLetterTopicWriter:
    """Writes one letter for a position, also when its record is processed again after a crash.

    All on the event loop, but for what waits for Kafka.
    """

    def __init__(self, worker: Worker, config: ClientConfig) -> None:
        self._worker, self._config = worker, config
        self._gathered: list[_Gathered] = []
        self._writing: asyncio.Task[None] | None = None
        self._here: Mapping[TopicPartition, AssignedPartition] = {}
        self._written: dict[str, dict[Position, None]] = {}

    def moved(self, here: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Partitions came or went: others wrote letters of them, or will. ``here``: what stays."""
        self._here, self._written = here, {}

    async def write(self, letter: DeadLetter) -> None:
        """Returns when it is on all in-sync replicas, or was before.

        Cancelled before its write begins, it is not written.

        Raises:
            BrokerUnreachableError, SinkError, TopicMissingError: it may be written or not.
        """
        gathered = _Gathered(letter, asyncio.get_running_loop().create_future())
        self._gathered.append(gathered)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all())
        await gathered.written

    async def _write_all(self) -> None:
        while batch := self._next_batch():
            try:
                failures = await self._write_new(batch)
            except Exception as error:  # noqa: BLE001 - raised where each letter is waited for
                failures = {gathered.letter.position: error for gathered in batch}
            for gathered in _still_waited_for(batch):
                failure = failures.get(gathered.letter.position)
                if failure is None:
                    gathered.written.set_result(None)
                else:
                    gathered.written.set_exception(failure)
        self._writing = None

    def _next_batch(self) -> list[_Gathered]:
        waiting = _still_waited_for(self._gathered)
        self._gathered = waiting[_MAX_AT_ONCE:]
        return waiting[:_MAX_AT_ONCE]

    async def _write_new(self, batch: list[_Gathered]) -> dict[Position, Exception]:
        """Returns why letters were not written, by their positions."""
        # One of a record that waits twice in a retry topic.
        letters = await self._without_written(
            {gathered.letter.position: gathered.letter for gathered in batch}
        )
        failures = await self._send(letters, batch)
        refused = {at: one for at, one in failures.items() if isinstance(one, SinkError)}
        if refused:
            plain = {at: _plain(letters[at], error) for at, error in refused.items()}
            others = {at: one for at, one in failures.items() if at not in refused}
            return others | await self._send(plain, batch)
        return failures

    async def _send(
        self, letters: Mapping[Position, DeadLetter], batch: list[_Gathered]
    ) -> dict[Position, Exception]:
        """Sends those of ``letters`` that are still waited for, and returns the failures."""
        name, version = self._worker.name, self._worker.version
        records = await self._ask(
            lambda: dead_letter_records(self._config, letters.values(), name, version)
        )
        waited_for = {gathered.letter.position for gathered in _still_waited_for(batch)}
        new = {at: one for at, one in zip(letters, records, strict=True) if at in waited_for}
        if not new:
            return {}
        failed = await asyncio.to_thread(send_each, self._config, list(new.values()))
        failures = {at: failed[index] for index, at in enumerate(new) if index in failed}
        self._remember(at for at in new if at not in failures)
        return failures

    async def _without_written(
        self, letters: dict[Position, DeadLetter]
    ) -> dict[Position, DeadLetter]:
        topics = {partition.topic for partition, _ in letters}
        while unknown := topics - self._written.keys():
            await self._look_up(unknown.pop())
        written = self._written
        return {at: one for at, one in letters.items() if at not in written[at[0].topic]}

    async def _look_up(self, topic: str) -> None:
        written = self._written  # another one takes its place when partitions move meanwhile
        here = [assigned for assigned in self._here.values() if assigned.partition.topic == topic]
        undone = {assigned.partition: assigned.committable for assigned in here}
        times = {assigned.partition: assigned.times.at(assigned.committable) for assigned in here}
        written[topic] = await self._ask(lambda: self._find(topic, undone, times))

    def _find(
        self, topic: str, undone: Mapping[TopicPartition, int], times: Mapping[TopicPartition, int]
    ) -> dict[Position, None]:
        """Positions with a letter whose records may come again: not those before ``undone``.

        Of what waits in retry topics that is not known: the latest, the oldest of them first.
        """
        if isinstance(self._worker.on_failure, RetryTopics):
            found = find_written(self._config, topic, self._worker.name)
            latest = heapq.nlargest(
                _MAX_REMEMBERED, ((stored.written_ms, stored.letter.position) for stored in found)
            )
            return {position: None for _, position in reversed(latest)}
        since_ms = self._oldest_ms(undone, times)
        return {
            stored.letter.position: None
            for stored in find_written(self._config, topic, self._worker.name, since_ms)
            if stored.letter.partition in undone
            and stored.letter.offset >= undone[stored.letter.partition]
        }

    def _oldest_ms(
        self, undone: Mapping[TopicPartition, int], times: Mapping[TopicPartition, int]
    ) -> int:
        """A letter of a record that may come again was not written before; -1: it is not known.

        A record is older than its letter, but for clocks that differ.
        """
        unread = {one: undone[one] for one, timestamp in times.items() if timestamp < 0}
        marks = watermarks(self._config, unread)
        unread = {one: at for one, at in unread.items() if at < marks[one][1]}
        firsts = first_timestamps(self._config, unread)
        if firsts.keys() < unread.keys():
            return -1
        known = [*firsts.values(), *(timestamp for timestamp in times.values() if timestamp >= 0)]
        now_ms = time.time_ns() // 1_000_000
        oldest = min(known, default=now_ms)
        return -1 if oldest > now_ms else max(0, oldest - _CLOCKS_DIFFER_MS)

    async def _ask(self, question: Callable[[], Result]) -> Result:
        """What Kafka answers, which may be away for as long as a write may take."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(question)
            except BrokerUnreachableError as error:
                if time.monotonic() > deadline:
                    raise
                _LOG.warning(
                    "%s: dead-letter write delayed, broker unreachable: %s",
                    self._worker.name,
                    error,
                )
            await asyncio.sleep(_ASK_AGAIN_SECONDS)

    def _remember(self, positions: Iterable[Position]) -> None:
        """A crash may have sent a record to its retry topic twice, shortly one after the other."""
        if not isinstance(self._worker.on_failure, RetryTopics):
            return
        for position in positions:
            written = self._written.get(position[0].topic, {})
            written[position] = None
            if len(written) > _MAX_REMEMBERED:
                del written[next(iter(written))]


def _plain(letter: DeadLetter, error: Exception) -> DeadLetter:
    """``letter`` without what Kafka may have refused it for: the record's headers, a long detail.

    Its key and value are kept: without them a replay would write another record.
    """
    detail = (
        f"the letter was refused with the record's headers and the detail of its failure: {error}"
    )
    return replace(letter, detail=detail, headers=())


def _still_waited_for(letters: list[_Gathered]) -> list[_Gathered]:
    return [gathered for gathered in letters if not gathered.written.done()]
