"""The broker's client: configuration, admin calls in batches, consumer group offsets.

Every function takes librdkafka's configuration as :func:`client_config` makes it, plain strings
that can travel to another process, and keeps one admin client for it per process. Offsets are
always "the next record to read".
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, BrokerMetadata, OffsetSpec

from headrace.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerUnreachableError,
    TopicMissingError,
)
from headrace.kafka.admin.record_limits import MAX_MESSAGE_BYTES
from headrace.kafka.client.admin_client import OffsetsAdminClient
from headrace.kafka.client.broker_errors import (
    LEADER_CHANGED,
    Meaning,
    is_forbidden,
    meaning,
    needs,
    principal,
)
from headrace.kafka.client.partitions import client_partition, client_partitions, partition_of
from headrace.model import TopicPartition
from headrace.settings import PRODUCER_SETTINGS, KafkaSettings

ClientConfig = Mapping[str, str]
Result = TypeVar("Result")
Client = TypeVar("Client", AdminClient, confluent_kafka.Consumer)

REQUEST_TIMEOUT_SECONDS = 15.0  # a dead broker's leaders move once its session of 9 s has expired
READ_ATTEMPT_SECONDS = 3.0
"""A read is sent again after this time, until REQUEST_TIMEOUT_SECONDS are over."""
NO_TOPIC_ID = str(confluent_kafka.Uuid(0, 0))
MESSAGE_TIMEOUT_MS = 180_000

# A range has an end that librdkafka does not know of: what it has fetched beyond is thrown away.
_BULK_READING = {
    "fetch.message.max.bytes": "1048576",
    "queued.min.messages": "50000",
    "queued.max.messages.kbytes": "65536",
    "fetch.queue.backoff.ms": "10",  # by default a queue that is full is filled again after 1 s
    "fetch.wait.max.ms": "50",
    "check.crcs": "true",  # as Java's consumer does: damage on the way would land as rows
}

_LOG = logging.getLogger("headrace.kafka")
_LOG.addHandler(logging.NullHandler())  # silent unless the application asks for it
_RETRY_DELAY_SECONDS = 0.05
# error_cb is called within polls alone, so the wait for the first answer is cut into slices.
_LOGIN_SLICE_SECONDS = 1.0  # so soon a login that is refused is noticed
_METADATA_SECONDS = 5.0
_FIRST_METADATA_SECONDS = 1.0
ALWAYS_THERE = "__consumer_offsets"
"""The topic to fetch metadata of: a request for another name might create that topic."""
_GROUP_SLICE_SECONDS = 3.0
# Without a session, its limit is how long a commit waits for the coordinator. A coordinator that
# does not answer is asked twice, then a broker which one it is: within REQUEST_TIMEOUT_SECONDS.
_OFFSETS_CLIENT = {"session.timeout.ms": "6000", "socket.timeout.ms": "4000"}
_TOKENS_AWAY = "Failed to acquire"  # so librdkafka begins where a server of tokens is away


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A topic as the broker has it. ``topic_id`` changes when it is deleted and recreated.

    ``leaderless`` are the numbers of partitions that no broker leads now.
    """

    name: str
    topic_id: str
    partitions: int
    replication: int
    leaderless: frozenset[int] = frozenset()

    @property
    def has_id(self) -> bool:
        """Whether the cluster gives topics ids: old ones, and some compatible ones, do not."""
        return self.topic_id != NO_TOPIC_ID

    @property
    def all_partitions(self) -> list[TopicPartition]:
        """All partitions of the topic."""
        return [TopicPartition(self.name, p) for p in range(self.partitions)]


def client_config(kafka: KafkaSettings, bootstrap: str) -> dict[str, str]:
    """Returns librdkafka's configuration for every client of the cluster at ``bootstrap``.

    Secrets are revealed here and nowhere else. They apply to the user's own cluster only: the
    embedded one has none.
    """
    config = {
        "bootstrap.servers": bootstrap,
        # librdkafka's default (CRC32) sends a key elsewhere than every Java client and Spark do.
        "partitioner": "murmur2_random",
    } | dict(kafka.client)
    if kafka.bootstrap_servers:
        config |= dict(kafka.security)
        config |= {name: secret.reveal() for name, secret in kafka.secrets.items()}
    return config


