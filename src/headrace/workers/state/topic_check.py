"""Checks that the topic of a worker's state can have it."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaException

from headrace.errors import AuthorizationError, StateRefusedError
from headrace.kafka.admin.topics import topic_settings
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.clients import ClientConfig
from headrace.workers.declaration import Worker

_MIN_BYTES = 64 * 1024  # a position, with all metadata of a commit, must fit
_LOG = logging.getLogger("headrace.workers")


def check_state_topic(worker: Worker, config: ClientConfig) -> None:
    """Checks that the topic has the partitions of the topic that is read, and loses nothing.

    Raises:
        StateRefusedError: if it has not, or does.
        BrokerUnreachableError: if the brokers do not answer.
    """
    check_partitions(worker, config)
    try:
        settings = topic_settings(config, worker.state_topic)
    except (AuthorizationError, KafkaException) as error:
        _LOG.info("The settings of topic %s are not known: %s", worker.state_topic, error)
        return
    policy, size = settings["cleanup.policy"], int(settings["max.message.bytes"])
    fault = ""
    if policy != "compact":
        fault = f"its cleanup.policy is {policy}, which deletes values by age, not compact"
    elif size < _MIN_BYTES:
        fault = f"its max.message.bytes is {size}, below {_MIN_BYTES}"
    if fault:
        raise StateRefusedError(worker.name, worker.state_topic, fault)


def check_partitions(worker: Worker, config: ClientConfig) -> None:
    """Checks that the topic has the partitions of the topic that is read.

    Raises:
        StateRefusedError: if it has not: records of a key may be in two partitions.
        BrokerUnreachableError: if the brokers do not answer.
    """
    [topic] = worker.topics
    live = describe(config, [topic.name, worker.state_topic])
    read, kept = live.get(topic.name), live.get(worker.state_topic)
    if read is not None and kept is not None and read.partitions != kept.partitions:
        fault = f"topic {topic.name} has {read.partitions} partitions, it has {kept.partitions}"
        raise StateRefusedError(worker.name, worker.state_topic, fault)
