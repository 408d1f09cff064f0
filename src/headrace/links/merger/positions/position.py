"""Where an input of a merger stands, as it is committed.

A record may be written before others of lower offsets, which wait for their turn. So the committed
offset of an input is that of the first record that is not written yet, and its metadata has how far
it was read, and up to which time what was read is written. All positions of an output are
committed in one transaction with its records. Each names the topics of all of them, since brokers
remove the offsets of a topic that is deleted, and the topics that are written, since brokers keep
these offsets when those are deleted. None depends on the order of the topics, which may
change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import confluent_kafka

from headrace.kafka.client.partitions import client_partition, partition_of
from headrace.kafka.read.resume import UNKNOWN_EPOCH
from headrace.links.merger.sorting.order import Pending
from headrace.model import TopicPartition

_METADATA = re.compile(r"(-?\d+(?: -?\d+){4}) ([^=, ]+=[^=, ]+(?:,[^=, ]+=[^=, ]+)*)")


class WrittenTo(NamedTuple):
    """A time up to which records of an input are written.

    Attributes:
        time_ms: records before that time are; -1: none.
        with_equal: 1: those of that time, too; 0: they are not.
    """

    time_ms: int
    with_equal: int

    def holds(self, record: Pending) -> bool:
        """Whether a record that had been read by then is written."""
        return (record[0], 1) <= self


NOTHING_WRITTEN = WrittenTo(-1, 0)


@dataclass(frozen=True, slots=True)
class InputPosition:
    """An input as it stands.

    Attributes:
        offset: of the first record that is not written yet.
        read_to: the offset after the last record that was read.
        epoch: of the leader that gave that record; -1: not known.
        time_ms: how far the input's time is; -1: not known.
        written: up to which time its records before ``read_to`` are written.
        topics: ids of the topics of all inputs of the output, and of those that it is written to,
            by their names.
    """

    offset: int
    read_to: int = 0
    epoch: int = UNKNOWN_EPOCH
    time_ms: int = -1
    written: WrittenTo = NOTHING_WRITTEN
    topics: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"offset {self.offset}"

    @property
    def metadata(self) -> str:
        """What is committed beside the offset."""
        numbers = map(str, (self.read_to, self.epoch, self.time_ms, *self.written))
        topics = ",".join(f"{name}={topic_id}" for name, topic_id in self.topics.items())
        return " ".join((*numbers, topics))


OutputPosition = tuple[InputPosition, ...]
"""The positions of an output's inputs, in the order of ties."""


def position_of(offset: confluent_kafka.TopicPartition) -> InputPosition | None:
    """Returns what instances committed for an input; ``None``: nothing.

    Foreign metadata, as after Kafka's own tool has moved an offset, is ignored.
    """
    if offset.offset < 0:
        return None
    match = _METADATA.fullmatch(offset.metadata or "")
    if match is None:
        return InputPosition(offset.offset, read_to=offset.offset)
    read_to, epoch, time_ms, *written = map(int, match[1].split(" "))
    topics = dict(pair.split("=") for pair in match[2].split(","))
    return InputPosition(offset.offset, read_to, epoch, time_ms, WrittenTo(*written), topics)


def positions_of(
    offsets: Iterable[confluent_kafka.TopicPartition],
) -> dict[TopicPartition, InputPosition | None]:
    """Returns what instances committed, by partitions of the sources."""
    return {partition_of(offset): position_of(offset) for offset in offsets}


def committed_offset(
    source: TopicPartition, position: InputPosition
) -> confluent_kafka.TopicPartition:
    """Returns what is committed for an input."""
    return client_partition(source, position.offset, position.metadata)