def non_producer_settings(config: ClientConfig) -> dict[str, str]:
    """Returns the settings of a consumer or an admin client.

    Unless the user chose otherwise, it connects to all brokers that it knows. With sparse
    connections, librdkafka's default, a client connects without any delay to a broker that a
    request waits for, such as the controller, while that broker refuses: 11,000 times a second.
    Where all brokers are down, it re-bootstraps six times a second; what it logs of that waits for
    its next poll, in a list that is walked for each further line.
    """
    connections = {"enable.sparse.connections": "false"}
    # librdkafka warns of the settings of a producer.
    own = {k: v for k, v in config.items() if k != "partitioner" and k not in PRODUCER_SETTINGS}
    return connections | own


def admin(config: ClientConfig) -> AdminClient:
    """Returns this process's admin client for ``config``.

    Keep it until its results are there: one that is collected cancels its requests, and
    :func:`admin_request` discards the cached one where it reaches no broker.
    """
    return _cluster(os.getpid(), frozenset(config.items())).client


def broker_client(config: ClientConfig, broker: BrokerMetadata) -> AdminClient:
    """Returns a new client that is given the address of one broker, and mostly asks that one."""
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    address = {"bootstrap.servers": f"{host}:{broker.port}", "enable.sparse.connections": "true"}
    return OffsetsAdminClient(non_producer_settings(config) | address, logger=_LOG)


def producer(
    config: Mapping[str, Any], tuning: ClientConfig | None = None
) -> confluent_kafka.Producer:
    """Returns a producer that neither loses, reorders nor repeats while its session lasts.

    ``message.timeout.ms`` outlasts an outage of minutes: with a short one, an idempotent
    producer repeats and reorders (measured). Take its delivery reports by
    :func:`headrace.kafka.client.broker_errors.delivery_failure`; a failure means *unknown*.
    """
    return confluent_kafka.Producer(
        {"compression.type": "lz4", "linger.ms": "20"}
        | dict(config)
        | {
            "acks": "all",
            "enable.idempotence": "true",
            "message.timeout.ms": str(MESSAGE_TIMEOUT_MS),
            "message.max.bytes": str(MAX_MESSAGE_BYTES),
        }
        | dict(tuning or {}),
        logger=_LOG,
    )


def connected_producer(
    config: Mapping[str, Any], tuning: ClientConfig | None = None
) -> confluent_kafka.Producer:
    """Returns a producer that writes its first record at once: see :func:`fetch_metadata`.

    For records that something waits for. Where brokers do not answer it takes a second, so it must
    not be called on an event loop.
    """
    connected = producer(config, tuning)
    fetch_metadata(connected)
    return connected


def fetch_metadata(
    client: confluent_kafka.Producer | confluent_kafka.Consumer, topic: str = ALWAYS_THERE
) -> None:
    """Fetches metadata, so that a new client has connections. Waits a second at most.

    A client that knows no broker yet asks for the id of an idempotent producer, and for the offset
    of a name such as ``OFFSET_BEGINNING``, half a second later. Brokers that do not answer are no
    error here.

    Args:
        client: the client.
        topic: a topic that exists, whose leaders the client is to know.
    """
    with suppress(KafkaException):
        client.list_topics(topic, timeout=_FIRST_METADATA_SECONDS)


