"""Offsets of partitions and of consumer groups, by the admin client and by consumers.

Offsets are always "the next record to read".
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.errors import BrokerUnreachableError, TopicMissingError
from headrace.kafka.client.admin_requests import (
    READ_ATTEMPT_SECONDS,
    REQUEST_TIMEOUT_SECONDS,
    admin_request,
    live_topics,
    log_in,
    request_with_retry,
    unless_missing,
)
from headrace.kafka.client.broker_errors import is_forbidden, needs
from headrace.kafka.client.clients import ClientConfig, consumer
from headrace.kafka.client.partitions import client_partition, client_partitions, partition_of
from headrace.model import TopicPartition

Result = TypeVar("Result")

_GROUP_SLICE_SECONDS = 3.0
# A client asks a coordinator that does not answer again and again, and can ask the same broker
# who coordinates. A new client asks a broker that has answered it, and may first need a login.
_ATTEMPTS_OF_A_CLIENT = 2
# Without a session, its limit is how long a commit waits for the coordinator.
_OFFSETS_CLIENT = {"session.timeout.ms": "6000", "socket.timeout.ms": "4000"}


def watermarks(
    config: ClientConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the (earliest, latest) offset of each partition, with one request to each broker.

    The latest is the last stable one: a record of an open transaction is not counted yet.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicMissingError: if a topic, or that partition of it, does not exist.
    """
    first, end = _offsets(config, partitions, OffsetSpec.earliest(), OffsetSpec.latest())
    return {
        partition: (int(first[partition].offset), int(end[partition].offset)) for partition in first
    }


