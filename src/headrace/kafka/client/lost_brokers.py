"""Whether an idle consumer has lost its brokers for good.

Brokers that the controller takes for dead are not in the metadata. A consumer whose metadata names
none may forget every broker and not return to its bootstrap servers (librdkafka's issue 5301). It
then sends no request, and reports no error.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.kafka.client.clients import ALWAYS_THERE, ClientConfig, non_producer_settings

_LOG = logging.getLogger("headrace.kafka")
# A topic without traffic looks the same, and a check of it costs one request: so it is rare.
IDLE_SECONDS = 30.0


@dataclass(frozen=True)
class CheckTiming:
    """How long a check waits for brokers.

    Attributes:
        answer_seconds: for an answer to the client; a connected broker answers within milliseconds.
        connect_seconds: for an answer to a new client, which connects and logs in first.
        reconnect_seconds: for the client to connect again: librdkafka waits up to 10 s before it.
    """

    answer_seconds: float = 2.0
    connect_seconds: float = 5.0
    reconnect_seconds: float = 12.0


class BrokersLostError(Exception):
    """The client reaches no broker, though brokers answer another; only a new client helps."""


class IdleCheck:
    """Watches one consumer; used on its thread."""

    def __init__(self, config: ClientConfig, timing: CheckTiming = CheckTiming()) -> None:
        self._config, self._timing = config, timing
        self._idle_since = time.monotonic()

    def check(self, client: confluent_kafka.Consumer, *, has_received: bool) -> None:
        """Checks an idle client every :data:`IDLE_SECONDS`: it may have lost its brokers.

        Call it after each read, with whether it gave anything. A check takes milliseconds; while
        brokers are unreachable it takes 7 s, and before the error 19 s.

        Raises:
            BrokersLostError: if it has, and brokers answer another client.
        """
        if has_received:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since >= IDLE_SECONDS:
            if has_lost_brokers(self._config, client, self._timing):
                reason = "the client reaches no broker, though brokers answer another"
                raise BrokersLostError(reason)
            self._idle_since = time.monotonic()


def has_lost_brokers(
    config: ClientConfig,
    client: confluent_kafka.Consumer | AdminClient,
    timing: CheckTiming = CheckTiming(),
) -> bool:
    """Whether brokers answer another client, and not ``client``."""
    if _is_answered(client, timing.answer_seconds):
        return False
    another = AdminClient(non_producer_settings(dict(config)), logger=_LOG)
    if not _is_answered(another, timing.connect_seconds):
        return False
    return not _is_answered(client, timing.reconnect_seconds)


def _is_answered(client: confluent_kafka.Consumer | AdminClient, seconds: float) -> bool:
    try:
        return bool(client.list_topics(ALWAYS_THERE, timeout=seconds).brokers)
    except KafkaException:
        return False