def consumer(
    config: ClientConfig, group: str = "headrace.reader", tuning: ClientConfig | None = None
) -> confluent_kafka.Consumer:
    """Returns a consumer that is assigned its partitions by hand and commits nothing by itself."""
    return confluent_kafka.Consumer(
        non_producer_settings(config)
        | {
            "group.id": group,
            "enable.auto.commit": "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
        | dict(tuning or {}),
        logger=_LOG,
    )


@contextmanager
def task_consumer(config: ClientConfig) -> Iterator[confluent_kafka.Consumer]:
    """Lends a consumer of this process for reading ranges in bulk, kept for later batches.

    Spark reuses its Python workers, and a new consumer costs connections, metadata and threads. A
    range may be read within the reading of another one: each has a consumer of its own. One that
    has met an error is not lent again.
    """
    free = _free_consumers(os.getpid(), frozenset(config.items()))
    lent = free.pop() if free else consumer(dict(config), "headrace.tasks", _BULK_READING)
    try:
        yield lent
    except Exception:
        lent.unassign()
        raise
    except BaseException:  # the reader needs no more
        lent.unassign()
        free.append(lent)
        raise
    lent.unassign()
    free.append(lent)


@functools.lru_cache(maxsize=8)
def _free_consumers(
    pid: int,  # noqa: ARG001  part of the key, see _admin
    config: frozenset[tuple[str, str]],  # noqa: ARG001
) -> list[confluent_kafka.Consumer]:
    return []


def describe(config: ClientConfig, topics: Iterable[str]) -> dict[str, LiveTopic]:
    """Returns those of ``topics`` that exist, by name.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    names = sorted(set(topics))
    if not names:
        return {}
    try:
        with needs(config, "DESCRIBE", f"topic {', '.join(names)}"):
            descriptions = admin_request(config, lambda client: _describe(client, names))
    except AuthorizationError:
        if len(names) == 1:
            raise
        return {name: live for name in names for name, live in describe(config, [name]).items()}
    return {name: _live(topic) for name, topic in descriptions.items() if topic is not None}


def topic_ids(config: ClientConfig, topics: Iterable[str]) -> dict[str, str]:
    """Returns the id of each of ``topics`` that exists.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    return {name: topic.topic_id for name, topic in describe(config, topics).items()}


def broker_ids(client: AdminClient) -> list[int]:
    """Returns the ids of the brokers that are there now, without the metadata of every topic."""
    return sorted(client.list_topics(ALWAYS_THERE, timeout=REQUEST_TIMEOUT_SECONDS).brokers)


def watermarks(
    config: ClientConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the (earliest, latest) offset of each partition, with one request to each broker.

    The latest is the last stable one: a record of an open transaction is not counted yet.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicMissingError: if a topic, or that partition of it, does not exist.
    """
    requested = sorted(set(partitions))
    if not requested:
        return {}
    with needs(config, "DESCRIBE", _topics(requested)):
        return admin_request(config, lambda client: _watermarks(client, requested))


def high_watermarks(
    config: ClientConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the offset after the last record of each partition, open transactions included.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicMissingError: if a topic, or that partition of it, does not exist.
    """
    requested = sorted(set(partitions))
    if not requested:
        return {}

    def request(client: AdminClient) -> dict[TopicPartition, int]:
        level = IsolationLevel.READ_UNCOMMITTED
        results = _list_offsets(client, requested, OffsetSpec.latest(), level)
        return {
            partition: _offset(client, partition, results[partition]) for partition in requested
        }

    with needs(config, "DESCRIBE", _topics(requested)):
        return admin_request(config, request)


def earliest_offsets(
    config: ClientConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Returns the first offset of each partition. Raises what :func:`watermarks` does."""
    requested = sorted(set(partitions))
    results = _offsets(config, requested, OffsetSpec.earliest())
    return {partition: int(result.offset) for partition, result in results.items()}


def latest_offsets(
    config: ClientConfig, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the last stable offset of each partition, and the epoch of the leader that says so.

    The epoch is -1 where brokers do not tell it. Raises what :func:`watermarks` does.
    """
    requested = sorted(set(partitions))
    results = _offsets(config, requested, OffsetSpec.latest())
    return {
        partition: (int(result.offset), leader_epoch(result))
        for partition, result in results.items()
    }


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

    With the epochs of the leaders that told them, a log that is cut later is known by the commit.

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
            results = _request_with_retry(
                config, member, lambda client: client.commit(offsets=offsets, asynchronous=False)
            )
        _check_partitions(config, "READ", results or ())


def admin_request(config: ClientConfig, request: Callable[[AdminClient], Result]) -> Result:
    """Returns the result of an admin request, which is retried while leaders are elected.

    ``request`` must wait for its futures itself: a client that is collected cancels them.

    Raises:
        AuthenticationError: if the login is refused.
        BrokerUnreachableError: if the brokers do not answer in time.
        KafkaException: if the broker answers with an error that a retry does not cure.
    """
    deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS
    while True:
        _log_in(config, deadline)
        try:
            return _request_with_retry(config, admin(config), request)
        except BrokerUnreachableError:
            _cluster.cache_clear()  # it may have lost all brokers: see lost_brokers.py
            if time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_DELAY_SECONDS)


def _log_in(config: ClientConfig, deadline: float) -> None:
    """Waits for the first answer, since a login that is refused looks like a broker that is silent.

    Once a client: a login that is refused later may be a server of tokens that is away, and passes.
    """
    cluster = _cluster(os.getpid(), frozenset(config.items()))
    while not cluster.logged_in.is_set():
        try:
            cluster.client.list_topics(ALWAYS_THERE, timeout=_LOGIN_SLICE_SECONDS)
            cluster.logged_in.set()
        except KafkaException as error:
            cluster.client.poll(_RETRY_DELAY_SECONDS)
            if reason := cluster.last_error.refused_login:
                raise AuthenticationError(_servers(config), principal(config), reason) from error
            if time.monotonic() > deadline:
                reason = _reason(config, error.args[0])
                raise BrokerUnreachableError(_servers(config), reason) from error


def _group_request(
    config: ClientConfig,
    group: str,
    partitions: Iterable[confluent_kafka.TopicPartition],
    request: Callable[[confluent_kafka.Consumer], Result],
) -> Result:
    """Returns the result of a request to the coordinator of a group.

    The coordinator does not answer a client to which it forbids the group.

    Raises:
        AuthorizationError: if the brokers forbid the group.
        BrokerUnreachableError: if the brokers do not answer in time.
    """
    deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS
    _log_in(config, deadline)
    client = _group(config, group)
    with needs(config, "READ", _topics(partitions)), needs(config, "READ", f"group {group}"):
        while True:
            try:
                return _request_with_retry(config, client.consumer, request)
            except BrokerUnreachableError:
                _check_allowed(client)
                if time.monotonic() > deadline:
                    _group_client.cache_clear()  # it may have lost all brokers: see lost_brokers.py
                    raise


def _request_with_retry(
    config: ClientConfig, client: Client, request: Callable[[Client], Result]
) -> Result:
    deadline = time.monotonic() + REQUEST_TIMEOUT_SECONDS
    while True:
        try:
            return request(client)
        except KafkaException as error:
            cause = error.args[0]
            is_transient = meaning(cause) is Meaning.TRANSIENT
            is_late = time.monotonic() > deadline
            if meaning(cause) is Meaning.UNREACHABLE or (is_transient and is_late):
                raise BrokerUnreachableError(_servers(config), _reason(config, cause)) from error
            if not is_transient:
                raise
            if cause.name() in LEADER_CHANGED:
                _refresh_metadata(client)
        time.sleep(_RETRY_DELAY_SECONDS)


def _refresh_metadata(client: AdminClient | confluent_kafka.Consumer) -> None:
    """Leaders and their epochs are kept with the metadata, and go with each request.

    A client that neither reads nor writes fetches no newer ones by itself, so that brokers would
    refuse its epoch for minutes. Those of all topics are fetched: metadata of one topic leaves the
    epochs of others as they are.
    """
    with suppress(KafkaException):
        client.list_topics(timeout=_METADATA_SECONDS)


class _LastError:
    """Keeps librdkafka's latest error message: the reason behind a bare "timed out"."""

    def __init__(self) -> None:
        self.text = ""
        self.refused_login = ""

    def __call__(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self.text = error.str()
        if error.name() == "_AUTHENTICATION" and _TOKENS_AWAY not in self.text:
            self.refused_login = self.text


@dataclass(frozen=True, slots=True)
class _Cluster:
    client: AdminClient
    last_error: _LastError
    logged_in: threading.Event = field(default_factory=threading.Event)


class _GroupClient:
    """A consumer for the offsets of a group that it is no member of."""

    def __init__(self, config: ClientConfig, group: str) -> None:
        self.consumer = consumer(config, group, _OFFSETS_CLIENT)

    def check_allowed(self) -> None:
        """Looks for what librdkafka says once, and beside the request that it does not answer.

        Raises:
            KafkaException: if the brokers forbid the group.
        """
        while (message := self.consumer.poll(0)) is not None:
            error = message.error()
            if error is not None and is_forbidden(error):
                raise KafkaException(error)


@functools.lru_cache(maxsize=8)
def _cluster(pid: int, config: frozenset[tuple[str, str]]) -> _Cluster:  # noqa: ARG001
    # The process id is part of the key because librdkafka does not survive a fork.
    last_error = _LastError()
    settings: dict[str, Any] = non_producer_settings(dict(config))
    client = OffsetsAdminClient(settings | {"error_cb": last_error}, logger=_LOG)
    return _Cluster(client, last_error)


# A consumer, not the admin client, whose requests to a group crash the process (SIGSEGV) when
# the group's coordinator has moved or is only just being made: it has no group of its own.
@functools.lru_cache(maxsize=32)
def _group_client(
    pid: int,  # noqa: ARG001 - see _cluster
    config: frozenset[tuple[str, str]],
    group: str,
) -> _GroupClient:
    return _GroupClient(dict(config), group)


def _check_allowed(client: _GroupClient) -> None:
    """Looks for a denial. The next request is a new client's, which is told of one again."""
    try:
        client.check_allowed()
    except KafkaException:
        _group_client.cache_clear()
        raise


def _group(config: ClientConfig, group: str) -> _GroupClient:
    return _group_client(os.getpid(), frozenset(config.items()), group)


def _reason(config: ClientConfig, cause: KafkaError) -> str:
    cluster = _cluster(os.getpid(), frozenset(config.items()))
    cluster.client.poll(0)
    return cluster.last_error.text or cause.str()


def _servers(config: ClientConfig) -> str:
    return config.get("bootstrap.servers", "")


def _topics(partitions: Iterable[TopicPartition | confluent_kafka.TopicPartition]) -> str:
    return "topic " + ", ".join(sorted({partition.topic for partition in partitions}))


def _describe(client: AdminClient, names: Sequence[str]) -> dict[str, Any]:
    futures = client.describe_topics(
        confluent_kafka.TopicCollection(names), request_timeout=READ_ATTEMPT_SECONDS
    )
    return {name: _unless_missing(future) for name, future in futures.items()}


def _unless_missing(future: Future[Any]) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        if meaning(error.args[0]) is not Meaning.MISSING:
            raise
        return None


def _live(topic: Any) -> LiveTopic:
    replication = min((len(partition.replicas) for partition in topic.partitions), default=0)
    leaderless = frozenset(
        partition.id
        for partition in topic.partitions
        if partition.leader is None or partition.leader.id < 0
    )
    topic_id = str(topic.topic_id)
    return LiveTopic(topic.name, topic_id, len(topic.partitions), replication, leaderless)


def _offsets(
    config: ClientConfig, partitions: Sequence[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, Any]:
    def request(client: AdminClient) -> dict[TopicPartition, Any]:
        futures = _list_offsets(client, partitions, spec)
        return {
            partition: _offset_result(client, partition, futures[partition])
            for partition in partitions
        }

    if not partitions:
        return {}
    with needs(config, "DESCRIBE", _topics(partitions)):
        return admin_request(config, request)


def leader_epoch(result: Any) -> int:
    """Returns the leader epoch of an offset from brokers or a group; -1: they do not say."""
    return -1 if result.leader_epoch is None else int(result.leader_epoch)


def _watermarks(
    client: AdminClient, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    earliest = _list_offsets(client, partitions, OffsetSpec.earliest())
    latest = _list_offsets(client, partitions, OffsetSpec.latest())
    return {
        partition: (
            _offset(client, partition, earliest[partition]),
            _offset(client, partition, latest[partition]),
        )
        for partition in partitions
    }


def offsets_since(
    config: ClientConfig,
    partitions: Iterable[TopicPartition],
    timestamp_ms: int,
    level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[TopicPartition, int]:
    """Returns the offset of the first record at or after a time; partitions without are left out.

    A time before 1970 is taken for 1970: no record is older, and to Kafka negative times are names,
    -1 that of the end. Brokers tell of none after the beginning of an open transaction, unless
    ``level`` says so.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
        TopicMissingError: if a topic, or that partition of it, does not exist.
    """
    requested = sorted(set(partitions))
    if not requested:
        return {}
    offsets = admin_request(
        config, lambda client: _offsets_since(client, requested, max(timestamp_ms, 0), level)
    )
    return {partition: offset for partition, offset in offsets.items() if offset >= 0}


def _offsets_since(
    client: AdminClient,
    partitions: Sequence[TopicPartition],
    timestamp_ms: int,
    level: IsolationLevel,
) -> dict[TopicPartition, int]:
    results = _list_offsets(client, partitions, OffsetSpec.for_timestamp(timestamp_ms), level)
    return {partition: _offset(client, partition, results[partition]) for partition in partitions}


def _list_offsets(
    client: AdminClient,
    partitions: Sequence[TopicPartition],
    spec: OffsetSpec,
    level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[TopicPartition, Future[Any]]:
    futures = client.list_offsets(
        dict.fromkeys(map(client_partition, partitions), spec),
        isolation_level=level,
        request_timeout=READ_ATTEMPT_SECONDS,
    )
    return {partition_of(place): future for place, future in futures.items()}


def _offset(client: AdminClient, partition: TopicPartition, future: Future[Any]) -> int:
    return int(_offset_result(client, partition, future).offset)


def _offset_result(client: AdminClient, partition: TopicPartition, future: Future[Any]) -> Any:
    result = _unless_missing(future)
    if result is not None:
        if result.offset == OFFSET_INVALID:  # no error, and no answer either: leaders are changing
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return result
    # "No leaders found" also means a partition whose only replica is down: that is no loss.
    topic = _describe(client, [partition.topic])[partition.topic]
    if topic is None or partition.partition >= len(topic.partitions):
        raise TopicMissingError(str(partition))
    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))


def _check_partitions(
    config: ClientConfig, operation: str, partitions: Iterable[confluent_kafka.TopicPartition]
) -> None:
    for partition in partitions:
        if partition.error is not None:
            with needs(config, operation, f"topic {partition.topic}"):
                raise KafkaException(partition.error)
