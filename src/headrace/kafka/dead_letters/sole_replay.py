"""One replay of a topic at a time, on any host: by membership of the group that remembers it.

A replay reads what was replayed before, sends, and commits what is replayed now. It is a member of
``headrace.replay.<topic>`` meanwhile: brokers accept commits of members only, so that no other
replay can overwrite what this one read. Members read nothing; the replay that is assigned the first
partition of the dead-letter topic continues, any other is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError, ReplayRunningError, SinkError
from headrace.kafka.client.broker_errors import Meaning, meaning, needs
from headrace.kafka.client.clients import ClientConfig, consumer
from headrace.kafka.client.offsets import commit_as_member
from headrace.kafka.dead_letters.letters import dead_letters_topic
from headrace.kafka.dead_letters.replayed import replay_group
from headrace.kafka.group.groups import describe_group, leave_group

_MEMBERSHIP = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "range",
    "auto.offset.reset": "earliest",
    # A replay does not poll while it sends, and keeps its partitions when others want to join.
    "max.poll.interval.ms": "86400000",
}
_JOIN_SECONDS = 30.0
_LEAVE_SECONDS = 10.0
_POLL_SECONDS = 0.1
_NO_MEMBER = frozenset({Meaning.EVICTED, Meaning.REBALANCING, Meaning.ID_IN_USE})


class SoleReplay:
    """Membership of a replay; made by :func:`sole_replay`."""

    def __init__(self, config: ClientConfig, topic: str) -> None:
        self._config = config
        self._topic = topic
        self._group = replay_group(topic)
        self._assigned: list[confluent_kafka.TopicPartition] | None = None
        self._member_id = ""
        self._consumer = consumer(config, self._group, _MEMBERSHIP)

    def join(self) -> None:
        """Joins the group; returns once no other replay of the topic can start.

        Raises:
            ReplayRunningError: if another replay is running.
            BrokerUnreachableError: if the brokers do not answer.
        """
        if describe_group(self._config, self._group).members:
            raise ReplayRunningError(self._topic, self._group)
        self._consumer.subscribe([dead_letters_topic(self._topic)], on_assign=self._assign)
        deadline = time.monotonic() + _JOIN_SECONDS
        while self._assigned is None and time.monotonic() < deadline:
            self._poll()
        if self._assigned is None and len(describe_group(self._config, self._group).members) < 2:  # noqa: PLR2004
            reason = f"cannot join group {self._group} within {_JOIN_SECONDS:.0f} s"
            raise BrokerUnreachableError(self._config.get("bootstrap.servers", ""), reason)
        # Of several members, one has partition 0: it continues, and the others are refused.
        if not any(partition.partition == 0 for partition in self._assigned or ()):
            raise ReplayRunningError(self._topic, self._group)
        self._member_id = self._consumer.memberid()

    def commit(self, offsets: list[confluent_kafka.TopicPartition]) -> None:
        """Commits ``offsets`` with their metadata, as the member that joined.

        Raises:
            SinkError: if the group has evicted this member; another replay may have started.
            BrokerUnreachableError: if the brokers do not answer.
        """
        try:
            # With another id it was evicted and has joined again: another replay may have run in
            # between.
            is_member = self._consumer.memberid() == self._member_id
            if is_member:
                commit_as_member(self._config, self._consumer, offsets)
        except KafkaException as error:
            if meaning(error.args[0]) not in _NO_MEMBER:
                raise
            is_member = False
        if not is_member:
            reason = "the session of this replay has ended; what it sent is sent again by another"
            raise SinkError(self._group, reason)

    def close(self) -> None:
        """Leaves the group."""
        leave_group(self._consumer, _LEAVE_SECONDS)
        self._consumer.close()

    def _assign(
        self,
        consumer: confluent_kafka.Consumer,
        partitions: list[confluent_kafka.TopicPartition],
    ) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)
        self._assigned = partitions

    def _poll(self) -> None:
        message = self._consumer.poll(_POLL_SECONDS)
        error = None if message is None else message.error()
        if error is not None and meaning(error) is Meaning.FORBIDDEN:
            with needs(self._config, "READ", f"group {self._group}"):
                raise KafkaException(error)


@contextmanager
def sole_replay(config: ClientConfig, topic: str) -> Iterator[SoleReplay]:
    """Prevents every other replay of ``topic`` (the origin's name) while it lasts.

    Raises:
        ReplayRunningError: if another replay is running.
        BrokerUnreachableError: if the brokers do not answer.
    """
    member = SoleReplay(config, topic)
    try:
        member.join()
        yield member
    finally:
        member.close()
