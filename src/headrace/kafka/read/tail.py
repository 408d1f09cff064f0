"""Records of a topic as they come, for people who look at it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from headrace.errors import HeadraceError, RecordsUnreadableError, TopicMissingError
from headrace.kafka.client.broker_errors import Meaning, forbidden, meaning
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.headers import headers_of
from headrace.kafka.client.lost_brokers import BrokersLostError
from headrace.kafka.read.polling import poll_endlessly
from headrace.kafka.read.range_reader import Record
from headrace.model import TopicPartition

_LOG = logging.getLogger("headrace.kafka")
# What retention has removed meanwhile is left out; where a log was cut, its end is read.
_TUNING = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": "100"}
_EXPECTED = {Meaning.END, Meaning.NO_RECORD, Meaning.TRUNCATED}


@dataclass(frozen=True, slots=True)
class TailedHeader:
    """A header of a record; a name can be there more than once."""

    name: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class TailedRecord:
    """A record as it is in its topic.

    Attributes:
        topic: its name.
        partition: its number.
        offset: the record's place in the partition.
        timestamp_ms: milliseconds since 1970; -1 where the record has none.
        key: bytes, or ``None``.
        headers: in order; ``None`` when a name among them is not UTF-8.
        value: bytes; ``None`` is a tombstone.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    headers: tuple[TailedHeader, ...] | None
    value: bytes | None


def tailed(partition: TopicPartition, record: Record) -> TailedRecord:
    """Returns a record of a partition as a value that outlives the client."""
    headers = headers_of(record)
    return TailedRecord(
        partition.topic,
        partition.partition,
        record.offset(),
        record.timestamp()[1],
        record.key(),
        None if headers is None else tuple(TailedHeader(*header) for header in headers),
        record.value(),
    )


def follow(config: ClientConfig, positions: Mapping[TopicPartition, int]) -> Iterator[TailedRecord]:
    """Reads partitions from the given offsets on, and never ends.

    It joins no consumer group and commits nothing.
    Order: records of a partition come in order of offset, partitions as brokers answer.
    Delivery: each committed record once. Records that retention removes before they are read are
    left out; partitions that the topic gets later are not read. It waits for unreachable brokers.

    Raises:
        AuthorizationError: if an ACL is missing.
        TopicMissingError: if the topic is deleted meanwhile.
        RecordsUnreadableError: if records are damaged.
    """
    reached = dict(positions)
    while True:
        try:
            for messages in poll_endlessly(config, "headrace.reader", reached, _TUNING):
                for message in messages:
                    if (error := message.error()) is None:
                        partition = TopicPartition.of(message)
                        reached[partition] = message.offset() + 1
                        yield tailed(partition, message)
                    elif meaning(error) not in _EXPECTED:
                        raise _failure(config, error, message)
        except BrokersLostError as error:
            _LOG.warning("Reading continues with a new consumer: %s", error)


def _failure(config: ClientConfig, error: KafkaError, message: Message) -> HeadraceError:
    topic = message.topic() or ""
    match meaning(error):
        case Meaning.FORBIDDEN:
            return forbidden(config, "READ", f"topic {topic}")
        case Meaning.MISSING:
            return TopicMissingError(topic)
    place = f"{topic}/{message.partition()}"
    return RecordsUnreadableError(place, message.offset(), error.str())
