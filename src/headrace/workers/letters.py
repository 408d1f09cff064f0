"""Dead letters of an instance: those that gather during one write go together in the next."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.kafka.client import ClientConfig
from headrace.kafka.dead_letters import Position, find_written, write_dead_letters
from headrace.model import DeadLetter, TopicPartition
from headrace.workers.assignment import Assignment
from headrace.workers.policy import RetryTopics
from headrace.workers.worker import Worker

_MOST_AT_ONCE = 500
_MOST_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class _Gathered:
    """A letter, and the future that ends once it is there."""

    letter: DeadLetter
    written: asyncio.Future[None]


class LetterWriter:
    """Writes one letter for a position, also when its record is processed again after a crash.

    All on the event loop, but for what waits for Kafka.
    """

    def __init__(self, worker: Worker, config: ClientConfig) -> None:
        self._worker, self._config = worker, config
        self._gathered: list[_Gathered] = []
        self._writing: asyncio.Task[None] | None = None
        self._here: Mapping[TopicPartition, Assignment] = {}
        self._written: dict[str, dict[Position, None]] = {}

    def moved(self, here: Mapping[TopicPartition, Assignment]) -> None:
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
                await self._write_new([one.letter for one in batch])
            except Exception as error:  # noqa: BLE001 - raised where each letter is waited for
                for one in _still_waited_for(batch):
                    one.written.set_exception(error)
            else:
                for one in _still_waited_for(batch):
                    one.written.set_result(None)
        self._writing = None

    def _next_batch(self) -> list[_Gathered]:
        waiting = _still_waited_for(self._gathered)
        self._gathered = waiting[_MOST_AT_ONCE:]
        return waiting[:_MOST_AT_ONCE]

    async def _write_new(self, letters: list[DeadLetter]) -> None:
        topics = {one.partition.topic for one in letters}
        while unknown := topics - self._written.keys():
            await self._look_up(unknown.pop())
        new = {
            (one.partition, one.offset): one  # one that waits twice in a retry topic comes twice
            for one in letters
            if (one.partition, one.offset) not in self._written[one.partition.topic]
        }
        if new:
            worker = self._worker
            await asyncio.to_thread(
                write_dead_letters, self._config, new.values(), worker.name, worker.version
            )
            self._remember(new)

    async def _look_up(self, topic: str) -> None:
        written = self._written  # another one takes its place when partitions move meanwhile
        undone = {one.partition: one.committable for one in self._here.values()}
        written[topic] = await asyncio.to_thread(self._find, topic, undone)

    def _find(self, topic: str, undone: Mapping[TopicPartition, int]) -> dict[Position, None]:
        """Positions with a letter whose records may come again: not those before ``undone``.

        Of what waits in retry topics that is not known: the latest, the oldest of them first.
        """
        found = find_written(self._config, topic, self._worker.name)
        if isinstance(self._worker.on_failure, RetryTopics):
            times = ((one.written_ms, one.original) for one in found)
            latest = heapq.nlargest(_MOST_REMEMBERED, times)
            return {position: None for _, position in reversed(latest)}
        return {
            one.original: None
            for one in found
            if one.letter.partition in undone and one.letter.offset >= undone[one.letter.partition]
        }

    def _remember(self, positions: Mapping[Position, DeadLetter]) -> None:
        """A crash may have sent a record to its retry topic twice, shortly one after the other."""
        if not isinstance(self._worker.on_failure, RetryTopics):
            return
        for position in positions:
            written = self._written.get(position[0].topic, {})
            written[position] = None
            if len(written) > _MOST_REMEMBERED:
                del written[next(iter(written))]


def _still_waited_for(letters: list[_Gathered]) -> list[_Gathered]:
    return [one for one in letters if not one.written.done()]
