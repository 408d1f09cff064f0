"""Whether a consumer to which nothing comes still reaches a broker.

Brokers that the controller takes for dead are not in the metadata. A consumer that is told of none
may forget every broker and not go back to its bootstrap servers (librdkafka's issue 5301). It then
asks nobody any more, and reports no error.
"""

from __future__ import annotations

import time

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.kafka.client import ClientConfig, without_producer_settings

QUIET_SECONDS = 30.0
_ANSWER_SECONDS = 2.0
_CONNECT_SECONDS = 5.0
_RECONNECT_SECONDS = 12.0  # librdkafka waits up to 10 s before it connects again
_ALWAYS_THERE = "__consumer_offsets"  # asking for a topic of any other name might create it


class CutOffError(Exception):
    """The client reaches no broker, though brokers answer another; only a new client helps."""


class Reach:
    """Told of what one consumer gives; used on the consumer's thread."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._since = time.monotonic()

    def heard(self) -> None:
        """Something came."""
        self._since = time.monotonic()

    def check(self, client: confluent_kafka.Consumer) -> None:
        """Nothing came: every :data:`QUIET_SECONDS`, looks whether ``client`` reaches a broker.

        That takes milliseconds, while brokers are away 7 s, and once 19 s before the error.

        Raises:
            CutOffError: it does not, and another client does.
        """
        if time.monotonic() - self._since < QUIET_SECONDS:
            return
        if is_cut_off(self._config, client):
            raise CutOffError("the client reaches no broker, though brokers answer another")
        self.heard()


def is_cut_off(config: ClientConfig, client: confluent_kafka.Consumer | AdminClient) -> bool:
    """Whether brokers answer another client, and not ``client``."""
    if _is_answered(client, _ANSWER_SECONDS):
        return False
    another = AdminClient(without_producer_settings(dict(config)))
    if not _is_answered(another, _CONNECT_SECONDS):
        return False
    return not _is_answered(client, _RECONNECT_SECONDS)


def _is_answered(client: confluent_kafka.Consumer | AdminClient, seconds: float) -> bool:
    try:
        return bool(client.list_topics(_ALWAYS_THERE, timeout=seconds).brokers)
    except KafkaException:
        return False
