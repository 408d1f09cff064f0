"""Creates and writes compacted topics, which :mod:`headrace.kafka.table` reads as tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.kafka.admin.topics import ensure_topics
from headrace.kafka.client.admin_requests import admin_request, broker_ids
from headrace.kafka.client.broker_errors import delivery_failure, needs
from headrace.kafka.client.clients import ClientConfig, connected_producer
from headrace.kafka.write.record import until_taken
from headrace.model import Topic

_MAX_REPLICAS = 3  # as many as Kafka's own topics have
_SEND_SECONDS = 30.0
# Compaction and retention spare the open segment: with the default of a week they do nothing.
_SEGMENTS = {"segment.ms": "3600000"}
_SHORT_SEGMENTS = {"segment.ms": "60000", "cleanup.policy": "compact,delete"}


def ensure_changelog(config: ClientConfig, name: str, kept: timedelta | None = None) -> None:
    """Creates the topic unless it exists: one partition, compacted, three replicas if possible.

    Args:
        config: of librdkafka.
        name: of the topic.
        kept: about how long a value is, even the newest of its key; ``None``: for ever.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    ensure_topics(config, [changelog_topic(name, possible_replication(config), kept)])


def changelog_topic(name: str, replication: int, kept: timedelta | None = None) -> Topic:
    """Returns the declaration of such a topic: one partition, compacted.

    Args:
        name: of the topic.
        replication: how many replicas it has.
        kept: about how long a value is, even the newest of its key; ``None``: for ever.
    """
    return Topic(
        name,
        compaction=True,
        replication=replication,
        retention=kept,
        config=_SEGMENTS if kept is None else _SHORT_SEGMENTS,
    )


def possible_replication(config: ClientConfig) -> int:
    """Returns how many replicas a topic of headrace's own has: three, or one for each broker.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    return min(_MAX_REPLICAS, len(admin_request(config, broker_ids)))


def write_changelog(
    config: ClientConfig,
    name: str,
    changes: Mapping[bytes, bytes | None],
    *,
    partition: int = -1,
) -> list[int]:
    """Writes new values, ``None`` to delete a key; returns their offsets.

    Returns once all in-sync replicas have them. To the partition of each key, or to ``partition``.

    Raises:
        AuthorizationError: if an ACL is missing.
        KafkaException: if a value was not written, or it is not known whether it was.
    """
    reports: list[tuple[KafkaError | None, int]] = []

    def reported(error: KafkaError | None, message: confluent_kafka.Message) -> None:
        reports.append((delivery_failure(error, message), message.offset()))

    sender = connected_producer(config)
    for key, value in changes.items():
        until_taken(sender.produce, sender.poll, (name, value, key, partition, reported))
    if sender.flush(_SEND_SECONDS) > 0:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - its public name
    for failure, _ in reports:
        if failure is not None:
            with needs(config, "WRITE", f"topic {name}"):
                raise KafkaException(failure)
    return [offset for _, offset in reports]
