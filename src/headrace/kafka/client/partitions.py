"""Partitions in the type of Kafka's client, and in the project's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import confluent_kafka

from headrace.model import TopicPartition


def client_partition(
    partition: TopicPartition,
    offset: int = confluent_kafka.OFFSET_INVALID,
    metadata: str = "",
    epoch: int = -1,
) -> confluent_kafka.TopicPartition:
    """Returns a partition as the client takes it, with the offset of the next record.

    ``metadata`` is committed beside the offset; ``epoch`` is that of a leader that had the records
    before it, -1 if it is not known.
    """
    return confluent_kafka.TopicPartition(
        partition.topic, partition.partition, offset, metadata, epoch
    )


def client_partitions(
    partitions: Iterable[TopicPartition],
) -> list[confluent_kafka.TopicPartition]:
    """Returns partitions as the client takes them, without offsets."""
    return [client_partition(partition) for partition in partitions]


def partition_of(place: Any) -> TopicPartition:
    """Returns the partition of an offset that the client returned."""
    return TopicPartition(place.topic, place.partition)
