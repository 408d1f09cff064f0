"""Reads records of the partitions that an instance of a link has."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from headrace.errors import LinkDamagedError
from headrace.kafka.client.broker_errors import Meaning, forbidden, meaning
from headrace.kafka.client.clients import ClientConfig, consumer, reader_tuning
from headrace.kafka.client.lost_brokers import IdleCheck
from headrace.kafka.client.partitions import client_partition, client_partitions
from headrace.kafka.read.log_cuts import Seen
from headrace.kafka.read.resume import SourceChangedError
from headrace.links.target import check_topic_ids, naming_site
from headrace.model import TopicPartition
from headrace.runtime.instance_name import process_name

_LOG = logging.getLogger("headrace.links")
_READING = {
    "fetch.message.max.bytes": "1048576",
    "queued.min.messages": "50000",
    "fetch.queue.backoff.ms": "10",  # by default a queue that is full is filled again after 1 s
    "check.crcs": "true",
}


class SourceReader:
    """Reads partitions from given positions, in no consumer group. Used on one thread.

    Args:
        names: the kind of link, its name and the site of the cluster, for errors. An empty site:
            the project has one.
        group: by which brokers know the consumer.
        config: librdkafka's settings of the cluster, secrets revealed.
        tuning: further settings of the consumer.
        next_offset: returns the offset after the last record that its user took of a partition.
    """

    def __init__(
        self,
        names: tuple[str, str, str],
        group: str,
        config: ClientConfig,
        tuning: ClientConfig,
        next_offset: Callable[[TopicPartition], int],
    ) -> None:
        _, name, self._site = self._names = names
        self._name = f"{name}: site {self._site}" if self._site else name
        self._config, self._next_offset = config, next_offset
        self._new_consumer = functools.partial(
            consumer,
            {"client.id": process_name()} | dict(config),
            group,
            reader_tuning(config, _READING | dict(tuning)),
        )
        self._consumer = self._new_consumer()
        self._idle_check = IdleCheck(config)
        self._damaged: dict[TopicPartition, tuple[int | None, str]] = {}

    def assign(self, positions: Mapping[TopicPartition, Seen]) -> None:
        """Reads exactly these partitions; with an epoch, a truncated log is detected."""
        # A new consumer: one that gets a partition again may continue where it was before.
        self._consumer.close()
        self._consumer = self._new_consumer()
        self._damaged.clear()
        self._consumer.assign(
            [client_partition(p, seen.offset, epoch=seen.epoch) for p, seen in positions.items()]
        )

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops reading partitions. Records that the client has already may still be returned."""
        removed = set(partitions)
        self._consumer.incremental_unassign(client_partitions(removed))
        for partition in removed:
            self._damaged.pop(partition, None)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Pauses partitions until :meth:`resume`."""
        self._consumer.pause(client_partitions(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resumes partitions."""
        self._consumer.resume(client_partitions(partitions))

    def read(self, limit: int, seconds: float) -> tuple[list[Any], dict[tuple[str, int], int]]:
        """Returns up to ``limit`` records, and the offsets at the ends of partitions it reached.

        An end may be behind markers of transactions, which are no records.

        Args:
            limit: of records and events together.
            seconds: how long the first record is waited for.

        Raises:
            LinkDamagedError: if the next records of a partition can't be read: their checksum is
                wrong, or their compression can't be undone. What precedes them was returned.
            SourceChangedError: if the source does not have the next record of a partition.
            AuthorizationError: if reading a topic is not allowed.
            BrokersLostError: if only a new consumer can continue.
            KafkaException: if an error is permanent.
        """
        for source, (offset, reason) in self._damaged.items():
            at = self._next_offset(source) if offset is None else offset
            raise LinkDamagedError(*self._names, source.path, at, reason)
        messages = self._consumer.consume(limit, seconds)
        self._idle_check.check(self._consumer, has_received=bool(messages))
        records: list[Any] = []
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            error = message.error()
            if self._damaged and TopicPartition.of(message) in self._damaged:
                continue
            if error is None:
                records.append(message)
            elif meaning(error) is Meaning.END:
                ends[message.topic(), message.partition()] = message.offset()
            elif meaning(error) is Meaning.DAMAGED and message.partition() >= 0:
                source = TopicPartition.of(message)
                offset = message.offset() if message.offset() >= 0 else None
                self._damaged[source] = offset, error.str()
            else:
                self._check(error, message.topic())
        return records, ends

    def lag(self, partition: TopicPartition, offset: int) -> int | None:
        """Returns the offsets from ``offset`` to the end of the last fetch; ``None``: none yet."""
        try:
            _, end = self._consumer.get_watermark_offsets(client_partition(partition), cached=True)
        except KafkaException:  # the client has not started with it
            return None
        return None if end == OFFSET_INVALID else max(end - offset, 0)

    def check_topics(self, ids: Collection[tuple[str, str]]) -> None:
        """Checks that topics, by their names, have the ids that positions belong to.

        Raises:
            SourceChangedError: if one was deleted or recreated.
            AuthorizationError: if an ACL is missing.
            BrokerUnreachableError: if the brokers do not answer.
        """
        check_topic_ids(self._config, self._site, ids)

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()

    def _check(self, error: KafkaError, topic: str | None) -> None:
        """Raises an error that the client does not recover from."""
        means = meaning(error)
        if means in {Meaning.UNREACHABLE, Meaning.TRANSIENT}:
            _LOG.warning("%s: %s", self._name, error.str())
        elif means in {Meaning.NO_RECORD, Meaning.TRUNCATED, Meaning.MISSING}:
            raise SourceChangedError(error.str())
        elif means is Meaning.FORBIDDEN:
            topics = {topic} if topic else {place.topic for place in self._consumer.assignment()}
            with naming_site(self._site):
                raise forbidden(self._config, "READ", f"topic {', '.join(sorted(topics))}")
        else:
            raise KafkaException(error)
