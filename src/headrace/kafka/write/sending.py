"""Records on their way to topics: sent, and waited for until every in-sync replica has them."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable
from types import MethodType

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import RecordRejectedError, SinkError
from headrace.kafka.client.broker_errors import delivery_failure
from headrace.kafka.client.clients import ClientConfig, connected_producer, producer, writer_tuning
from headrace.kafka.client.headers import check_header_names
from headrace.kafka.write.failures import failure
from headrace.kafka.write.record import ProducerRecord, until_taken

_POLL_EVERY = 1_000  # records: reports are cheaper to take by the thousand than one at a time
_PROBE_SECONDS = 5.0
_PROBE_POLL_SECONDS = 0.1


def send_each(
    config: ClientConfig, records: Iterable[ProducerRecord], tuning: ClientConfig | None = None
) -> dict[int, Exception]:
    """Writes ``records`` and waits for all acknowledgements.

    Args:
        config: the cluster's, as :func:`headrace.kafka.client.clients.client_config` makes it.
        records: in the order in which each partition has them.
        tuning: the producer's own settings, such as ``batch.size``.

    Returns:
        why a record was not written, by its index: see :func:`failure`. What the client library
        can't encode, such as a header's name, is a RecordRejectedError, too.
    """
    failures: dict[int, Exception] = {}
    writer = _producer(os.getpid(), frozenset(config.items()), frozenset((tuning or {}).items()))
    produce, poll = writer.produce, writer.poll
    topics = set()

    def report(index: int, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None and message.offset() is not None:
            return  # as of nearly all records
        cause = delivery_failure(error, message)
        if cause is not None:
            failures[index] = failure(config, message.topic() or "", cause)

    for index, record in enumerate(records):
        topic, headers = record.topic, record.headers
        topics.add(topic)
        # As a method of the index, the report costs half of what a partial does.
        place = (record.partition, MethodType(report, index), None, 0)
        try:
            check_header_names(headers)
            until_taken(produce, poll, (topic, record.value, record.key, *place, list(headers)))
            if index % _POLL_EVERY == 0:
                poll(0)
        except (KafkaException, TypeError, ValueError, SystemError) as error:
            failures[index] = _failure_of(config, topic, error)
    try:
        writer.flush()
    except (KafkaException, SystemError) as error:
        _producer.cache_clear()
        reason = _kafka_error(error) or _fatal_error(config)
        where = ", ".join(sorted(topics))
        raise failure(config, where, reason) if reason else SinkError(where, str(error)) from error
    if failures:
        _producer.cache_clear()  # its session may be broken for good
    return failures


@functools.lru_cache(maxsize=2)
def _producer(
    pid: int,  # noqa: ARG001 - librdkafka does not survive a fork
    config: frozenset[tuple[str, str]],
    tuning: frozenset[tuple[str, str]],
) -> confluent_kafka.Producer:
    settings = dict(config)
    return connected_producer(settings, writer_tuning(settings, dict(tuning)))


def _failure_of(config: ClientConfig, topic: str, error: Exception) -> Exception:
    """Returns the failure of a record; without a Kafka error, its headers were not writable."""
    reason = _kafka_error(error)
    if reason is None:
        return RecordRejectedError(topic, f"{type(error).__name__}: {error}")
    return failure(config, topic, reason)


def _kafka_error(error: BaseException) -> KafkaError | None:
    """Returns librdkafka's error, if it is known.

    A fatal error is pending as an exception while reports are called, and may be lost there.
    """
    cause = error if isinstance(error, KafkaException) else error.__cause__
    return cause.args[0] if isinstance(cause, KafkaException) else None


def _fatal_error(config: ClientConfig) -> KafkaError | None:
    """Returns the fatal error of a producer that reports nothing else, if there is one."""
    errors: list[KafkaError] = []
    probe = producer(dict(config) | {"error_cb": errors.append})
    deadline = time.monotonic() + _PROBE_SECONDS
    while time.monotonic() < deadline:
        try:
            probe.poll(_PROBE_POLL_SECONDS)
        except KafkaException as error:
            errors.append(error.args[0])
        if fatal := [error for error in errors if error.fatal()]:
            return fatal[0]
    return None
