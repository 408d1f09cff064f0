"""An instance as a member of one consumer group."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import confluent_kafka

from headrace.kafka.client import ClientConfig
from headrace.kafka.subscription import Commit, Membership, Start, Subscription
from headrace.model import TopicPartition
from headrace.workers.assignment import Assignment
from headrace.workers.assignments import Assignments

Result = TypeVar("Result")

_MOST_RECORDS = 1000
_POLL_SECONDS = 0.1
_PAUSED_POLL_SECONDS = 0.01


class Member:
    """Reads the topics of its group, and commits what is done of them.

    All on the event loop, but for the consumer, which has a thread of its own: a rebalance waits
    there for the loop, and the loop never waits for it without awaiting.

    Args:
        config: of librdkafka.
        membership: of the group, with the topics that it reads.
        assignments: of the instance; told of partitions that come and go.
        drain_seconds: what is in process of a partition that goes may take so long.
    """

    def __init__(
        self,
        config: ClientConfig,
        membership: Membership,
        assignments: Assignments,
        drain_seconds: float,
    ) -> None:
        self._membership, self._assignments = membership, assignments
        self._drain_seconds = drain_seconds
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, f"{membership.group}-consumer")
        self._subscription = Subscription(
            config,
            membership,
            functools.partial(self._from_consumer, self._assigned),
            functools.partial(self._from_consumer, self._revoked),
            functools.partial(self._from_consumer, self._lost),
        )
        self.pause, self.resume = self._subscription.pause, self._subscription.resume

    async def take(self) -> list[confluent_kafka.Message]:
        """Records that are there, no more than there is room for; waits a moment for the first.

        Raises:
            HeadraceError, KafkaException: as :meth:`Subscription.take`.
        """
        return await self._on_consumer(self._take)

    async def commit(self) -> bool:
        """What is done; ``False``: nothing new is, or it is to be tried again.

        Raises:
            KafkaException: an error that does not pass.
        """
        return await self._commit(self._subscription.commit)

    async def close(self) -> None:
        """Commit what is done, leave the group. Raises as :meth:`commit`."""
        try:
            await self._commit(self._subscription.commit_last)
        finally:
            await self._on_consumer(self._subscription.close)
            self._thread.shutdown(wait=False)

    def _own(self) -> list[Assignment]:
        topics = self._membership.topics
        return [one for one in self._assignments.values() if one.partition.topic in topics]

    def _take(self) -> list[confluent_kafka.Message]:
        """On the consumer's thread."""
        topics = self._membership.topics
        waiting = any(one.topic in topics for one in self._assignments.paused)
        room = max(1, min(_MOST_RECORDS, self._assignments.budget.records))
        return self._subscription.take(room, _PAUSED_POLL_SECONDS if waiting else _POLL_SECONDS)

    async def _commit(self, send: Callable[[Sequence[Commit]], bool]) -> bool:
        wanted = [(one, commit) for one in self._own() if (commit := one.commit()) is not None]
        if not wanted:
            return False
        is_done = await self._on_consumer(functools.partial(send, [one for _, one in wanted]))
        for assignment, commit in wanted:
            if is_done:
                assignment.committed = commit.offset
            else:
                assignment.not_committed()
        return is_done

    async def _on_consumer(self, call: Callable[[], Result]) -> Result:
        return await self._loop.run_in_executor(self._thread, call)

    # -- partitions come and go: the consumer's thread waits for these ----------------------------

    def _from_consumer(self, react: Callable[[Any], Any], partitions: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(react(partitions), self._loop).result()

    async def _assigned(self, starts: list[Start]) -> None:
        self._assignments.assign(self._membership.group, starts)

    async def _revoked(self, partitions: list[TopicPartition]) -> list[Commit]:
        return await self._assignments.revoke(partitions, self._drain_seconds)

    async def _lost(self, partitions: list[TopicPartition]) -> None:
        await self._assignments.revoke(partitions, 0.0)
