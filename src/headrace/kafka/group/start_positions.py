"""The start offsets of partitions that are assigned to a member of a consumer group."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError, TopicMissingError
from headrace.kafka.client.admin_requests import describe
from headrace.kafka.client.broker_errors import Meaning, meaning
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import leader_epoch, watermarks
from headrace.kafka.client.partitions import partition_of
from headrace.model import TopicPartition

_LOG = logging.getLogger("headrace.kafka")
_COMMITTED_SECONDS = 30.0
_STARTS_SECONDS = 120.0  # after five minutes in one poll, Kafka gives the partitions to others
_MISSING_SECONDS = 10.0  # a broker that has just started does not know all topics
_RETRY_DELAY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The offset from which a member reads a partition that it was assigned.

    Attributes:
        partition: of a topic.
        position: the next record to read.
        metadata: what was committed beside it.
        topic_id: of the topic now.
        epoch: of a leader that had the records before the position; -1: not known.
    """

    partition: TopicPartition
    position: int
    metadata: str
    topic_id: str
    epoch: int = -1


class StartPositions:
    """Fetches the start offsets of partitions, retrying while brokers are unreachable.

    Args:
        config: of the cluster.
        group: whose committed offsets count.
        is_closing: the member leaves: what has no answer yet is not asked again.
    """

    def __init__(self, config: ClientConfig, group: str, is_closing: Callable[[], bool]) -> None:
        self._config, self._group, self._is_closing = config, group, is_closing

    def of(self, consumer: confluent_kafka.Consumer, partitions: list[Any]) -> list[StartPosition]:
        """Returns a start for each of ``partitions``; for none when the member leaves meanwhile.

        Raises:
            BrokerUnreachableError: if no broker answers for two minutes.
            TopicMissingError: if no broker knows a topic for ten seconds.
            KafkaException: if the cluster refuses the request.
        """
        began = time.monotonic()
        while not self._is_closing():
            try:
                return self._fetch(consumer, partitions)
            except (BrokerUnreachableError, TopicMissingError) as error:
                is_missing = isinstance(error, TopicMissingError)
                if time.monotonic() - began > (_MISSING_SECONDS if is_missing else _STARTS_SECONDS):
                    raise
                _LOG.warning(
                    "%s: cannot fetch start offsets of newly assigned partitions, retrying in "
                    "%.0f s: %s",
                    self._group,
                    _RETRY_DELAY_SECONDS,
                    error,
                )
            time.sleep(_RETRY_DELAY_SECONDS)
        return []

    def _fetch(
        self, consumer: confluent_kafka.Consumer, partitions: list[Any]
    ) -> list[StartPosition]:
        if not partitions:
            return []
        committed = _committed(consumer, partitions, self._config)
        # Only of these: all partitions of the member wait for the answer, which a partition
        # without a leader may delay. The first fetch reports an offset that was deleted.
        new = [partition for partition, offset in committed.items() if offset.offset < 0]
        marks = watermarks(self._config, new)
        ids = self._topic_ids({partition.topic for partition in committed})
        return [
            StartPosition(partition, marks[partition][0], "", ids[partition.topic])
            if partition in marks
            else StartPosition(
                partition,
                offset.offset,
                offset.metadata or "",
                ids[partition.topic],
                leader_epoch(offset),
            )
            for partition, offset in committed.items()
        ]

    def _topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        names = set(topics)
        live = describe(self._config, names)
        for topic in names - live.keys():
            raise TopicMissingError(topic)
        return {name: topic.topic_id for name, topic in live.items()}


def _committed(
    consumer: confluent_kafka.Consumer, partitions: list[Any], config: ClientConfig
) -> dict[TopicPartition, Any]:
    try:
        answer = consumer.committed(partitions, timeout=_COMMITTED_SECONDS)
    except KafkaException as error:
        raise BrokerUnreachableError(config["bootstrap.servers"], error.args[0].str()) from error
    for offset in answer:
        if offset.error is not None:
            # Taken for "nothing is committed", it would let the group start over.
            if meaning(offset.error) in {Meaning.UNREACHABLE, Meaning.TRANSIENT}:
                raise BrokerUnreachableError(config["bootstrap.servers"], offset.error.str())
            raise KafkaException(offset.error)
    return {partition_of(offset): offset for offset in answer}
