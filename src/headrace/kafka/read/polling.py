"""Reads partitions without end: the loop of tables, leases, and people who look at a topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from confluent_kafka import KafkaException, Message

from headrace.kafka.client.broker_errors import Meaning, meaning
from headrace.kafka.client.clients import ClientConfig, consumer, fetch_metadata
from headrace.kafka.client.lost_brokers import IdleCheck
from headrace.kafka.client.partitions import client_partition
from headrace.model import TopicPartition

_PASSING = {Meaning.UNREACHABLE, Meaning.TRANSIENT}  # the consumer recovers by itself


def poll_endlessly(
    config: ClientConfig,
    group: str,
    offsets: Mapping[TopicPartition, int],
    tuning: ClientConfig,
    seconds: float = 0.2,
) -> Iterator[list[Message]]:
    """Reads partitions with a consumer of its own, which is closed when the caller stops.

    Yields what is available: up to 100 records and events, such as ends of partitions and errors,
    without the errors that a consumer recovers from. A list is empty if nothing comes in time.

    Args:
        config: librdkafka's settings of the cluster.
        group: name by which brokers know the consumer; it joins no group.
        offsets: by partition, the first offset to read.
        tuning: further settings of the consumer.
        seconds: how long a record is waited for.

    Raises:
        BrokersLostError: if only a new consumer can continue.
    """
    reader = consumer(config, group, tuning)
    idle_check = IdleCheck(config)
    try:
        # What it returns is not needed: with leaders known, a new client fetches at once.
        for topic in {partition.topic for partition in offsets}:
            fetch_metadata(reader, topic)
        reader.assign([client_partition(partition, at) for partition, at in offsets.items()])
        while True:
            first = reader.consume(1, seconds)
            # Consuming 100 at first would wait for all of them.
            messages = first + reader.consume(99, 0) if first else []
            idle_check.check(reader, has_received=bool(messages))
            yield [
                message
                for message in messages
                if (error := message.error()) is None or meaning(error) not in _PASSING
            ]
    finally:
        with suppress(KafkaException):
            reader.close()
