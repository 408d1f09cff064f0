"""Waits until every broker knows a topic: each learns of it by itself, after the controller.

A client asks any broker for metadata. So of two requests, one may be answered with a topic that was
just created, and the next one without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, BrokerMetadata, ClusterMetadata

from headrace.errors import TopicChangeError, TopicMissingError
from headrace.kafka.client.admin_requests import READ_ATTEMPT_SECONDS, admin_request
from headrace.kafka.client.broker_errors import Meaning, is_forbidden, meaning, needs
from headrace.kafka.client.clients import ClientConfig, broker_client

KNOWN_WITHIN = timedelta(seconds=30)
# A broker shows new topics only after it has made the logs of those that were created before them.
_LOG_MADE_WITHIN = timedelta(milliseconds=50)
_POLL_SECONDS = 0.05
_Answer = TypeVar("_Answer")


def await_brokers(config: ClientConfig, partitions: Mapping[str, int]) -> None:
    """Returns once each broker shows topics with so many partitions.

    A broker that does not respond is waited for as long as the others name it, since it may come
    back with what it knew; at most for :data:`KNOWN_WITHIN`, and 50 ms more for each partition.

    Args:
        config: of the cluster.
        partitions: how many each topic has, by name.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if no broker answers.
        TopicChangeError: if a broker that responds does not show a topic after that time.
    """
    within = KNOWN_WITHIN + sum(partitions.values()) * _LOG_MADE_WITHIN
    deadline = time.monotonic() + within.total_seconds()
    known = _Known(partitions)
    while partitions:
        with needs(config, "DESCRIBE", f"topic {', '.join(partitions)}"):
            brokers = admin_request(config, known.ask_any)
        silent = {number for number, broker in brokers.items() if not known.ask(config, broker)}
        lacking = {number: names for number in brokers if (names := known.lacking(number))}
        if not lacking:
            return
        if time.monotonic() > deadline:
            for number in lacking.keys() - silent:
                reason = f"it was changed, but broker {number} does not show it"
                raise TopicChangeError(", ".join(lacking[number]), reason)
            return
        time.sleep(_POLL_SECONDS)


class _Known:
    """Which brokers have shown topics with so many partitions."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = partitions
        self._shown: set[tuple[int, str]] = set()

    def lacking(self, broker: int) -> list[str]:
        return [name for name in self._partitions if (broker, name) not in self._shown]

    def ask_any(self, client: AdminClient) -> dict[int, BrokerMetadata]:
        """Asks any broker; returns those that it knows."""
        return self._take(client, list(self._partitions), -1)

    def ask(self, config: ClientConfig, broker: BrokerMetadata) -> bool:
        """Asks a broker for what it has not shown yet; returns whether it responds."""
        if names := self.lacking(broker.id):
            client = broker_client(config, broker)
            try:
                self._take(client, names, broker.id)
            except KafkaException:
                return False
        return True

    def _take(
        self, client: AdminClient, names: Sequence[str], bootstrap: int
    ) -> dict[int, BrokerMetadata]:
        """Asks for all topics at once, since a request names one or none; returns the brokers.

        Then for one that is not among them: an answer for all leaves out what is forbidden.
        """
        brokers: dict[int, BrokerMetadata] = {}
        if len(names) > 1:
            metadata = client.list_topics(timeout=READ_ATTEMPT_SECONDS)
            brokers = dict(metadata.brokers)
            names = self._note(metadata, names, bootstrap)
        for name in names[:1]:
            metadata = client.list_topics(name, timeout=READ_ATTEMPT_SECONDS)
            brokers = dict(metadata.brokers)
            topic = metadata.topics.get(name)
            if topic is not None and topic.error is not None and is_forbidden(topic.error):
                raise KafkaException(topic.error)
            self._note(metadata, [name], bootstrap)
        return brokers

    def _note(self, metadata: ClusterMetadata, names: Sequence[str], bootstrap: int) -> list[str]:
        """Notes which topics a broker shows; returns the others."""
        # -1: of the connection to the address that the client was given.
        number = bootstrap if metadata.orig_broker_id == -1 else metadata.orig_broker_id
        counts = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
        shown = [name for name in names if counts.get(name, -1) >= self._partitions[name]]
        self._shown.update((number, name) for name in shown)
        return [name for name in names if (number, name) not in self._shown]


def until_known(
    ask: Callable[[], Mapping[str, _Answer]],
    topics: Collection[str],
    within: timedelta = KNOWN_WITHIN,
    poll_seconds: float = _POLL_SECONDS,
) -> Mapping[str, _Answer]:
    """Returns the answer of brokers about topics that exist, once it has all of them.

    A broker that has just started, or a topic that was just created: it is asked for again.

    Raises:
        TopicMissingError: if the answer lacks one after that time.
    """
    deadline = time.monotonic() + within.total_seconds()
    while True:
        answer = _unless_missing(ask)
        missing = [name for name in topics if name not in answer]
        if not missing:
            return answer
        if time.monotonic() > deadline:
            raise TopicMissingError(missing[0])
        time.sleep(poll_seconds)


def _unless_missing(ask: Callable[[], Mapping[str, _Answer]]) -> Mapping[str, _Answer]:
    try:
        return ask()
    except TopicMissingError:
        return {}
    except KafkaException as error:
        if meaning(error.args[0]) is not Meaning.MISSING:
            raise
        return {}
