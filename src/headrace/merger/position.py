"""Where an input of a merger stands, as it is committed.

A record may be written before others of lower offsets, which wait for their turn. So the committed
offset of an input is that of the first record that is not written yet, and its metadata tells how
far it was read and how far the output is: of the records between, those that the output has passed
are done. All positions of an output are committed in one transaction with its records. Each names
the topics of all of them, since brokers remove the offsets of a topic that is deleted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import confluent_kafka

from headrace.merger.order import NOTHING_REACHED, OrderKey
from headrace.model import TopicPartition

_NO_EPOCH = -1
_METADATA = re.compile(r"(-?\d+(?: -?\d+){4}) ([^=, ]+=[^=, ]+(?:,[^=, ]+=[^=, ]+)*)")


@dataclass(frozen=True, slots=True)
class InputPosition:
    """An input as it stands.

    Attributes:
        offset: of the first record that is not written yet.
        read_to: the offset behind the last record that was read.
        epoch: of the leader that gave that record; -1: not known.
        time_ms: how far the input's time is; -1: not known.
        reached: how far the output is; the same for all inputs of an output.
        topics: ids of the topics of all inputs of the output, by their names.
    """

    offset: int
    read_to: int = 0
    epoch: int = _NO_EPOCH
    time_ms: int = -1
    reached: OrderKey = NOTHING_REACHED
    topics: Mapping[str, str] = field(default_factory=dict)

    @property
    def metadata(self) -> str:
        """What is committed beside the offset."""
        numbers = map(str, (self.read_to, self.epoch, self.time_ms, *self.reached))
        topics = ",".join(f"{name}={topic_id}" for name, topic_id in self.topics.items())
        return " ".join((*numbers, topics))


OutputPosition = tuple[InputPosition, ...]
"""The positions of an output's inputs, in the order of ties."""


def position_of(offset: confluent_kafka.TopicPartition) -> InputPosition | None:
    """Returns what instances committed for an input; ``None``: nothing.

    Metadata that is none of ours, as after Kafka's own tool has moved an offset, tells nothing.
    """
    if offset.offset < 0:
        return None
    match = _METADATA.fullmatch(offset.metadata or "")
    if match is None:
        return InputPosition(offset.offset, read_to=offset.offset)
    read_to, epoch, time_ms, reached_ms, place = map(int, match[1].split(" "))
    topics = dict(pair.split("=") for pair in match[2].split(","))
    return InputPosition(
        offset.offset, read_to, epoch, time_ms, OrderKey(reached_ms, place), topics
    )


def committed_offset(
    source: TopicPartition, position: InputPosition
) -> confluent_kafka.TopicPartition:
    """Returns what is committed for an input."""
    return confluent_kafka.TopicPartition(
        source.topic, source.partition, position.offset, position.metadata
    )
