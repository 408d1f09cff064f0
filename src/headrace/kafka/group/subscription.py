"""A member of a consumer group: partitions come and go, offsets are committed with metadata."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import OFFSET_END, KafkaError, KafkaException

from headrace.errors import (
    CommittedOffsetError,
    InstanceIdInUseError,
    TopicMissingError,
    WorkerTruncatedError,
)
from headrace.kafka.client.broker_errors import Meaning, forbidden, is_forbidden, meaning
from headrace.kafka.client.clients import ClientConfig, non_producer_settings, reader_tuning
from headrace.kafka.client.lost_brokers import IdleCheck
from headrace.kafka.client.offsets import leader_epoch
from headrace.kafka.client.partitions import client_partition, client_partitions, partition_of
from headrace.kafka.group.commits import Answered, Commits, OffsetCommit
from headrace.kafka.group.group_member import member_metadata
from headrace.kafka.group.groups import leave_group
from headrace.kafka.group.start_positions import StartPosition, StartPositions
from headrace.kafka.read.log_cuts import Seen, cut_offset, find_cuts, seek_and_compare
from headrace.model import TopicPartition

_ID_TAKEN = {
    "classic": "the brokers have given it to an instance that joined later",
    "consumer": "the brokers still count a member with it",
}
_LOG = logging.getLogger("headrace.kafka")
_METADATA_REFRESH_MS = "10000"  # how soon a member sees new partitions
# What librdkafka fetches ahead comes on top of the queue_bytes of an instance.
_PREFETCH = {
    "queued.max.messages.kbytes": "16384",
    "queued.min.messages": "10000",
    "fetch.message.max.bytes": "1048576",
    "fetch.wait.max.ms": "100",
}
_SHORT_SECONDS = 0.5
# The consumer recovers by itself: it connects, asks for the leaders and joins the group again.
_TRANSIENT = frozenset({Meaning.UNREACHABLE, Meaning.TRANSIENT, Meaning.EVICTED})


@dataclass(frozen=True, slots=True)
class Membership:
    """How to be a member of a group.

    Attributes:
        group: its name.
        topics: to subscribe to; those of the worker, where one is run.
        instance_id: makes the membership static: a restart within the session's time-out moves
            no partition. Empty: not.
        protocol: ``classic`` (cooperative) or ``consumer`` (KIP-848, Kafka 4.0 and newer).
        session_seconds: a member that is silent for this long loses its partitions; with
            ``consumer`` the brokers decide it.
        id_seconds: a member that leaves waits this long for its id: brokers that can't be reached
            give none.
    """

    group: str
    topics: tuple[str, ...] = ()
    instance_id: str = ""
    protocol: str = "classic"
    session_seconds: float = 45.0
    id_seconds: float = 5.0


class Pauses:
    """The partitions that are not to be read for now. A subscription looks at each ``take``.

    It acts no sooner: the client makes calls of two threads wait for each other, so that the caller
    would wait for a whole ``take``, and for ever if a callback waits for the caller.

    Attributes:
        partitions: replaced, never changed: another thread reads it without a lock.
    """

    def __init__(self) -> None:
        self.partitions: frozenset[TopicPartition] = frozenset()

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Pauses partitions."""
        self.partitions = self.partitions.union(partitions)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Has partitions read again."""
        self.partitions = self.partitions.difference(partitions)


class Taken(NamedTuple):
    """Records that were read, and ends of partitions that were reached after them.

    An end is the offset after the last record and the markers of transactions that follow it,
    which are no records.
    """

    records: list[confluent_kafka.Message]
    ends: list[tuple[TopicPartition, int]]


class _Starting(NamedTuple):
    """The first offset to read of a partition of which nothing was read yet.

    Attributes:
        start: the offset, and the epoch of a leader that had the records before it.
        came_first: the offset that came first; ``start`` was sought again then.
    """

    start: Seen
    came_first: int | None = None


class Subscription:
    """One member, on one thread; but ``begin_close`` from any.

    Args:
        config: of the cluster.
        membership: which group, and how.
        pauses: the partitions that must not be read for now.
        on_assigned: called within ``take`` with partitions that are new here.
        on_revoked: called within ``take`` and ``close`` before partitions go to another member;
            what it gives is committed first.
        on_lost: called within ``take`` when other members may own them already.
    """

    def __init__(
        self,
        config: ClientConfig,
        membership: Membership,
        pauses: Pauses,
        on_assigned: Callable[[list[StartPosition]], None],
        on_revoked: Callable[[list[TopicPartition]], list[OffsetCommit]],
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        self._config, self._membership, self._pauses = config, membership, pauses
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._closing = False
        self._id_until = 0.0
        self._moved: set[TopicPartition] = set()
        self._assigned: dict[TopicPartition, Seen] = {}  # with where it starts
        self._starting: dict[TopicPartition, _Starting] = {}
        self._paused: frozenset[TopicPartition] = frozenset()
        self._starts = StartPositions(config, membership.group, lambda: self._closing)
        self._commits = Commits(membership.group)
        self._idle_check = IdleCheck(config)
        self._consumer = confluent_kafka.Consumer(
            {**_consumer_config(config, membership), "on_commit": self._commits.answer},
            logger=_LOG,
        )
        self._consumer.subscribe(
            list(membership.topics),
            on_assign=self._assign,
            on_revoke=self._revoke,
            on_lost=self._lose,
        )

    def take(self, max_records: int, seconds: float) -> Taken:
        """Returns up to ``max_records`` records; waits ``seconds`` for the first.

        After :meth:`begin_close` there are none: it handles answers to commits and rebalances.

        Raises:
            CommittedOffsetError: if a position is not in the topic any more.
            WorkerTruncatedError: if a log was truncated before a position.
            TopicMissingError: if a topic was deleted.
            BrokerUnreachableError: if start offsets could not be fetched for two minutes.
            InstanceIdInUseError: if another member has the id.
            BrokersLostError: if the client has lost its brokers; only a new one helps.
            KafkaException: if an error is permanent.
        """
        self._switch(self._consumer)
        try:
            messages = self._poll(max_records, seconds)
        except KafkaException as error:
            raise self._named(error.args[0]) from error
        if self._closing:
            return Taken([], [])
        self._idle_check.check(self._consumer, has_received=bool(messages))
        ends = [
            (TopicPartition.of(message), int(message.offset()))
            for message in messages
            if _is_end(message)
        ]
        return Taken([message for message in messages if self._is_record(message)], ends)

    def _poll(self, max_records: int, seconds: float) -> list[confluent_kafka.Message]:
        """Polls one by one: a batch would be filled while rebalances are called back.

        Records that were in a batch before a rebalance and records after it can't be distinguished,
        and the client's own position may then be before or beyond the records that it gave.
        """
        messages: list[confluent_kafka.Message] = []
        while len(messages) < max_records:
            self._moved.clear()
            message = self._consumer.poll(0 if messages else seconds)
            if self._moved:  # a partition that moved starts over at its committed offset, if here
                messages = [
                    message for message in messages if TopicPartition.of(message) not in self._moved
                ]
            if message is None or self._closing:
                break
            if self._starting and self._is_sought(message):
                continue
            messages.append(message)
        return messages

    def _is_sought(self, message: confluent_kafka.Message) -> bool:
        """Returns whether the first message of a partition is left: its start is sought again.

        Where the start has an epoch, so that the client compares the log. And where the message is
        not at the start, but only once: compacted records and markers of transactions never come.
        What the client skipped would be taken for such, and its offsets would be committed.
        """
        partition, error = TopicPartition.of(message), message.error()
        if partition not in self._starting or not (error is None or _is_end(message)):
            return False
        begin, offset = self._starting.pop(partition), message.offset()
        start, first = begin.start.offset, begin.came_first
        if first is None and (offset > start or begin.start.epoch >= 0):
            self._starting[partition] = begin._replace(came_first=offset)
            [again] = _client_partitions({partition: begin.start})
            seek_and_compare(self._consumer, again)
            return True
        if first is not None and offset < first:
            _LOG.warning(
                "%s: %s should start at %d, the client started at %d; read again from %d",
                self._membership.group,
                partition,
                start,
                first,
                offset,
            )
        return False

    def commit(self, commits: Sequence[OffsetCommit], answered: Answered) -> None:
        """Sends ``commits``, and returns; ``answered`` is called within a later ``take``.

        Raises:
            InstanceIdInUseError, KafkaException: if this member can't commit any more.
        """
        try:
            self._commits.send(self._consumer, commits, answered)
        except KafkaException as error:
            raise self._named(error.args[0]) from error

    def member_metadata(self) -> Any:
        """Returns what a transaction says of this member, as it is now.

        Raises:
            NoMemberError: if it is none, or none any more.
        """
        return member_metadata(self._consumer)

    def is_joining(self) -> bool:
        """Returns whether a request to join is on its way.

        A new member asks twice: it is given an id first, and the group then waits for it for a
        session. The second answer comes when all members have joined again, and no other comes
        before it on this connection.
        """
        if not self._consumer.memberid():
            return time.monotonic() < self._id_until
        partition = client_partition(TopicPartition(self._membership.topics[0], 0))
        try:
            self._consumer.committed([partition], timeout=_SHORT_SECONDS)
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError._TIMED_OUT)  # noqa: SLF001
        return False

    def begin_close(self) -> None:
        """Makes the member read nothing from the next ``take`` on."""
        if not self._closing:
            self._id_until = time.monotonic() + self._membership.id_seconds
        self._closing = True

    def close(self) -> None:
        """Leaves the group; ``on_revoked`` is called for what is still assigned.

        A static member stays one until its session has ended: its partitions wait for its return.
        """
        self._closing = True
        is_static = bool(self._membership.instance_id)
        if not self._assigned and self._membership.protocol == "classic" and not is_static:
            leave_group(self._consumer, self._membership.id_seconds)
        self._consumer.close()

    def _assign(self, consumer: confluent_kafka.Consumer, assigned: list[Any]) -> None:
        self._moved.update(map(partition_of, assigned))
        starts = self._starts.of(consumer, assigned)
        if self._closing:
            # They are revoked at once; a request for their starts would have no answer.
            consumer.incremental_assign(
                _client_partitions(dict.fromkeys(map(partition_of, assigned), Seen(OFFSET_END)))
            )
            return
        positions = {start.partition: Seen(start.position, start.epoch) for start in starts}
        self._log("assigned", {partition: start.offset for partition, start in positions.items()})
        consumer.incremental_assign(_client_partitions(positions))
        self._starting.update(
            {partition: _Starting(start) for partition, start in positions.items()}
        )
        self._assigned.update(positions)
        self._on_assigned(starts)
        self._switch(consumer)

    def _revoke(self, consumer: confluent_kafka.Consumer, revoked: list[Any]) -> None:
        """Commits offsets before the request that hands over the partitions is sent.

        Both go to the coordinator over one connection. Waiting for the answer would stop all
        other partitions for as long as the coordinator is slow or unreachable.
        """
        commits = self._on_revoked(list(map(partition_of, revoked)))
        if commits:
            self.commit(commits, lambda _: None)
        committed = {commit.partition: commit.offset for commit in commits}
        self._unassign(
            "revoked",
            consumer,
            {partition: committed.get(partition) for partition in map(partition_of, revoked)},
        )

    def _lose(self, consumer: confluent_kafka.Consumer, lost: list[Any]) -> None:
        self._on_lost(list(map(partition_of, lost)))
        self._unassign("lost", consumer, dict.fromkeys(map(partition_of, lost)))

    def _unassign(
        self,
        why: str,
        consumer: confluent_kafka.Consumer,
        revoked: Mapping[TopicPartition, int | None],
    ) -> None:
        """Forgets partitions: when they come back, they are not paused, and have a new start."""
        self._log(why, revoked)
        self._moved.update(revoked)
        self._assigned = {
            partition: start
            for partition, start in self._assigned.items()
            if partition not in revoked
        }
        self._starting = {
            partition: begin
            for partition, begin in self._starting.items()
            if partition not in revoked
        }
        # The client keeps the pause of a revoked partition, and applies it when it comes back.
        self._paused = self._paused.difference(revoked)
        consumer.resume(client_partitions(revoked))
        consumer.incremental_unassign(client_partitions(revoked))

    def _log(self, what: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        at = ", ".join(
            str(partition) if n is None else f"{partition} at {n}"
            for partition, n in offsets.items()
        )
        _LOG.info("%s: %s %s", self._membership.group, what, at or "nothing")

    def _switch(self, consumer: confluent_kafka.Consumer) -> None:
        paused = frozenset(self._assigned) if self._closing else self._pauses.partitions
        before, self._paused = self._paused, paused.intersection(self._assigned)
        if started := self._paused - before:
            consumer.pause(client_partitions(started))
        if ended := before - self._paused:
            consumer.resume(client_partitions(ended))

    def _is_record(self, message: confluent_kafka.Message) -> bool:
        error = message.error()
        if error is None:
            return True
        means = meaning(error)
        if means is Meaning.END:
            return False
        partition, group = TopicPartition.of(message), self._membership.group
        if means is Meaning.TRUNCATED:
            raise WorkerTruncatedError(partition.topic, partition.partition, cut_offset(error) or 0)
        if means is Meaning.NO_RECORD:
            raise self._gone(partition, message.offset(), error.str())
        if means is Meaning.MISSING:
            raise TopicMissingError(message.topic() or ", ".join(self._membership.topics))
        if means not in _TRANSIENT:
            raise self._named(error)
        _LOG.warning("%s: %s", group, error.str())
        return False

    def _gone(self, partition: TopicPartition, offset: int, reason: str) -> Exception:
        """Returns why a position is not in a log: that was cut before it, or records were deleted.

        A leader that was behind answers as after a deletion, until its log is as long again.

        Raises:
            BrokerUnreachableError: if the brokers do not answer.
        """
        [at] = self._consumer.position([client_partition(partition)])
        # The client has no position of a partition of which it has read nothing.
        seen = Seen(at.offset, leader_epoch(at)) if at.offset >= 0 else self._assigned[partition]
        topic, number = partition.topic, partition.partition
        for cut in find_cuts(self._config, topic, {number: seen}).values():
            return WorkerTruncatedError(topic, number, cut)
        return CommittedOffsetError(self._membership.group, topic, number, offset, reason)

    def _named(self, error: KafkaError) -> Exception:
        # Of a fatal error, only the text says which one it is.
        membership = self._membership
        if meaning(error) is Meaning.ID_IN_USE or "group.instance.id" in error.str():
            return InstanceIdInUseError(
                membership.group, membership.instance_id, _ID_TAKEN[membership.protocol]
            )
        if is_forbidden(error):
            is_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            topics = ", ".join(membership.topics)
            resource = f"group {membership.group}" if is_group else f"topic {topics}"
            return forbidden(self._config, "READ", resource)
        named: Exception = KafkaException(error)
        return named


def _consumer_config(config: ClientConfig, membership: Membership) -> dict[str, str]:
    own = {
        "group.id": membership.group,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "enable.partition.eof": "true",  # after a transaction's marker, nothing else shows the end
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "topic.metadata.refresh.interval.ms": _METADATA_REFRESH_MS,
        "group.protocol": membership.protocol,
    }
    if membership.protocol == "classic":
        own["partition.assignment.strategy"] = "cooperative-sticky"
        own["session.timeout.ms"] = str(int(membership.session_seconds * 1000))
    else:
        # A heartbeat request times out after one interval. One late answer would close the
        # connection, and a commit on it is sent again without end and without an answer.
        own["socket.max.fails"] = "3"
        own["socket.keepalive.enable"] = "true"
    if membership.instance_id:
        own["group.instance.id"] = membership.instance_id
    return non_producer_settings(config) | reader_tuning(config, _PREFETCH) | own


def _is_end(message: confluent_kafka.Message) -> bool:
    error = message.error()
    return error is not None and meaning(error) is Meaning.END


def _client_partitions(
    positions: Mapping[TopicPartition, Seen],
) -> list[confluent_kafka.TopicPartition]:
    return [
        client_partition(partition, offset, epoch=epoch)
        for partition, (offset, epoch) in positions.items()
    ]
