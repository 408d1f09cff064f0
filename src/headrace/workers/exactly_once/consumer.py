"""A consumer that commits offsets with what was sent for their records."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException

from headrace.errors import (
    BrokerUnreachableError,
    HeadraceError,
    LastCommitError,
    TopicMissingError,
)
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.partitions import client_partition
from headrace.kafka.group.commits import OffsetCommit
from headrace.kafka.group.group_member import NoMemberError
from headrace.kafka.group.groups import offset_metadata_bytes
from headrace.kafka.group.subscription import Membership, Taken
from headrace.kafka.write.record import ProducerRecord, weight_of
from headrace.kafka.write.transactions import TransactionFencedError, TransactionUnsettledError
from headrace.model import TopicPartition
from headrace.workers.consumer_group.group_consumer import LEAVE_SECONDS, GroupConsumer
from headrace.workers.exactly_once.transactions import (
    TRANSACTION_SECONDS,
    Transactions,
    TransactionSize,
)
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.held import Cut
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.threads import TaskThreads

HANDOVER_SECONDS = TRANSACTION_SECONDS / 2
"""Of partitions that go to another instance, no further transaction begins after this time."""

MAX_MISSES = 3
"""Restarts in a row before a missing output topic ends the instance."""

_SHARE_OF_EXPIRY = 8

_LOG = logging.getLogger("headrace.workers")


@dataclass(frozen=True, eq=False)
class _Part:
    """What a transaction has of a partition."""

    assigned: AssignedPartition
    commit: OffsetCommit
    cut: Cut
    over: tuple[bytes, ...] = ()

    @functools.cached_property
    def of_state(self) -> tuple[ProducerRecord, ...]:
        """What deletes values that are over, and says which commit the state is of, if any."""
        state = self.assigned.state
        return () if state is None else state.records_of(self.commit, self.over)

    @property
    def written(self) -> tuple[ProducerRecord, ...]:
        """The records of the transaction."""
        return self.cut.records + self.of_state

    @property
    def bytes(self) -> int:
        """How large the records are, about."""
        return self.cut.bytes + sum(map(weight_of, self.of_state))


class ExactlyOnceConsumer(GroupConsumer):
    """Reads as every consumer of a worker, and commits in transactions.

    On the event loop, but for the consumer's thread and the one that waits for a transaction. The
    contract is the docstring of :mod:`headrace.workers.exactly_once`.

    Args:
        batch_bytes: the size of a batch that all topics take that tasks have sent to.
    """

    def __init__(
        self,
        config: ClientConfig,
        membership: Membership,
        context: LaneContext,
        assignments: PartitionSet,
        batch_bytes: Callable[[], int],
    ) -> None:
        self._member: Any = None
        super().__init__(config, membership, context, assignments)
        self._transactions = Transactions(config, membership.group, batch_bytes)
        self._size, self._turn = TransactionSize(), 0
        # Not the loop's own threads: tasks may occupy all of those.
        self._writing = TaskThreads(1, f"{membership.group}-transactions")
        self._transaction: asyncio.Task[None] | None = None
        self._is_unsettled = self._is_closing = self._has_left = self._has_limit = False
        self._uncommittable: set[AssignedPartition] = set()
        self._unwritten: LastCommitError | None = None
        self._topics: set[str] = set()  # of the last transaction
        self._misses: Counter[str] = Counter()

    async def take(self) -> Taken:
        """Returns records, as every consumer; starts over after a transaction without an answer."""
        if self._is_unsettled and not self._is_closing:
            await self._start_over()
            return Taken([], [])
        taken = await super().take()
        if sum(assigned.held.bytes for assigned in self._own()) > self._size.bytes:
            self._is_commit_due = True
        return taken

    async def commit(self) -> None:
        """Starts a transaction of what is done, unless one is on its way.

        It has all of that, or about as much as brokers take within its time.

        Raises:
            HeadraceError: why the last one was refused, if that is not for a rebalance.
        """
        if self._is_running():
            return
        if self._transaction is not None:
            ended, self._transaction = self._transaction, None
            ended.result()
        self._is_commit_due = False
        if self._is_unsettled or not any(assigned.is_changed for assigned in self._own()):
            return
        if not await self._knows_limit():
            return
        member = await self._on_consumer(self._member_metadata)
        # Looked at after that: a partition that was lost since is refused with this generation.
        parts = self._parts(self._own())
        if member is not None and parts:
            self._transaction = self._loop.create_task(self._write(parts, member))

    def begin_close(self) -> None:
        """Stops reading; records that still come are ignored."""
        self._is_closing = True
        if not self._has_left:
            super().begin_close()

    async def close(self, deadline: float) -> None:
        """Commits what is done, and leaves the group, as every consumer."""
        try:
            await super().close(deadline)
        finally:
            closing = asyncio.ensure_future(self._on_writing(self._transactions.close))
            # It may wait for brokers that do not answer: they abort what is open.
            await asyncio.wait({closing}, timeout=LEAVE_SECONDS)
            self._writing.shutdown(wait=False)

    async def _settle(self) -> None:
        if self._has_left and self._unwritten is not None:
            raise self._unwritten  # stopped while it started over
        while True:
            if self._is_unsettled:
                raise self._unconfirmed_error()
            await self.commit()
            if not self._is_unconfirmed and self._ends_request is None:
                break
            await self._on_consumer(self._take)
        while await self._on_consumer(self._subscription.is_joining):
            await self._on_consumer(self._take)

    @property
    def _is_unconfirmed(self) -> bool:
        waiting = (assigned for assigned in self._own() if assigned not in self._uncommittable)
        return self._transaction is not None or any(assigned.is_changed for assigned in waiting)

    async def _leave(self) -> None:
        if self._has_left:
            self._thread.shutdown(wait=False)
        else:
            await super()._leave()

    async def _start_over(self) -> None:
        """Ends the transaction without an answer, and joins the group again.

        The partitions are given back first: what their tasks have done may have to be repeated.

        Raises:
            TopicMissingError: if a topic of the transaction was missing each of the last times.
        """
        await self._ended()
        self._transaction = None
        self._unwritten = self._unconfirmed_error()
        self._has_left = True
        await self._on_consumer(self._subscription.close)
        while True:
            try:
                await self._on_writing(self._transactions.settle)
                break
            except TransactionUnsettledError as error:
                _LOG.warning("%s: waits for brokers: %s", self._membership.group, error.reason)
        await self._check_topics()
        self._subscription = self._subscribe()
        self._is_unsettled = self._has_left = False

    async def _check_topics(self) -> None:
        """Counts how often each topic was missing when the instance started over.

        Brokers that have just started do not know all topics, and one may be created again.
        """
        try:
            live = await asyncio.to_thread(describe, self._config, self._topics)
        except (HeadraceError, KafkaException) as error:
            _LOG.warning("%s: cannot describe its topics: %s", self._membership.group, error)
            return
        self._misses = Counter(
            {topic: self._misses[topic] + 1 for topic in self._topics - set(live)}
        )
        for topic, times in self._misses.items():
            _LOG.warning(
                "%s: sent to topic %s, which does not exist", self._membership.group, topic
            )
            if times >= MAX_MISSES:
                raise TopicMissingError(topic)

    # -- transactions -----------------------------------------------------------------------------

    async def _on_writing(self, call: Callable[..., None], *arguments: object) -> None:
        await self._loop.run_in_executor(self._writing, call, *arguments)

    def _is_running(self) -> bool:
        return self._transaction is not None and not self._transaction.done()

    async def _ended(self) -> None:
        if self._transaction is not None:
            await asyncio.wait({self._transaction})

    async def _knows_limit(self) -> bool:
        """Returns whether it is known how much metadata a commit may have; asks for it once.

        Without permission to ask, a commit has none: a partition waits until all is done.
        """
        if not self._has_limit:
            ask = asyncio.to_thread(offset_metadata_bytes, self._config)
            try:
                self._assignments.metadata_bytes = await ask
            except BrokerUnreachableError as error:
                _LOG.warning("%s: no transaction for now: %s", self._membership.group, error)
            else:
                self._has_limit = True
        return self._has_limit

    def _member_metadata(self) -> Any:
        """Returns what a transaction says of this member; ``None``: it is none. On its thread."""
        try:
            return self._subscription.member_metadata()
        except NoMemberError:
            return None

    def _parts(self, partitions: Iterable[AssignedPartition]) -> list[_Part]:
        """Returns what the next transaction has; where that is not all, others are first next."""
        parts, left = [], self._size.bytes
        in_turn = list(partitions)
        first = self._turn % max(1, len(in_turn))
        for assigned in in_turn[first:] + in_turn[:first]:
            if left <= 0:
                break
            part = self._part(assigned, left)
            is_committable = part is not None or not assigned.is_changed
            self._note_committable(assigned, is_committable=is_committable)
            if part is not None:
                parts.append(part)
                left -= part.bytes
        self._turn += any(part.cut.end is not None for part in parts) or left <= 0
        without_epoch = [part.assigned for part in parts if part.commit.epoch < 0]
        if without_epoch and self._ends_request is None:
            self._ends_request = self._loop.create_task(self._fetch_ends(without_epoch))
        return parts

    def _part(self, assigned: AssignedPartition, max_bytes: int) -> _Part | None:
        held = assigned.commit_held(max_bytes, self._assignments.metadata_bytes)
        if held is None:
            return None
        commit, cut = held
        if assigned.state is None or cut.leaves_calls:
            return _Part(assigned, commit, cut)  # the rest may have what a timer has set
        # Little of a transaction, so that values that are over hold up no sends.
        over = assigned.state.over(commit.offset, max_bytes // _SHARE_OF_EXPIRY)
        return _Part(assigned, commit, cut, over)

    def _note_committable(self, assigned: AssignedPartition, *, is_committable: bool) -> None:
        """Reads no further of a partition while a commit can't say what is done of it.

        But for what was done before a restart, which only reading makes less.
        """
        was_committable = assigned not in self._uncommittable
        if is_committable and was_committable:
            return
        if is_committable:
            self._uncommittable.discard(assigned)
        elif was_committable:
            self._uncommittable.add(assigned)
            _LOG.info(
                "%s: %s is done in more ranges than fit into %d bytes of metadata: nothing more is "
                "read of it until they are",
                self._membership.group,
                assigned.partition,
                self._assignments.metadata_bytes,
            )
        is_paused = not (is_committable or assigned.is_done_ahead)
        self._assignments.backpressure.set_uncommittable(assigned, is_now=is_paused)
        assigned.check_timers()

    async def _write(self, parts: list[_Part], member: Any) -> None:
        """Writes a transaction. What was not committed is in the next one, or in later ones.

        Raises:
            HeadraceError: if Kafka refuses a record or a topic.
        """
        records = [record for part in parts for record in part.written]
        self._topics = {record.topic for record in records}
        size, started = sum(part.bytes for part in parts), self._loop.time()
        offsets = [
            client_partition(commit.partition, commit.offset, commit.metadata, commit.epoch)
            for commit in (part.commit for part in parts)
        ]
        try:
            await self._on_writing(self._transactions.write, records, offsets, member)
        except TransactionFencedError as error:
            if self._loop.time() - started > TRANSACTION_SECONDS / 2:
                self._size.failed()  # brokers abort what takes too long
            self._not_committed(parts)
            _LOG.info("%s: a transaction was refused: %s", self._membership.group, error)
        except TransactionUnsettledError as error:
            self._is_unsettled = True
            self._size.failed()
            self._not_committed(parts)
            _LOG.warning(
                "%s: a transaction may be committed or not, starting from what is: %s",
                self._membership.group,
                error.reason,
            )
        except Exception:
            self._not_committed(parts)
            self._is_commit_due = True  # raises it
            raise
        else:
            self._misses.clear()
            self._size.committed(size, self._loop.time() - started)
            for part in parts:
                self._assignments.release(part.assigned, part.commit, part.cut, part.over)
            self._context.counts["commits"] += 1

    def _not_committed(self, parts: list[_Part]) -> None:
        for part in parts:
            part.assigned.not_committed()

    # -- partitions come and go -------------------------------------------------------------------

    def _from_consumer(self, react: Callable[[Any], Any], partitions: Any) -> Any:
        # On the consumer's thread, which waits for the loop from here on.
        self._member = self._member_metadata()
        return super()._from_consumer(react, partitions)

    async def _revoked(self, partitions: list[TopicPartition]) -> list[OffsetCommit]:
        revoked = [
            self._assignments[partition]
            for partition in partitions
            if partition in self._assignments
        ]
        seconds = self._context.worker.revoke_timeout.total_seconds()
        drain_seconds = 0.0 if self._is_unsettled else seconds
        commits = await self._assignments.revoke(partitions, drain_seconds)
        await self._ended()  # it may be of these partitions, and be refused
        changed = {commit.partition for commit in commits}
        for assigned in revoked:
            if assigned.partition in changed:
                assigned.not_committed()
        if not self._is_unsettled and self._member is not None:
            await self._write_last(revoked, self._member)
        self._uncommittable.difference_update(revoked)
        return []  # nothing is committed outside of a transaction

    async def _lost(self, partitions: list[TopicPartition]) -> None:
        await super()._lost(partitions)
        own = self._own()
        self._uncommittable = {assigned for assigned in self._uncommittable if assigned in own}

    async def _write_last(self, revoked: list[AssignedPartition], member: Any) -> None:
        """Commits what is done of partitions before they go; what is not committed is repeated."""
        until = self._loop.time() + HANDOVER_SECONDS
        while parts := self._last_parts(revoked):
            commits = self._context.counts["commits"]
            await self._write(parts, member)
            # Nothing is left of them here; the next owner waits for the end of the transaction.
            self._is_unsettled = False
            if self._context.counts["commits"] == commits or self._loop.time() > until:
                break

    def _last_parts(self, revoked: list[AssignedPartition]) -> list[_Part]:
        parts, left = [], self._size.bytes
        for assigned in revoked:
            if left > 0 and (part := self._part(assigned, left)) is not None:
                parts.append(part)
                left -= part.bytes
        return parts