def high_watermarks(
    config: ClientConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the offset after the last record of each partition, open transactions included.

    Raises what :func:`watermarks` does.
    """
    level = IsolationLevel.READ_UNCOMMITTED
    [ends] = _offsets(config, partitions, OffsetSpec.latest(), level=level)
    return {partition: int(end.offset) for partition, end in ends.items()}


def earliest_offsets(
    config: ClientConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the first offset of each partition. Raises what :func:`watermarks` does."""
    [starts] = _offsets(config, partitions, OffsetSpec.earliest())
    return {partition: int(start.offset) for partition, start in starts.items()}


def latest_offsets(
    config: ClientConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the last stable offset of each partition, and its leader's epoch.

    The epoch is -1 where brokers do not report it. Raises what :func:`watermarks` does.
    """
    [ends] = _offsets(config, partitions, OffsetSpec.latest())
    return {partition: (int(end.offset), leader_epoch(end)) for partition, end in ends.items()}


def offsets_since(
    config: ClientConfig,
    partitions: Iterable[TopicPartition],
    timestamp_ms: int,
    level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[TopicPartition, int]:
    """Returns the offset of the first record at or after a time; partitions without are left out.

    A time before 1970 is taken for 1970: no record is older, and to Kafka negative times are names,
    -1 that of the end. Brokers report none after the start of an open transaction, unless ``level``
    includes it. Raises what :func:`watermarks` does.
    """
    # To Kafka, negative timestamps are names, such as -1 for the end.
    spec = OffsetSpec.for_timestamp(max(timestamp_ms, 0))
    [records] = _offsets(config, partitions, spec, level=level)
    return {partition: int(at.offset) for partition, at in records.items() if at.offset >= 0}


def leader_epoch(result: Any) -> int:
    """Returns the leader epoch of an offset from brokers or a group; -1: they do not say."""
    return -1 if result.leader_epoch is None else int(result.leader_epoch)


def _offsets(
    config: ClientConfig,
    partitions: Iterable[TopicPartition],
    *specs: OffsetSpec,
    level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> list[dict[TopicPartition, Any]]:
    """Returns what brokers answer to each of ``specs``; all requests are sent before any wait."""
    requested = sorted(set(partitions))

    def request(client: AdminClient) -> list[dict[TopicPartition, Any]]:
        sent = [
            client.list_offsets(
                dict.fromkeys(map(client_partition, requested), spec),
                isolation_level=level,
                request_timeout=READ_ATTEMPT_SECONDS,
            )
            for spec in specs
        ]
        return [
            {p: _offset(client, p, futures[client_partition(p)]) for p in requested}
            for futures in sent
        ]

    if not requested:
        return [{} for _ in specs]
    with needs(config, "DESCRIBE", _topics(requested)):
        return admin_request(config, request)


def _offset(client: AdminClient, partition: TopicPartition, future: Future[Any]) -> Any:
    result = unless_missing(future)
    if result is not None:
        if result.offset == OFFSET_INVALID:  # no error, and no answer either: leaders are changing
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return result
    # "No leaders found" also means a partition whose only replica is down: that is no loss.
    topic = live_topics(client, [partition.topic]).get(partition.topic)
    if topic is None or partition.partition >= topic.partitions:
        raise TopicMissingError(str(partition))
    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))


def group_offsets(
    config: ClientConfig, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the committed offsets of a consumer group; partitions without one are left out.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    return {partition_of(offset): offset.offset for offset in committed(config, group, partitions)}


def committed(
    config: ClientConfig, group: str, partitions: Iterable[TopicPartition]
) -> list[confluent_kafka.TopicPartition]:
    """Returns committed offsets of a group, each with the metadata of its commit."""
    requested = client_partitions(partitions)
    if not requested:
        return []
    offsets = _group_request(
        config,
        group,
        requested,
        lambda client: client.committed(requested, timeout=_GROUP_SLICE_SECONDS),
    )
    _check_partitions(config, "DESCRIBE", offsets)
    return [offset for offset in offsets if offset.offset >= 0]


def commit_offsets(
    config: ClientConfig,
    group: str,
    offsets: Mapping[TopicPartition, int],
    epochs: Mapping[TopicPartition, int] | None = None,
) -> None:
    """Commits ``offsets`` for a group without members; returns when it is done.

    The epochs are those of the leaders that reported the offsets. A later start sees by them
    whether the log has been cut since.

    Raises:
        BrokerUnreachableError: if the brokers do not answer; the commit may have happened.
        KafkaException: if the group has members that subscribe, or a partition does not exist.
    """
    known = epochs or {}
    commit(
        config,
        group,
        [
            client_partition(partition, at, epoch=known.get(partition, -1))
            for partition, at in offsets.items()
        ],
    )


def commit(config: ClientConfig, group: str, offsets: list[confluent_kafka.TopicPartition]) -> None:
    """Commits ``offsets`` with their metadata for a group without members."""
    if offsets:
        results = _group_request(
            config,
            group,
            offsets,
            lambda client: client.commit(offsets=offsets, asynchronous=False),
        )
        _check_partitions(config, "READ", results or ())


def commit_as_member(
    config: ClientConfig,
    member: confluent_kafka.Consumer,
    offsets: list[confluent_kafka.TopicPartition],
) -> None:
    """Commits with metadata for the group that ``member`` has joined.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        KafkaException: if the group has evicted the member.
    """
    if offsets:
        with needs(config, "READ", _topics(offsets)):
            results = request_with_retry(
                config, member, lambda client: client.commit(offsets=offsets, asynchronous=False)
            )
        _check_partitions(config, "READ", results or ())


def _group_request(
    config: ClientConfig,
    group: str,
    partitions: Iterable[confluent_kafka.TopicPartition],
    request: Callable[[confluent_kafka.Consumer], Result],
) -> Result:
    """Returns the result of a request to the coordinator of a group.

    The coordinator does not answer a client to which it forbids the group, so that a denial is
    looked for after each attempt that was not answered. After two of them the client is replaced.

    Raises:
        AuthorizationError: if the brokers forbid the group.
        BrokerUnreachableError: if the brokers do not answer in time.
    """
    deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS
    log_in(config, deadline)
    with needs(config, "READ", _topics(partitions)), needs(config, "READ", f"group {group}"):
        attempts = 0
        while True:
            attempts += 1
            client = _group_client(os.getpid(), frozenset(config.items()), group)
            try:
                return request_with_retry(config, client, request)
            except BrokerUnreachableError:
                # A denied request is not answered, so it looks like an unreachable broker.
                _check_allowed(client)
                is_late = time.monotonic() > deadline
                if is_late or attempts % _ATTEMPTS_OF_A_CLIENT == 0:
                    _group_client.cache_clear()  # it may have lost all brokers: see lost_brokers.py
                if is_late:
                    raise


def _check_partitions(
    config: ClientConfig, operation: str, partitions: Iterable[confluent_kafka.TopicPartition]
) -> None:
    for partition in partitions:
        if partition.error is not None:
            with needs(config, operation, f"topic {partition.topic}"):
                raise KafkaException(partition.error)


# A consumer, not the admin client, whose requests to a group crash the process (SIGSEGV) when
# the group's coordinator has moved or is only just being created: it has no group of its own.
@functools.lru_cache(maxsize=32)
def _group_client(
    pid: int,  # noqa: ARG001  part of the key: librdkafka does not survive a fork
    config: frozenset[tuple[str, str]],
    group: str,
) -> confluent_kafka.Consumer:
    return consumer(dict(config), group, _OFFSETS_CLIENT)


def _check_allowed(client: confluent_kafka.Consumer) -> None:
    """Looks for a denial, which librdkafka reports once, and beside the unanswered request.

    The next request is sent by a new client, to which a denial is reported again.

    Raises:
        KafkaException: if the brokers forbid the group.
    """
    while (message := client.poll(0)) is not None:
        error = message.error()
        if error is not None and is_forbidden(error):
            _group_client.cache_clear()
            raise KafkaException(error)


def _topics(partitions: Iterable[TopicPartition | confluent_kafka.TopicPartition]) -> str:
    return "topic " + ", ".join(sorted({partition.topic for partition in partitions}))
