"""An admin client whose requests for offsets do not end the process."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec, TopicMetadata

# librdkafka keeps what it knows of a topic for fifteen minutes, by default.
_KNOWN_SECONDS = 60.0


class OffsetsAdminClient(AdminClient):  # type: ignore[misc]  # its types are not seen
    """Asks for offsets of partitions whose leaders it knows.

    librdkafka ends the process (SIGSEGV) where a request for offsets waits for metadata, and some
    arrive before the calling thread has left the request: another thread frees it. So metadata of
    its topics are fetched before, which creates no topic, and partitions without a leader are not
    asked for.
    """

    def __init__(self, settings: Mapping[str, Any], **options: Any) -> None:
        super().__init__(dict(settings) | {"allow.auto.create.topics": "false"}, **options)
        self._known: dict[str, _KnownTopic] = {}

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Returns the metadata of a topic, or of all topics, as librdkafka keeps them."""
        options = {} if topic is None else {"topic": topic}
        metadata = super().list_topics(timeout=timeout, **options)
        for name in list(self._known) if topic is None else [topic]:
            if name in metadata.topics:
                self._known[name] = _KnownTopic.of(metadata.topics[name], metadata.brokers)
            else:
                self._known.pop(name, None)
        return metadata

    def list_offsets(
        self,
        topic_partition_offsets: dict[confluent_kafka.TopicPartition, OffsetSpec],
        **options: Any,
    ) -> dict[confluent_kafka.TopicPartition, Future[Any]]:
        """Requests offsets as :meth:`AdminClient.list_offsets` does, after metadata that it lacks.

        Raises:
            KafkaException: if no broker answers within ``request_timeout`` seconds.
        """
        of_topics: defaultdict[str, set[int]] = defaultdict(set)
        for partition in topic_partition_offsets:
            of_topics[partition.topic].add(partition.partition)
        known = {
            topic: self._topic(topic, partitions, options["request_timeout"])
            for topic, partitions in of_topics.items()
        }
        led, futures = {}, {}
        for partition, spec in topic_partition_offsets.items():
            error = known[partition.topic].error(partition.partition)
            if error is None:
                led[partition] = spec
            else:
                futures[partition] = Future[Any]()
                futures[partition].set_exception(KafkaException(error))
        return futures | (super().list_offsets(led, **options) if led else {})

    def _topic(self, name: str, partitions: set[int], max_seconds: float) -> _KnownTopic:
        known = self._known.get(name, _UNKNOWN)
        is_old = time.monotonic() - known.since > _KNOWN_SECONDS
        if is_old or not partitions <= known.led:
            self.list_topics(name, timeout=max_seconds)
        return self._known.get(name, _UNKNOWN)


@dataclass(frozen=True, slots=True)
class _KnownTopic:
    """What metadata say of a topic.

    Attributes:
        partitions: the numbers of all partitions.
        led: the numbers of those that a broker leads.
        failure: of the whole topic.
        since: when they came, by the monotonic clock.
    """

    partitions: frozenset[int]
    led: frozenset[int]
    failure: KafkaError | None
    since: float

    @classmethod
    def of(cls, topic: TopicMetadata, brokers: Mapping[int, Any]) -> _KnownTopic:
        """Returns a topic by its metadata, which have just come."""
        led = {n for n, partition in topic.partitions.items() if partition.leader in brokers}
        return cls(frozenset(topic.partitions), frozenset(led), topic.error, time.monotonic())

    def error(self, partition: int) -> KafkaError | None:
        """Returns why offsets of a partition can't be asked for."""
        if partition in self.led:
            return None
        if self.failure is not None:
            return self.failure
        is_there = partition in self.partitions
        return KafkaError(
            KafkaError.LEADER_NOT_AVAILABLE if is_there else KafkaError.UNKNOWN_TOPIC_OR_PART
        )


_UNKNOWN = _KnownTopic(frozenset(), frozenset(), None, 0.0)
