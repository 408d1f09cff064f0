"""Consumer groups as others see them: their members, and the age of their next records."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from headrace.kafka.client.admin_requests import (
    READ_ATTEMPT_SECONDS,
    REQUEST_TIMEOUT_SECONDS,
    admin_request,
    broker_ids,
)
from headrace.kafka.client.broker_errors import Meaning, meaning, needs
from headrace.kafka.client.clients import ClientConfig, consumer
from headrace.kafka.client.partitions import client_partition
from headrace.model import TopicPartition

_POLL_SECONDS = 0.2
_FIRST_RECORDS_SECONDS = 15.0
# The first record of each partition is enough, and is to come without a wait for more.
_ONE_RECORD = {
    "fetch.wait.max.ms": "50",
    "fetch.message.max.bytes": "65536",
    "queued.min.messages": "1",
}
_METADATA_LIMIT = "offset.metadata.max.bytes"


@dataclass(frozen=True)
class Member:
    """One member of a group; ``instance_id`` is empty unless its membership is static.

    ``client_id`` is what it calls itself: an instance of a worker, by its host and process.
    """

    host: str
    instance_id: str
    partitions: int
    client_id: str = ""

    @property
    def name(self) -> str:
        """The most specific of its names."""
        return self.instance_id or self.client_id or self.host


@dataclass(frozen=True)
class ConsumerGroup:
    """A group: ``state`` as Kafka names it, in small letters; ``none`` when it does not exist."""

    state: str
    members: tuple[Member, ...]


def leave_group(member: confluent_kafka.Consumer, seconds: float) -> None:
    """Leaves the group with ``member``; returns when the group knows, or after ``seconds``.

    ``close`` alone does not always report it: not while a rebalance is on its way and, with a
    cooperative assignor, not without partitions. The group would then count this member until its
    session has ended. A client that unsubscribes reports it, and has no id after that.
    """
    member.unsubscribe()
    deadline = time.monotonic() + seconds
    while member.memberid() and time.monotonic() < deadline:
        member.poll(_POLL_SECONDS)


def describe_group(config: ClientConfig, name: str) -> ConsumerGroup:
    """Returns the state and members of a group, of either protocol.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    with needs(config, "DESCRIBE", f"group {name}"):
        description = admin_request(config, lambda client: _describe(client, name))
    if description is None:
        return ConsumerGroup("none", ())
    state = description.state.name.lower().replace("_", "-")
    members = tuple(
        Member(
            member.host.lstrip("/"),
            member.group_instance_id or "",
            len(member.assignment.topic_partitions) if member.assignment else 0,
            member.client_id or "",
        )
        for member in description.members
    )
    return ConsumerGroup("none" if state == "dead" else state, members)


def delete_group(config: ClientConfig, name: str) -> None:
    """Deletes a group and its committed offsets. Harmless when there is none.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        KafkaException: if the group has members.
    """

    def delete(client: AdminClient) -> None:
        client.delete_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_SECONDS)[
            name
        ].result()

    try:
        with needs(config, "DELETE", f"group {name}"):
            admin_request(config, delete)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise


def offset_metadata_bytes(config: ClientConfig) -> int:
    """Returns how many bytes of metadata brokers take with a committed offset; 0: they do not say.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    try:
        return admin_request(config, _offset_metadata_bytes)
    except KafkaException:
        return 0  # to ask takes a permission of its own


def first_timestamps(
    config: ClientConfig, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Returns the timestamp of the first record at or after each position, in milliseconds.

    Partitions are left out where there is none, where it has no timestamp, and where it could not
    be read within some seconds.
    """
    if not positions:
        return {}
    reader = consumer(config, "headrace.lag", _ONE_RECORD)
    reader.assign([client_partition(partition, offset) for partition, offset in positions.items()])
    try:
        return _read_firsts(reader, set(positions))
    finally:
        reader.close()


def _read_firsts(
    reader: confluent_kafka.Consumer, missing: set[TopicPartition]
) -> dict[TopicPartition, int]:
    timestamps: dict[TopicPartition, int] = {}
    deadline = time.monotonic() + _FIRST_RECORDS_SECONDS
    while missing and time.monotonic() < deadline:
        message = reader.poll(_POLL_SECONDS)
        if message is None or message.topic() is None:
            continue
        partition = TopicPartition.of(message)
        if partition in missing:
            missing.discard(partition)
            reader.pause([client_partition(partition)])
            _, timestamp = message.timestamp()
            if message.error() is None and timestamp >= 0:
                timestamps[partition] = timestamp
    return timestamps


def _offset_metadata_bytes(client: AdminClient) -> int:
    ids = broker_ids(client)
    resources = [ConfigResource(ConfigResource.Type.BROKER, str(number)) for number in ids]
    futures = client.describe_configs(resources, request_timeout=READ_ATTEMPT_SECONDS)
    entries = [future.result()[_METADATA_LIMIT] for future in futures.values()]
    return min((int(entry.value) for entry in entries), default=0)


def _describe(client: AdminClient, name: str) -> Any:
    futures = client.describe_consumer_groups([name], request_timeout=READ_ATTEMPT_SECONDS)
    try:
        return futures[name].result()
    except KafkaException as error:
        if meaning(error.args[0]) is not Meaning.NO_GROUP:
            raise
        return None
