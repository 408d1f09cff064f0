"""A member of a consumer group: partitions come and go, offsets are committed with metadata."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import (
    BrokerUnreachableError,
    CommittedOffsetError,
    InstanceIdTakenError,
    TopicMissingError,
)
from headrace.kafka.client import ClientConfig, describe, watermarks
from headrace.model import TopicPartition

_LOG = logging.getLogger("headrace.kafka")
_COMMITTED_SECONDS = 30.0
_STARTS_SECONDS = 120.0  # after five minutes in one poll, Kafka gives the partitions to others
_ASK_AGAIN_SECONDS = 1.0
_LAST_COMMIT_SECONDS = 5.0
_COMMIT_AGAIN_SECONDS = 0.05
_METADATA_REFRESH_MS = "10000"  # so soon a member sees new partitions
_PREFETCH = {
    "queued.max.messages.kbytes": "16384",
    "queued.min.messages": "10000",
    "fetch.message.max.bytes": "1048576",
    "fetch.wait.max.ms": "100",
}
_TAKEN = frozenset({"FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID"})
_PASSING = frozenset(
    {
        "_ALL_BROKERS_DOWN",
        "_PARTITION_EOF",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TRANSPORT",
        "_MAX_POLL_EXCEEDED",
        "_AUTHENTICATION",
    }
)
_REBALANCING = frozenset({"ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"})


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition that was assigned begins.

    Attributes:
        partition: of a topic.
        position: the next record to read.
        metadata: what was committed beside it.
        topic_id: of the topic now.
    """

    partition: TopicPartition
    position: int
    metadata: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset to commit, the next record to read, and what is to stand beside it."""

    partition: TopicPartition
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class Membership:
    """How to be a member of a group.

    Attributes:
        group: its name.
        topics: to subscribe to; those of the worker, where one is run.
        instance_id: makes the membership static: a restart within the session's time-out moves
            no partition. Empty: not.
        protocol: ``classic`` (cooperative) or ``consumer`` (KIP-848, Kafka 4.0 and newer).
        session_seconds: after so long a silence the others take over; with ``consumer`` the
            brokers decide it.
    """

    group: str
    topics: tuple[str, ...] = ()
    instance_id: str = ""
    protocol: str = "classic"
    session_seconds: float = 45.0


class Subscription:
    """One member, on one thread; but ``pause`` and ``resume`` from any.

    Args:
        config: of the cluster.
        membership: which group, and how.
        on_assigned: called within ``take`` with partitions that are new here.
        on_revoked: called within ``take`` and ``close`` before partitions go to another member;
            what it gives is committed first.
        on_lost: called within ``take`` when they are gone already.
    """

    def __init__(
        self,
        config: ClientConfig,
        membership: Membership,
        on_assigned: Callable[[list[Start]], None],
        on_revoked: Callable[[list[TopicPartition]], list[Commit]],
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        self._config, self._membership = config, membership
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._closing = False
        self._moved: set[TopicPartition] = set()
        self._assigned: set[TopicPartition] = set()
        self._switches: deque[tuple[bool, list[TopicPartition]]] = deque()
        self._consumer = confluent_kafka.Consumer(_consumer_config(config, membership), logger=_LOG)
        self._consumer.subscribe(
            list(membership.topics),
            on_assign=self._assign,
            on_revoke=self._revoke,
            on_lost=self._lose,
        )

    def take(self, most: int, seconds: float) -> list[confluent_kafka.Message]:
        """Records that are there, up to ``most``; waits ``seconds`` for the first.

        Raises:
            CommittedOffsetError: a position is not in the topic any more.
            TopicMissingError: a topic was deleted.
            BrokerUnreachableError: where partitions that came begin, nobody said for two minutes.
            InstanceIdTakenError: by another member.
            KafkaException: an error that does not pass.
        """
        self._switch(self._consumer)
        try:
            first = self._consumer.poll(seconds)
        except KafkaException as error:
            raise self._named(error.args[0]) from error
        if first is None:
            return []
        self._moved.clear()
        rest = self._consumer.consume(most - 1, 0) if most > 1 else []
        # A partition that moved meanwhile begins anew at its committed offset, if it is here.
        taken = rest if self._moved and _partition(first) in self._moved else [first, *rest]
        return [one for one in taken if self._is_record(one)]

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Records of these wait in Kafka, from the next ``take`` on.

        Not at once: the client makes a call wait for one on another thread, so that the caller
        would wait for a whole ``take``; and for ever where that one's callbacks wait for it.
        """
        self._switches.append((True, list(partitions)))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """They come again, from the next ``take`` on."""
        self._switches.append((False, list(partitions)))

    def commit(self, commits: Sequence[Commit]) -> bool:
        """Returns when it is done; ``False``: not now, another attempt may do."""
        return not self._commit(commits)

    def commit_last(self, commits: Sequence[Commit]) -> bool:
        """As :meth:`commit`, but again and again while a rebalance is what is in the way.

        For the last chance there is: what was done and is not committed then is repeated.
        """
        deadline = time.monotonic() + _LAST_COMMIT_SECONDS
        while (reason := self._commit(commits)) in _REBALANCING and time.monotonic() < deadline:
            time.sleep(_COMMIT_AGAIN_SECONDS)
        return not reason

    def close(self) -> None:
        """Leave the group; ``on_revoked`` is called for what is still assigned."""
        self._closing = True
        self._consumer.close()

    def _commit(self, commits: Sequence[Commit]) -> str:
        """Name of the error; empty: it is done."""
        if not commits:
            return ""
        offsets = [
            confluent_kafka.TopicPartition(
                one.partition.topic, one.partition.partition, one.offset, one.metadata
            )
            for one in commits
        ]
        try:
            found = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].fatal():
                raise self._named(error.args[0]) from error
            _LOG.warning("%s: commit failed: %s", self._membership.group, error.args[0].str())
            return str(error.args[0].name())
        return next((str(one.error.name()) for one in found or () if one.error is not None), "")

    def _assign(self, consumer: confluent_kafka.Consumer, found: list[Any]) -> None:
        if self._closing:  # they go at once; to ask where they begin would have no answer
            consumer.incremental_assign(found)
            return
        self._moved.update(_ours(found))
        starts = self._known_starts(consumer, found)
        consumer.incremental_assign(
            [
                confluent_kafka.TopicPartition(
                    one.partition.topic, one.partition.partition, one.position
                )
                for one in starts
            ]
        )
        self._assigned.update(_ours(found))
        consumer.resume(found)  # they may have been paused here before
        self._on_assigned(starts)
        self._switch(consumer)

    def _revoke(self, consumer: confluent_kafka.Consumer, found: list[Any]) -> None:
        self._moved.update(_ours(found))
        self.commit_last(self._on_revoked(_ours(found)))
        self._assigned.difference_update(_ours(found))
        consumer.incremental_unassign(found)

    def _lose(self, consumer: confluent_kafka.Consumer, found: list[Any]) -> None:
        self._moved.update(_ours(found))
        self._on_lost(_ours(found))
        self._assigned.difference_update(_ours(found))
        consumer.incremental_unassign(found)

    def _switch(self, consumer: confluent_kafka.Consumer) -> None:
        while self._switches:
            paused, wanted = self._switches.popleft()
            partitions = _plain(one for one in wanted if one in self._assigned)
            if partitions:
                (consumer.pause if paused else consumer.resume)(partitions)

    def _known_starts(self, consumer: confluent_kafka.Consumer, found: list[Any]) -> list[Start]:
        deadline = time.monotonic() + _STARTS_SECONDS
        while True:
            try:
                return self._starts(consumer, found)
            except BrokerUnreachableError as error:
                if time.monotonic() > deadline:
                    raise
                _LOG.warning("%s: partitions came, asking again: %s", self._membership.group, error)
            time.sleep(_ASK_AGAIN_SECONDS)

    def _starts(self, consumer: confluent_kafka.Consumer, found: list[Any]) -> list[Start]:
        if not found:
            return []
        committed = _committed(consumer, found, self._config)
        partitions = _ours(found)
        marks = watermarks(self._config, partitions)
        ids = describe(self._config, {one.topic for one in partitions})
        return [
            self._start(one, committed[one], marks[one][0], ids[one.topic].topic_id)
            for one in partitions
        ]

    def _start(self, partition: TopicPartition, one: Any, earliest: int, topic_id: str) -> Start:
        if one.offset < 0:
            return Start(partition, earliest, "", topic_id)
        if one.offset < earliest:
            raise self._gone(partition, one.offset, f"the topic begins at {earliest} now")
        return Start(partition, one.offset, one.metadata or "", topic_id)

    def _is_record(self, message: confluent_kafka.Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.name() == "_AUTO_OFFSET_RESET":
            raise self._gone(_partition(message), message.offset(), error.str())
        if error.name() in {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}:
            raise TopicMissingError(message.topic() or ", ".join(self._membership.topics))
        if error.name() not in _PASSING and not error.retriable():
            raise self._named(error)
        _LOG.warning("%s: %s", self._membership.group, error.str())
        return False

    def _named(self, error: KafkaError) -> Exception:
        # Of a fatal error, only the text says which one it is.
        if error.name() in _TAKEN or "group.instance.id" in error.str():
            membership = self._membership
            return InstanceIdTakenError(membership.group, membership.instance_id, error.str())
        named: Exception = KafkaException(error)
        return named

    def _gone(self, partition: TopicPartition, offset: int, reason: str) -> CommittedOffsetError:
        return CommittedOffsetError(
            self._membership.group, partition.topic, partition.partition, offset, reason
        )


def _consumer_config(config: ClientConfig, membership: Membership) -> dict[str, str]:
    own = {
        "group.id": membership.group,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "topic.metadata.refresh.interval.ms": _METADATA_REFRESH_MS,
        "group.protocol": membership.protocol,
    }
    if membership.protocol == "classic":
        own["partition.assignment.strategy"] = "cooperative-sticky"
        own["session.timeout.ms"] = str(int(membership.session_seconds * 1000))
    if membership.instance_id:
        own["group.instance.id"] = membership.instance_id
    return {k: v for k, v in config.items() if k != "partitioner"} | _PREFETCH | own


def _committed(
    consumer: confluent_kafka.Consumer, found: list[Any], config: ClientConfig
) -> dict[TopicPartition, Any]:
    try:
        answer = consumer.committed(found, timeout=_COMMITTED_SECONDS)
    except KafkaException as error:
        raise BrokerUnreachableError(config["bootstrap.servers"], error.args[0].str()) from error
    return {TopicPartition(one.topic, one.partition): one for one in answer}


def _partition(message: confluent_kafka.Message) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())


def _ours(found: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(one.topic, one.partition) for one in found]


def _plain(partitions: Iterable[TopicPartition]) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(one.topic, one.partition) for one in partitions]
