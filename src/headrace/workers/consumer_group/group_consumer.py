"""An instance as a member of one consumer group."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from headrace.errors import HeadraceError, InstanceIdInUseError, LastCommitError
from headrace.kafka.client.broker_errors import Meaning
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.lost_brokers import BrokersLostError
from headrace.kafka.group.commits import OffsetCommit
from headrace.kafka.group.groups import offset_metadata_bytes
from headrace.kafka.group.start_positions import StartPosition
from headrace.kafka.group.subscription import Membership, Subscription, Taken
from headrace.kafka.read.log_cuts import whole_ends
from headrace.model import TopicPartition
from headrace.runtime.futures import result_of
from headrace.runtime.instance_name import process_name
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.threads import TaskThreads
from headrace.workers.tasks.record import ConsumedRecord
from headrace.workers.tasks.retry_topics import retry_topics

Result = TypeVar("Result")

ANSWER_SECONDS = 30.0
"""A commit that is not answered within this time is repeated. Until then no other one is sent, and
what a crash would repeat grows."""
LAST_SECONDS = 5.0
"""The last commit may take this long, or what is left of the time to drain."""
LEAVE_SECONDS = 10.0
"""Leaving the group may take this long."""

ID_SECONDS = 60.0
"""An instance waits this long for its id after its start: sessions last 45 s by default."""

_LOG = logging.getLogger("headrace.workers")
_MAX_RECORDS = 1000  # a poll must return soon: commits and pauses wait for it
_YIELD_EVERY_RECORDS = 32  # or lanes and timers would wait for a whole fetch
_POLL_SECONDS = 0.1  # how long commits and pauses may wait when no record comes
_PAUSED_POLL_SECONDS = 0.01  # a resume takes effect with the next poll


@dataclass(frozen=True, eq=False)
class _Sent:
    """A commit on its way, and its deadline by the loop's clock."""

    commits: tuple[tuple[AssignedPartition, OffsetCommit], ...]
    deadline: float


