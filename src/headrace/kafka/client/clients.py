"""Clients of the brokers: their configuration, and the producers and consumers made of it.

Every function takes librdkafka's configuration as :func:`client_config` makes it, plain strings
that can travel to another process. What users set for readers and writers of records alone is in it
under names that begin with ``consumer.`` and ``producer.``: clients that only look something up do
without it, as their timing is headrace's own.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, BrokerMetadata

from headrace.kafka.admin.record_limits import MAX_MESSAGE_BYTES
from headrace.kafka.client.admin_client import OffsetsAdminClient
from headrace.settings import PRODUCER_SETTINGS, KafkaSettings

ClientConfig = Mapping[str, str]

READER, WRITER = "consumer.", "producer."
"""With what the names of settings of readers and of writers begin in a configuration."""
MESSAGE_TIMEOUT_MS = 180_000
ALWAYS_THERE = "__consumer_offsets"
"""The topic to fetch metadata of: a request for another name might create that topic."""

# A range has an end that librdkafka does not know of: what it has fetched beyond is discarded.
_BULK_READING = {
    "fetch.message.max.bytes": "1048576",
    "queued.min.messages": "50000",
    "queued.max.messages.kbytes": "65536",
    "fetch.queue.backoff.ms": "10",  # by default a queue that is full is filled again after 1 s
    "fetch.wait.max.ms": "50",
    "check.crcs": "true",  # as Java's consumer does: corrupted records would become rows
}

_LOG = logging.getLogger("headrace.kafka")
_LOG.addHandler(logging.NullHandler())  # silent unless the application asks for it
_FIRST_METADATA_SECONDS = 1.0
_BATCH_LIMITS = ("batch.size", "batch.num.messages")


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
    config |= {READER + name: value for name, value in kafka.consumer.items()}
    config |= {WRITER + name: value for name, value in kafka.producer.items()}
    if kafka.bootstrap_servers:
        config |= dict(kafka.security)
        config |= {name: secret.reveal() for name, secret in kafka.secrets.items()}
    return config


def reader_tuning(config: ClientConfig, defaults: ClientConfig) -> dict[str, str]:
    """Returns settings of a consumer that reads records: ``defaults``, unless users set others."""
    return dict(defaults) | set_for(READER, config)


def writer_tuning(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings of a producer of records: ``defaults``, unless users set others.

    Limits of batches, also those in ``config``, are the lower ones: brokers refuse a batch as a
    whole that is too large.
    """
    own, known = set_for(WRITER, config), {**config, **defaults}
    limits = {
        name: str(min(int(own[name]), int(known[name])))
        for name in _BATCH_LIMITS
        if name in own and name in known
    }
    return dict(defaults) | own | limits


def set_for(clients: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Returns what users set for ``READER`` or ``WRITER`` clients alone."""
    return {
        name.removeprefix(clients): value
        for name, value in config.items()
        if name.startswith(clients)
    }


def _common(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of all clients."""
    return {name: value for name, value in config.items() if not name.startswith((READER, WRITER))}


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
    own = {
        name: value
        for name, value in _common(config).items()
        if name != "partitioner" and name not in PRODUCER_SETTINGS
    }
    return connections | own


def broker_client(config: ClientConfig, broker: BrokerMetadata) -> AdminClient:
    """Returns a new admin client with the address of one broker, which gets most requests."""
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    address = {"bootstrap.servers": f"{host}:{broker.port}", "enable.sparse.connections": "true"}
    return OffsetsAdminClient(non_producer_settings(config) | address, logger=_LOG)


class ClientLog(Protocol):
    """What librdkafka logs to, within polls of the client; a ``logging.Logger`` is one."""

    def log(self, level: int, message: str, *parts: object) -> None:
        """Takes a line."""


def producer(
    config: Mapping[str, Any], tuning: ClientConfig | None = None, log: ClientLog = _LOG
) -> confluent_kafka.Producer:
    """Returns a producer that neither loses, reorders nor repeats while its session lasts.

    ``message.timeout.ms`` outlasts an outage of minutes: with a short one, an idempotent
    producer repeats and reorders (measured). Take its delivery reports by
    :func:`headrace.kafka.client.broker_errors.delivery_failure`; a failure means *unknown*.
    """
    return confluent_kafka.Producer(
        {"compression.type": "lz4", "linger.ms": "20"}
        | _common(config)
        | {
            "acks": "all",
            "enable.idempotence": "true",
            "message.timeout.ms": str(MESSAGE_TIMEOUT_MS),
            "message.max.bytes": str(MAX_MESSAGE_BYTES),
        }
        | dict(tuning or {}),
        logger=log,
    )


def connected_producer(
    config: Mapping[str, Any], tuning: ClientConfig | None = None, log: ClientLog = _LOG
) -> confluent_kafka.Producer:
    """Returns a producer that writes its first record at once: see :func:`fetch_metadata`.

    For records that something waits for. Where brokers do not answer it takes a second, so it must
    not be called on an event loop.
    """
    connected = producer(config, tuning, log)
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
        topic: a topic that exists, whose leaders the client will need.
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
    tuning = reader_tuning(config, _BULK_READING)
    lent = free.pop() if free else consumer(config, "headrace.tasks", tuning)
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
    pid: int,  # noqa: ARG001  part of the key: librdkafka does not survive a fork
    config: frozenset[tuple[str, str]],  # noqa: ARG001
) -> list[confluent_kafka.Consumer]:
    return []
