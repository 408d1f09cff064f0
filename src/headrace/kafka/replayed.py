"""Replayed records in their topic: whom each is for, and the offsets between which they lie.

A record that was replayed names in a header who refused it, and everybody else leaves it out. To
look at the headers of every record would cost more than to decode it, so a replay notes first
where its records can be: group ``headrace.replay.<topic>`` has, for each partition of the topic,
the end as its committed offset and the first offset in the metadata beside it.

A replay that was cut short leaves its window open: everything from its first offset on is looked
at, until the next replay closes it. Kafka forgets a group's offsets after
``offsets.retention.minutes``, a week by default, so headers of old records are always looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from headrace.kafka.client import ClientConfig, commit, committed, high_watermarks
from headrace.model import TopicPartition

REPLAY_FOR = "headrace-replay-for"
LOOKED_AT_AFTER_MS = 24 * 3_600_000
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


def addressees(names: Iterable[str]) -> tuple[str, bytes]:
    """The header of a record that is replayed for the pipelines and workers of those names."""
    return REPLAY_FOR, ",".join(sorted(set(names))).encode()


def is_for(name: str, headers: Iterable[tuple[str, Any]]) -> bool:
    """Whether a record with these headers is for the pipeline or worker ``name``."""
    for header, value in headers:
        if header == REPLAY_FOR:
            return name.encode() in (value or b"").split(b",")
    return True


def replay_group(topic: str) -> str:
    """Consumer group that remembers what was replayed into ``topic``, and where it lies."""
    return f"headrace.replay.{topic}"


def windows(
    config: ClientConfig, topic: str, partitions: Iterable[TopicPartition]
) -> dict[int, Window]:
    """Where replayed records lie, by partition; partitions without any are left out.

    Raises:
        BrokerUnreachableError: no answer.
    """
    return {
        one.partition: _window(one.offset, one.metadata or "")
        for one in committed(config, replay_group(topic), partitions)
    }


def open_windows(config: ClientConfig, topic: str, partitions: list[TopicPartition]) -> None:
    """Notes that replayed records may come from now on; before the first of them is sent.

    Raises:
        BrokerUnreachableError: no answer.
    """
    before = windows(config, topic, partitions)
    ends = high_watermarks(config, partitions)
    firsts = {one: _first(before, one, end) for one, end in ends.items()}
    commit(
        config,
        replay_group(topic),
        [_committable(one, first, f"{first}{_OPEN}") for one, first in firsts.items()],
    )


def closed_windows(
    config: ClientConfig, topic: str, partitions: list[TopicPartition]
) -> list[confluent_kafka.TopicPartition]:
    """What to commit when every replayed record is in the topic.

    Raises:
        BrokerUnreachableError: no answer.
    """
    before = windows(config, topic, partitions)
    ends = high_watermarks(config, partitions)
    return [_committable(one, end, f"{_first(before, one, end)}") for one, end in ends.items()]


def _first(before: Mapping[int, Window], partition: TopicPartition, end: int) -> int:
    known = before.get(partition.partition)
    return end if known is None else min(known.first, end)


def _committable(
    partition: TopicPartition, offset: int, metadata: str
) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(partition.topic, partition.partition, offset, metadata)


def _window(offset: int, metadata: str) -> Window:
    first = int(metadata.removesuffix(_OPEN))
    return Window(first, None if metadata.endswith(_OPEN) else offset)
