"""Partitioners: which records of a partition are processed in order, and which in parallel."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Protocol

from headrace.model import TopicPartition
from headrace.workers.tasks.task import WorkerRecord


class WorkerPartitioner(Protocol):
    """Divides each partition into subpartitions.

    Both methods run on the event loop, ``subpartition`` once for each record that is read; the
    same record must always get the same answer. ``count`` is called when a partition is assigned:
    a changed count takes effect then, when nothing of the partition is in flight.
    """

    def subpartition(self, record: WorkerRecord) -> int:
        """Returns the subpartition of a record, from 0 to ``count - 1``."""

    def count(self, partition: TopicPartition) -> int:
        """Returns the number of subpartitions of a partition, at least 1."""


@dataclass(frozen=True)
class OneToOne:
    """Each partition is one subpartition: Kafka's own order."""

    def subpartition(self, record: WorkerRecord) -> int:  # noqa: ARG002 - of the interface
        """Returns 0."""
        return 0

    def count(self, partition: TopicPartition) -> int:  # noqa: ARG002 - of the interface
        """Returns 1."""
        return 1


@dataclass(frozen=True)
class RoundRobin:
    """Records take turns: the most parallelism, no order. By offset, so the same on a restart."""

    subpartitions: int

    def subpartition(self, record: WorkerRecord) -> int:
        """Returns the offset modulo the number of subpartitions."""
        return record.offset % self.subpartitions

    def count(self, partition: TopicPartition) -> int:  # noqa: ARG002 - of the interface
        """Returns the declared number."""
        return self.subpartitions


@dataclass(frozen=True)
class KeyHash:
    """Records of one key stay in order. Those without a key have no order: they take turns.

    CRC-32, because Kafka's own hash of the key has chosen the partition already: what is left of
    it within one partition leaves subpartitions empty.
    """

    subpartitions: int

    def subpartition(self, record: WorkerRecord) -> int:
        """Returns what the key hashes to, or the offset where there is no key."""
        hashed = record.offset if record.key is None else zlib.crc32(record.key)
        return hashed % self.subpartitions

    def count(self, partition: TopicPartition) -> int:  # noqa: ARG002 - of the interface
        """Returns the declared number."""
        return self.subpartitions
