"""Replayed records in their topic: their readers, and the offsets between which they lie.

A record that was replayed names in a header who refused it, and all others leave it out. The
header names the partition too that it was written for, with the topic's id: a copy of the record
elsewhere carries it along, and is a record for all readers there.

Reading the headers of every record would cost more than decoding it, so a replay first notes where
its records can be: group ``headrace.replay.<topic>`` has, for each partition of the topic, the end
as its committed offset and the first offset in the metadata beside it.

A replay that was cut short leaves its window open: headers are checked from its first offset on,
until the next replay closes it. Kafka forgets a group's offsets after
``offsets.retention.minutes``, a week by default, so headers of old records are always checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.headers import Headers
from headrace.kafka.client.offsets import committed, high_watermarks
from headrace.kafka.client.partitions import client_partition
from headrace.model import TopicPartition

REPLAYS = "headrace-replays"
REPLAY_FOR = "headrace-replay-for"
LOOKED_AT_AFTER_MS = 24 * 3_600_000
_OF_A_REPLAY = frozenset({REPLAYS, REPLAY_FOR})
_OPEN = "+"


@dataclass(frozen=True, slots=True)
class Window:
    """Replayed records lie from ``first`` up to, not including, ``end``; ``None``: no end yet."""

    first: int
    end: int | None

    def overlaps(self, first: int, end: int) -> bool:
        """Whether replayed records can be among the offsets from ``first`` up to ``end``."""
        last = end if self.end is None else min(end, self.end)
        return max(first, self.first) < last


@dataclass(frozen=True, slots=True)
class PartitionId:
    """A partition of one topic; one of that name that is made later is another place."""

    partition: TopicPartition
    topic_id: str

    @property
    def prefix(self) -> bytes:
        """The prefix of header values that were written for it."""
        topic, number = self.partition.topic, self.partition.partition
        return f"{topic}/{self.topic_id}/{number}:".encode()


def addressees(names: Iterable[str], place: PartitionId) -> tuple[str, bytes]:
    """The header of a record that is replayed to ``place``, for the readers of those names."""
    return REPLAY_FOR, place.prefix + ",".join(sorted(set(names))).encode()


def is_for(name: str, place: PartitionId, headers: Iterable[tuple[str, Any]]) -> bool:
    """Whether a record at ``place`` is for the pipeline or worker ``name``."""
    readers = _readers(place, headers)
    return readers is None or name.encode() in readers


def was_replayed_to(place: PartitionId, headers: Iterable[tuple[str, Any]]) -> bool:
    """Whether a record with these headers was replayed to ``place``, and not copied to it."""
    return _readers(place, headers) is not None


def parted(headers: Headers) -> tuple[Headers, Headers]:
    """The headers of a record without those of its replay, and those."""
    replay_headers = tuple(header for header in headers if header[0] in _OF_A_REPLAY)
    if not replay_headers:
        return headers, replay_headers
    return tuple(header for header in headers if header[0] not in _OF_A_REPLAY), replay_headers


def _readers(place: PartitionId, headers: Iterable[tuple[str, Any]]) -> list[bytes] | None:
    """Returns the readers in the header for ``place``; ``None``: there is no such header."""
    for header, value in headers:
        if header == REPLAY_FOR and value and value.startswith(place.prefix):
            names: bytes = value.removeprefix(place.prefix)
            return names.split(b",")
    return None


def replay_group(topic: str) -> str:
    """Returns the consumer group that remembers what was replayed into ``topic``."""
    return f"headrace.replay.{topic}"


def windows(
    config: ClientConfig, topic: str, partitions: Iterable[TopicPartition]
) -> dict[int, Window]:
    """Returns where replayed records lie, by partition; partitions without any are left out.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    return {
        offset.partition: _window(offset.offset, offset.metadata or "")
        for offset in committed(config, replay_group(topic), partitions)
    }


def opened_windows(
    config: ClientConfig, topic: str, partitions: list[TopicPartition]
) -> list[confluent_kafka.TopicPartition]:
    """Returns the offsets to commit before the first record is sent: windows that are open.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    before = windows(config, topic, partitions)
    ends = high_watermarks(config, partitions)
    firsts = {partition: _first(before, partition, end) for partition, end in ends.items()}
    return [
        client_partition(partition, first, f"{first}{_OPEN}") for partition, first in firsts.items()
    ]


def closed_windows(
    config: ClientConfig, topic: str, partitions: list[TopicPartition]
) -> list[confluent_kafka.TopicPartition]:
    """Returns the offsets to commit when every replayed record is in the topic.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    before = windows(config, topic, partitions)
    ends = high_watermarks(config, partitions)
    return [
        client_partition(partition, end, f"{_first(before, partition, end)}")
        for partition, end in ends.items()
    ]


def _first(before: Mapping[int, Window], partition: TopicPartition, end: int) -> int:
    known = before.get(partition.partition)
    return end if known is None else min(known.first, end)


def _window(offset: int, metadata: str) -> Window:
    try:
        first = int(metadata.removesuffix(_OPEN))
    except ValueError:  # committed by another tool: replayed records may lie anywhere
        return Window(0, None)
    return Window(first, None if metadata.endswith(_OPEN) else offset)
