"""Records on their way to topics: sent, and waited for until every in-sync replica has them."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable
from types import MethodType

import confluent_kafka
import msgspec
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    RecordRejectedError,
    SinkError,
    TopicMissingError,
)
from headrace.kafka.client.broker_errors import (
    Meaning,
    delivery_failure,
    forbidden,
    is_forbidden,
    is_of_record,
    meaning,
    refusing_setting,
)
from headrace.kafka.client.client import ClientConfig, connected_producer, producer
from headrace.kafka.client.headers import Headers, check_header_names
from headrace.runtime.clock import now_in_ms

_POLL_SECONDS = 1.0
_POLL_EVERY = 1_000  # records: reports are cheaper to take by the thousand than one at a time
_PROBE_SECONDS = 5.0


class ProducerRecord(msgspec.Struct, frozen=True, gc=False):
    """A record to write. ``partition`` -1 lets the key decide."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int = -1


def send(config: ClientConfig, records: Iterable[ProducerRecord]) -> None:
    """Writes ``records`` and waits for all acknowledgements; raises what `send_each` returns."""
    raise_first(send_each(config, records).values())


def raise_first(failures: Iterable[Exception]) -> None:
    """Raises one of ``failures``, a missing permission first: it may be the cause of the others."""
    for error in sorted(failures, key=lambda failure: not isinstance(failure, AuthorizationError)):
        raise error


def send_each(
    config: ClientConfig, records: Iterable[ProducerRecord], tuning: ClientConfig | None = None
) -> dict[int, Exception]:
    """Writes ``records`` and waits for all acknowledgements.

    Args:
        config: the cluster's, as :func:`headrace.kafka.client.client.client_config` makes it.
        records: in the order in which each partition has them.
        tuning: the producer's own settings, such as ``batch.size``.

    Returns:
        why a record was not written, by its index:

        - :class:`RecordRejectedError`: Kafka cannot take it as it is (its size, its headers). It
          fails alone.
        - :class:`TopicMissingError`, :class:`AuthorizationError`, or another :class:`SinkError`.
        - :class:`BrokerUnreachableError`: no answer within ``message.timeout.ms``.

        All but the first mean *unknown*: it may be there.
    """
    failures: dict[int, Exception] = {}
    writer = _producer(os.getpid(), frozenset(config.items()), frozenset((tuning or {}).items()))
    topics = set()

    def report(index: int, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None and message.offset() is not None:
            return  # as of nearly all records
        failure = delivery_failure(error, message)
        if failure is not None:
            failures[index] = _failure(config, message.topic() or "", failure)

    for index, record in enumerate(records):
        topics.add(record.topic)
        try:
            # As a method of the index, the report costs half of what a partial does.
            _produce(writer, record, MethodType(report, index))
            if index % _POLL_EVERY == 0:
                writer.poll(0)
        except (KafkaException, TypeError, ValueError, SystemError) as error:
            failures[index] = _failure_of(config, record.topic, error)
    try:
        writer.flush()
    except (KafkaException, SystemError) as error:
        _producer.cache_clear()
        reason = _kafka_error(error) or _fatal_error(config)
        where = ", ".join(sorted(topics))
        raise _failure(config, where, reason) if reason else SinkError(where, str(error)) from error
    if failures:
        _producer.cache_clear()  # its session may be broken for good
    return failures


@functools.lru_cache(maxsize=2)
def _producer(
    pid: int,  # noqa: ARG001 - librdkafka does not survive a fork
    config: frozenset[tuple[str, str]],
    tuning: frozenset[tuple[str, str]],
) -> confluent_kafka.Producer:
    return connected_producer(dict(config), dict(tuning))


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
            probe.poll(_POLL_SECONDS / 10)
        except KafkaException as error:
            errors.append(error.args[0])
        if fatal := [error for error in errors if error.fatal()]:
            return fatal[0]
    return None


def _produce(
    writer: confluent_kafka.Producer, record: ProducerRecord, delivered: Callable[..., None]
) -> None:
    check_header_names(record.headers)
    # By their places: arguments by name take half as long again. None is the other name of
    # `delivered`, and of the time 0 the client makes that of its clock.
    headers = list(record.headers)
    arguments = (record.value, record.key, record.partition, delivered, None, 0, headers)
    while True:
        try:
            writer.produce(record.topic, *arguments)
        except BufferError:
            writer.poll(_POLL_SECONDS)
        else:
            return


def _failure_of(config: ClientConfig, topic: str, error: Exception) -> Exception:
    """Returns the failure of a record; without a Kafka error, its headers were not writable."""
    reason = _kafka_error(error)
    if reason is None:
        return RecordRejectedError(topic, f"{type(error).__name__}: {error}")
    return _failure(config, topic, reason)


def _failure(config: ClientConfig, topic: str, error: KafkaError) -> Exception:
    if is_forbidden(error):
        return forbidden(config, "WRITE", f"topic {topic}")
    if is_of_record(error):
        setting = refusing_setting(error, now_in_ms())
        by = f", by {setting} of the topic" if setting else ""
        return RecordRejectedError(topic, error.str() + by)
    if meaning(error) is Meaning.MISSING:
        return TopicMissingError(topic)
    if meaning(error) is Meaning.UNREACHABLE:
        return BrokerUnreachableError(config["bootstrap.servers"], error.str())
    return SinkError(topic, error.str())
