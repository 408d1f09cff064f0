"""Requests to the cluster by the admin client, one for each configuration and process.

A request is retried while leaders are elected, within :data:`REQUEST_TIMEOUT_SECONDS`.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import AuthenticationError, AuthorizationError, BrokerUnreachableError
from headrace.kafka.client.admin_client import OffsetsAdminClient
from headrace.kafka.client.broker_errors import LEADER_CHANGED, Meaning, meaning, needs, principal
from headrace.kafka.client.clients import ALWAYS_THERE, ClientConfig, non_producer_settings
from headrace.model import TopicPartition

Result = TypeVar("Result")
Client = TypeVar("Client", AdminClient, confluent_kafka.Consumer)

REQUEST_TIMEOUT_SECONDS = 15.0  # a dead broker's leaders move once its session of 9 s has expired
READ_ATTEMPT_SECONDS = 3.0
"""A read is sent again after this time, until REQUEST_TIMEOUT_SECONDS are over."""
NO_TOPIC_ID = str(confluent_kafka.Uuid(0, 0))

_LOG = logging.getLogger("headrace.kafka")
_RETRY_DELAY_SECONDS = 0.05
# error_cb is called within polls alone, so the wait for the first answer is cut into slices.
_LOGIN_SLICE_SECONDS = 1.0  # how soon a refused login is noticed
_METADATA_SECONDS = 5.0
_NO_TOKENS = "Failed to acquire"  # librdkafka's first words where the server of tokens fails


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A topic as the broker has it. ``topic_id`` changes when it is deleted and recreated.

    ``leaderless`` are the numbers of partitions that no broker leads now, ``replicas`` the ids of
    the brokers that have copies, by number of the partition.
    """

    name: str
    topic_id: str
    partitions: int
    replication: int
    leaderless: frozenset[int] = frozenset()
    replicas: Mapping[int, frozenset[int]] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, description: Any) -> LiveTopic:
        """Returns a topic by the description that an admin client has fetched."""
        partitions = description.partitions
        return cls(
            description.name,
            str(description.topic_id),
            len(partitions),
            min((len(partition.replicas) for partition in partitions), default=0),
            frozenset(
                partition.id
                for partition in partitions
                if partition.leader is None or partition.leader.id < 0
            ),
            {
                partition.id: frozenset(broker.id for broker in partition.replicas)
                for partition in partitions
            },
        )

    @property
    def has_id(self) -> bool:
        """Whether the cluster gives topics ids: old ones, and some compatible ones, do not."""
        return self.topic_id != NO_TOPIC_ID

    @property
    def all_partitions(self) -> list[TopicPartition]:
        """All partitions of the topic."""
        return [TopicPartition(self.name, p) for p in range(self.partitions)]


def admin(config: ClientConfig) -> AdminClient:
    """Returns this process's admin client for ``config``.

    Keep it until its results are there: one that is collected cancels its requests, and
    :func:`admin_request` discards the cached one where it reaches no broker.
    """
    return _cluster(os.getpid(), frozenset(config.items())).client


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
        log_in(config, deadline)
        try:
            return request_with_retry(config, admin(config), request)
        except BrokerUnreachableError:
            _cluster.cache_clear()  # it may have lost all brokers: see lost_brokers.py
            if time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_DELAY_SECONDS)


def log_in(config: ClientConfig, deadline: float) -> None:
    """Waits for the first answer, since a refused login looks like a silent broker.

    Only the first answer to a client is awaited: a login that is refused later may be due to an
    unreachable server of tokens, and is retried by librdkafka.

    Raises:
        AuthenticationError: if the login is refused.
        BrokerUnreachableError: if the brokers do not answer until ``deadline``.
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


def request_with_retry(
    config: ClientConfig, client: Client, request: Callable[[Client], Result]
) -> Result:
    """Returns the result of a request of ``client``, retried as :func:`admin_request` says."""
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
            # The next request would go to the old leader again.
            if cause.name() in LEADER_CHANGED:
                _refresh_metadata(client)
        time.sleep(_RETRY_DELAY_SECONDS)


def _refresh_metadata(client: AdminClient | confluent_kafka.Consumer) -> None:
    """Fetches the metadata of all topics, with the leaders and epochs that each request carries.

    A client that neither reads nor writes fetches no newer ones by itself, so that brokers would
    refuse its epoch for minutes. Metadata of one topic would leave the epochs of others as they
    are.
    """
    with suppress(KafkaException):
        client.list_topics(timeout=_METADATA_SECONDS)


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
            return admin_request(config, lambda client: live_topics(client, names))
    except AuthorizationError:
        if len(names) == 1:
            raise
        # One denied topic fails a request for many: asked alone, the error names it.
        return {name: live for name in names for name, live in describe(config, [name]).items()}


def topic_ids(config: ClientConfig, topics: Iterable[str]) -> dict[str, str]:
    """Returns the id of each of ``topics`` that exists.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    return {name: topic.topic_id for name, topic in describe(config, topics).items()}


def broker_ids(client: AdminClient) -> list[int]:
    """Returns the ids of the brokers that are up, without the metadata of every topic."""
    return sorted(client.list_topics(ALWAYS_THERE, timeout=REQUEST_TIMEOUT_SECONDS).brokers)


def live_topics(client: AdminClient, names: Sequence[str]) -> dict[str, LiveTopic]:
    """Returns those of the named topics that exist, with one request of ``client``."""
    futures = client.describe_topics(
        confluent_kafka.TopicCollection(names), request_timeout=READ_ATTEMPT_SECONDS
    )
    answers = {name: unless_missing(future) for name, future in futures.items()}
    return {name: LiveTopic.of(answer) for name, answer in answers.items() if answer is not None}


def unless_missing(future: Future[Any]) -> Any:
    """Returns the result of a request; ``None``: its topic or partition does not exist."""
    try:
        return future.result()
    except KafkaException as error:
        if meaning(error.args[0]) is not Meaning.MISSING:
            raise
        return None


class _LastError:
    """Keeps librdkafka's latest error message: the reason behind a bare "timed out"."""

    def __init__(self) -> None:
        self.text = ""
        self.refused_login = ""

    def __call__(self, error: KafkaError) -> None:
        # It follows from the errors of the brokers, which say more.
        if error.name() != "_ALL_BROKERS_DOWN":
            self.text = error.str()
        if error.name() == "_AUTHENTICATION" and _NO_TOKENS not in self.text:
            self.refused_login = self.text


@dataclass(frozen=True, slots=True)
class _Cluster:
    client: AdminClient
    last_error: _LastError
    logged_in: threading.Event = field(default_factory=threading.Event)


@functools.lru_cache(maxsize=8)
def _cluster(pid: int, config: frozenset[tuple[str, str]]) -> _Cluster:  # noqa: ARG001
    # The process id is part of the key because librdkafka does not survive a fork.
    last_error = _LastError()
    settings: dict[str, Any] = non_producer_settings(dict(config))
    client = OffsetsAdminClient(settings | {"error_cb": last_error}, logger=_LOG)
    return _Cluster(client, last_error)


def _reason(config: ClientConfig, cause: KafkaError) -> str:
    cluster = _cluster(os.getpid(), frozenset(config.items()))
    cluster.client.poll(0)
    return cluster.last_error.text or cause.str()


def _servers(config: ClientConfig) -> str:
    return config.get("bootstrap.servers", "")
