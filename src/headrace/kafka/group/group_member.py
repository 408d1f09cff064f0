"""A member of a consumer group that is given partitions, and reads nothing of them itself.

The brokers that take a transaction with offsets of the group know its members, and refuse the
transaction of one that is a member no more (KIP-447). That holds for a process that was frozen and
wakes up, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_END, KafkaError, KafkaException

from headrace.errors import TopicMissingError
from headrace.kafka.client.broker_errors import Meaning, forbidden, is_forbidden, meaning
from headrace.kafka.client.clients import ClientConfig, non_producer_settings
from headrace.kafka.client.partitions import client_partition, client_partitions, partition_of
from headrace.kafka.group.groups import leave_group
from headrace.model import TopicPartition

SESSION_SECONDS = 10
"""A member that is silent for this long loses its partitions to others."""

Changed = Callable[[set[TopicPartition]], None]
"""Called with partitions that are assigned, revoked or lost."""

_LOG = logging.getLogger("headrace.kafka")
_COMMITTED_SECONDS = 2.0
_LEAVE_SECONDS = 5.0
_MAX_POLL_SECONDS = 3600  # a call may wait for brokers; a frozen process misses heartbeats
_WAITED_FOR = frozenset({Meaning.UNREACHABLE, Meaning.TRANSIENT, Meaning.EVICTED, Meaning.END})
_CONFIG = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "latest",
    # Committed offsets are those of transactions that have ended.
    "isolation.level": "read_committed",
    "topic.metadata.refresh.interval.ms": "10000",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": str(SESSION_SECONDS * 1000),
    "heartbeat.interval.ms": "1000",
    "max.poll.interval.ms": str(_MAX_POLL_SECONDS * 1000),
}


class NoMemberError(Exception):
    """The group does not count this client as a member any more."""


def member_metadata(consumer: confluent_kafka.Consumer) -> Any:
    """Returns what a transaction says of a member of a group, as it is now.

    Raises:
        NoMemberError: if it is none any more. A transaction that names no member is not refused:
            brokers take it for one of a client from before KIP-447.
    """
    metadata = consumer.consumer_group_metadata()
    # Afterwards: an evicted member has no id until the next poll, which gives it another one.
    if not consumer.memberid():
        raise NoMemberError("its partitions went to other members")
    return metadata


class GroupMember:
    """One member. Used on one thread; the callbacks are called within :meth:`poll` and ``close``.

    Args:
        config: of the cluster.
        group: its name.
        topics: whose partitions the members share.
        on_assigned: called with partitions that are new here.
        on_revoked: called before partitions go to another member.
        on_lost: called when other members may own them already.
    """

    def __init__(
        self,
        config: ClientConfig,
        group: str,
        topics: Iterable[str],
        *,
        on_assigned: Changed,
        on_revoked: Changed,
        on_lost: Changed,
    ) -> None:
        self._config, self._group, self._topics = config, group, list(topics)
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._consumer = confluent_kafka.Consumer(
            non_producer_settings(config) | _CONFIG | {"group.id": group}, logger=_LOG
        )
        self._consumer.subscribe(
            self._topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
        )

    def metadata(self) -> Any:
        """Returns what a transaction says of this member, as it is now.

        Raises:
            NoMemberError: if it is none any more.
        """
        return member_metadata(self._consumer)

    def poll(self) -> None:
        """Takes part in rebalances; to be called every second or so.

        Raises:
            TopicMissingError: if a topic does not exist.
            AuthorizationError: if an ACL is missing.
            KafkaException: if an error is permanent, or a callback raised one.
        """
        message = self._consumer.poll(0)
        error = None if message is None else message.error()
        if error is None or meaning(error) in _WAITED_FOR:
            return
        if meaning(error) is Meaning.MISSING:
            raise TopicMissingError(message.topic() or ", ".join(self._topics))
        raise self._named(error)

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        """Returns what is committed of partitions; the offset is negative where nothing is.

        Raises:
            AuthorizationError: if an ACL is missing.
            KafkaException: if the brokers do not answer within two seconds, or a transaction that
                may move the offsets has not ended.
        """
        try:
            offsets = self._consumer.committed(
                client_partitions(partitions), timeout=_COMMITTED_SECONDS
            )
        except KafkaException as error:
            raise self._named(error.args[0]) from error
        for offset in offsets:
            if offset.error is not None:
                raise self._named(offset.error)
        return list(offsets)

    def close(self) -> None:
        """Leaves the group, which gives its partitions to others at once."""
        leave_group(self._consumer, _LEAVE_SECONDS)
        self._consumer.close()

    def _named(self, error: KafkaError) -> Exception:
        if is_forbidden(error):
            is_group = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            resource = f"group {self._group}" if is_group else f"topic {', '.join(self._topics)}"
            return forbidden(self._config, "READ" if is_group else "DESCRIBE", resource)
        named: Exception = KafkaException(error)
        return named

    def _assign(self, consumer: confluent_kafka.Consumer, assigned: list[Any]) -> None:
        partitions = set(map(partition_of, assigned))
        consumer.incremental_assign(
            [client_partition(partition, OFFSET_END) for partition in partitions]
        )
        consumer.pause(client_partitions(partitions))  # nothing is fetched
        self._on_assigned(partitions)

    def _revoke(self, consumer: confluent_kafka.Consumer, revoked: list[Any]) -> None:
        self._on_revoked(set(map(partition_of, revoked)))
        consumer.incremental_unassign(revoked)

    def _lose(self, consumer: confluent_kafka.Consumer, lost: list[Any]) -> None:
        self._on_lost(set(map(partition_of, lost)))
        consumer.incremental_unassign(lost)