class GroupConsumer:
    """Reads the topics of its group, and commits what is done of them.

    All on the event loop, but for the consumer, which has a thread of its own: a rebalance waits
    there for the loop, and the loop never waits for it without awaiting.

    Args:
        config: of librdkafka.
        membership: of the group, with the topics that it reads.
        context: what lanes use of the instance.
        assignments: of the instance; gets partitions that come and go, and their records.
    """

    def __init__(
        self,
        config: ClientConfig,
        membership: Membership,
        context: LaneContext,
        assignments: PartitionSet,
    ) -> None:
        self._config, self._membership = config, membership
        self._context, self._assignments = context, assignments
        self._retries = retry_topics(context.worker)
        self._loop = asyncio.get_running_loop()
        self._sent: _Sent | None = None
        self._is_commit_due = False
        self._limit_request: asyncio.Task[None] | None = None
        self._ends_request: asyncio.Task[None] | None = None
        # A daemon: a client that does not return must not keep the process alive.
        self._thread = TaskThreads(1, f"{membership.group}-consumer")
        self._wait_until = self._loop.time() + ID_SECONDS
        self._subscription = self._subscribe()

    async def read(self, stopping: asyncio.Event) -> None:
        """Puts records into their lanes and commits what is done, until ``stopping`` is set.

        From then on it polls until it is cancelled: answers to commits and rebalances come within
        polls alone.

        Raises:
            HeadraceError, KafkaException: as :meth:`take` and :meth:`commit`.
        """
        interval = self._context.worker.commit_interval.total_seconds()
        commit_at = self._loop.time() + interval
        while not stopping.is_set():
            await self._put(await self.take())
            if self._loop.time() >= commit_at or self._is_commit_due:
                await self.commit()
                commit_at = self._loop.time() + interval
        self.begin_close()
        await self.commit()  # at once: what follows may take longer than is left
        while True:
            await self.take()

    async def _put(self, taken: Taken) -> None:
        for number, message in enumerate(taken.records, 1):
            self._assignments.put(ConsumedRecord.of(message, self._retries))
            if number % _YIELD_EVERY_RECORDS == 0:
                await asyncio.sleep(0)  # else lanes would only run once for a thousand records
        for partition, offset in taken.ends:
            if partition in self._assignments:  # it may be revoked meanwhile
                self._assignments[partition].reach(offset)

    async def take(self) -> Taken:
        """Returns records, no more than there is room for; waits a moment for the first.

        Raises:
            HeadraceError, KafkaException: as :meth:`Subscription.take`.
        """
        try:
            return await self._on_consumer(self._take)
        except InstanceIdInUseError as error:
            # The newer protocol keeps the id of a dead member for a session.
            is_new = not self._own() and self._loop.time() < self._wait_until
            if not is_new or self._membership.protocol != "consumer":
                raise
            delay = self._context.timing.rejoin_seconds
            _LOG.warning("%s, rejoining in %.0f s", error, delay)
            await asyncio.sleep(delay)
        except BrokersLostError as error:
            _LOG.warning("%s: %s, rejoining", self._membership.group, error)
        await self._on_consumer(self._subscription.close)
        self._subscription = self._subscribe()
        return Taken([], [])

    async def commit(self) -> None:
        """Sends what is done, unless a commit is on its way: there is one at most.

        Raises:
            HeadraceError, KafkaException: if this member can't commit any more.
        """
        if self._is_awaited():
            return
        self._is_commit_due = False
        max_bytes = self._assignments.metadata_bytes
        commits = tuple(
            (assigned, commit)
            for assigned in self._own()
            if (commit := assigned.commit(max_bytes)) is not None
        )
        if not commits:
            return
        without_epoch = [assigned for assigned, commit in commits if commit.epoch < 0]
        # Beside the commit, not before it: the next commit has the epoch.
        if without_epoch and self._ends_request is None:
            self._ends_request = self._loop.create_task(self._fetch_ends(without_epoch))
        # Set before it is sent: the answer may come on the consumer's thread at once.
        self._sent = sent = _Sent(commits, self._loop.time() + ANSWER_SECONDS)

        def on_answer(error: Meaning | None) -> None:
            # Called on the consumer's thread, within a poll.
            self._loop.call_soon_threadsafe(self._on_answer, sent, error)

        await self._on_consumer(
            lambda: self._subscription.commit([commit for _, commit in commits], on_answer)
        )

    def begin_close(self) -> None:
        """Stops reading; records that still come are ignored."""
        self._subscription.begin_close()

    async def close(self, deadline: float) -> None:
        """Commits what is done, and leaves the group.

        The last commit may take until ``deadline``, by the loop's clock, and at least
        :data:`LAST_SECONDS`: it may have to wait until all members have joined again.

        Raises:
            LastCommitError: if it was not confirmed.
            HeadraceError, KafkaException: if this member can't commit any more.
        """
        self.begin_close()
        seconds = max(LAST_SECONDS, deadline - self._loop.time())
        try:
            await asyncio.wait_for(self._settle(), seconds)
        except TimeoutError:
            if self._is_unconfirmed:
                raise self._unconfirmed_error() from None
        finally:
            await self._leave()

    async def _settle(self) -> None:
        """Waits until all is committed, with its epoch, and no request to join is on its way.

        A request to leave would wait for it, and the other members for this one's session.

        Raises:
            LastCommitError: if this client can't commit any more.
        """
        # Polls beside it: answers to commits come within polls alone.
        while self._is_unconfirmed or self._ends_request is not None:
            if self._is_unusable:
                raise self._unconfirmed_error()
            await self.commit()
            await self._on_consumer(self._take)
        while await self._on_consumer(self._subscription.is_joining):
            await self._on_consumer(self._take)

    @property
    def _is_unconfirmed(self) -> bool:
        return self._sent is not None or any(assigned.is_changed for assigned in self._own())

    def _unconfirmed_error(self) -> LastCommitError:
        repeated = (
            max(0, partition.committable - partition.committed) for partition in self._own()
        )
        return LastCommitError(self._membership.group, sum(repeated))

    async def _leave(self) -> None:
        leaving = asyncio.ensure_future(self._on_consumer(self._subscription.close))
        done, _ = await asyncio.wait({leaving}, timeout=LEAVE_SECONDS)
        self._thread.shutdown(wait=False)
        if not done:
            _LOG.warning(
                "%s: leaving the group took more than %.0f s: other members get the partitions "
                "when the session of this one has expired",
                self._membership.group,
                LEAVE_SECONDS,
            )
        elif (error := leaving.exception()) is not None:
            raise error

    def _subscribe(self) -> Subscription:
        self._is_unusable = False  # until librdkafka reports a fatal error
        return Subscription(
            {"client.id": process_name(), **self._config},
            self._membership,
            self._assignments.pauses,
            functools.partial(self._from_consumer, self._assigned),
            functools.partial(self._from_consumer, self._revoked),
            functools.partial(self._from_consumer, self._lost),
        )

    def _own(self) -> list[AssignedPartition]:
        topics = self._membership.topics
        return [
            assigned
            for assigned in self._assignments.values()
            if assigned.partition.topic in topics
        ]

    def _take(self) -> Taken:
        """Reads records; runs on the consumer's thread."""
        topics = self._membership.topics
        waiting = any(
            partition.topic in topics for partition in self._assignments.pauses.partitions
        )
        # At least one, as a poll also serves rebalances and answers to commits.
        room = max(1, min(_MAX_RECORDS, self._assignments.budget.records))
        return self._subscription.take(room, _PAUSED_POLL_SECONDS if waiting else _POLL_SECONDS)

    # -- answers to commits -----------------------------------------------------------------------

    def _is_awaited(self) -> bool:
        if self._sent is None:
            return False
        if self._loop.time() < self._sent.deadline:
            return True
        _LOG.warning(
            "%s: a commit was not answered within %.0f s, sending it again",
            self._membership.group,
            ANSWER_SECONDS,
        )
        for assignment, _ in self._sent.commits:
            assignment.not_committed()
        self._sent = None
        return False

    def _on_answer(self, sent: _Sent, error: Meaning | None) -> None:
        is_late = sent is not self._sent
        if not is_late:
            self._sent = None
        for assignment, commit in sent.commits:
            # A late answer is no proof: its commit may have overwritten a newer one.
            if error is not None or is_late:
                assignment.not_committed()
            else:
                assignment.committed = commit.offset
        if error is Meaning.METADATA_TOO_LARGE:
            # Without ranges until the brokers' limit is known.
            self._assignments.metadata_bytes = 0
            if self._limit_request is None:
                self._limit_request = self._loop.create_task(self._fetch_metadata_limit())
        self._is_unusable |= error is Meaning.FATAL
        self._is_commit_due |= error in {Meaning.REBALANCING, Meaning.METADATA_TOO_LARGE}
        if error is None:
            self._context.counts["commits"] += 1

    async def _fetch_ends(self, partitions: list[AssignedPartition]) -> None:
        """Asks leaders for the epoch of a commit, where the last record does not have it."""
        seen = {assigned.partition: assigned.seen for assigned in partitions}
        try:
            ends = await asyncio.to_thread(whole_ends, self._config, seen)
        except (HeadraceError, KafkaException) as error:  # the next commit asks again
            _LOG.info("%s: the ends of its logs are not known: %s", self._membership.group, error)
        else:
            for assigned in partitions:
                if assigned.partition in ends:
                    assigned.see_end(ends[assigned.partition])
        finally:
            self._ends_request = None

    async def _fetch_metadata_limit(self) -> None:
        try:
            limit = await asyncio.to_thread(offset_metadata_bytes, self._config)
        except HeadraceError as error:
            limit, reason = 0, str(error)
        else:
            reason = f"offset.metadata.max.bytes is {limit}"
        self._assignments.metadata_bytes = limit
        _LOG.warning(
            "%s: brokers take %d bytes of metadata with a commit (%s); records beyond a slow one "
            "that do not fit are repeated after a restart",
            self._membership.group,
            limit,
            reason,
        )

    async def _on_consumer(self, call: Callable[[], Result]) -> Result:
        # Shielded: a call that waits for its turn takes place also when its caller is cancelled.
        return await asyncio.shield(self._loop.run_in_executor(self._thread, call))

    # -- partitions come and go: the consumer's thread waits for these ----------------------------

    def _from_consumer(self, react: Callable[[Any], Any], partitions: Any) -> Any:
        # Blocks the consumer's thread on purpose: librdkafka revokes partitions when the callback
        # returns, and until then their lanes may end and their offsets be committed. So the loop
        # must never wait for that thread without awaiting.
        return result_of(asyncio.run_coroutine_threadsafe(react(partitions), self._loop))

    async def _assigned(self, starts: list[StartPosition]) -> None:
        self._assignments.assign(self._membership.group, starts)

    async def _revoked(self, partitions: list[TopicPartition]) -> list[OffsetCommit]:
        # A commit on its way is of the previous generation, and may be refused: this generation
        # repeats it.
        for assignment, _ in self._sent.commits if self._sent else ():
            assignment.not_committed()
        seconds = self._context.worker.revoke_timeout.total_seconds()
        return await self._assignments.revoke(partitions, seconds)

    async def _lost(self, partitions: list[TopicPartition]) -> None:
        # Without time to drain: other members may process these records already.
        await self._assignments.revoke(partitions, 0.0)
