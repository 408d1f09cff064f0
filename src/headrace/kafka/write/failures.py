"""Names why a record was not written."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError

from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    HeadraceError,
    RecordRejectedError,
    SinkError,
    TopicMissingError,
)
from headrace.kafka.client.broker_errors import Meaning, forbidden, meaning, refusing_setting
from headrace.kafka.client.clients import ClientConfig
from headrace.runtime.clock import now_in_ms

# Brokers refuse a producer's id for either reason: to newer ones, WRITE on any topic is enough.
_OF_OLD_BROKERS = " (and, before Kafka 3.0, IDEMPOTENT_WRITE on the cluster)"


def failure(config: ClientConfig, topic: str, error: KafkaError) -> HeadraceError:
    """Returns the error of a record that ``topic`` did not take.

    ============== ===============================================================
    FORBIDDEN      :class:`AuthorizationError`, with the ACL
    INVALID_RECORD :class:`RecordRejectedError`, with the setting that refuses it
    MISSING        :class:`TopicMissingError`
    UNREACHABLE    :class:`BrokerUnreachableError`: no answer within the time-out
    all others     :class:`SinkError`, with librdkafka's words
    ============== ===============================================================
    """
    match meaning(error):
        case Meaning.FORBIDDEN:
            also = _OF_OLD_BROKERS if error.name() == "CLUSTER_AUTHORIZATION_FAILED" else ""
            return forbidden(config, "WRITE", f"topic {topic}{also}")
        case Meaning.INVALID_RECORD:
            setting = refusing_setting(error, now_in_ms())
            by = f", by {setting} of the topic" if setting else ""
            return RecordRejectedError(topic, error.str() + by)
        case Meaning.MISSING:
            return TopicMissingError(topic)
        case Meaning.UNREACHABLE:
            return BrokerUnreachableError(config["bootstrap.servers"], error.str())
    return SinkError(topic, error.str())


def raise_first(failures: Iterable[Exception]) -> None:
    """Raises one of ``failures``, a missing permission first: it may be the cause of the others."""
    for error in sorted(failures, key=lambda failure: not isinstance(failure, AuthorizationError)):
        raise error
