"""What a query from topic to topic commits of a partition that it reads."""

from __future__ import annotations

from dataclasses import dataclass

import confluent_kafka

from headrace.kafka.client.client import leader_epoch
from headrace.kafka.read.resume import Position

_PARTS = 3


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """The next record of a partition of the source.

    Attributes:
        offset: of the record.
        topic_id: of the topic that it is an offset of; empty: not known.
        scan_from: offset at the target; copies of records from ``offset`` on are after it.
        instance: that committed it; empty: none did.
        epoch: of a leader of the source's partition that had what is before the offset; -1: not
            known.
    """

    offset: int
    topic_id: str = ""
    scan_from: int = 0
    instance: str = ""
    epoch: int = -1

    @property
    def reached(self) -> Position:
        """How far the source was read."""
        return Position(self.offset, self.topic_id, self.offset, self.epoch)

    @property
    def metadata(self) -> str:
        """What is committed beside the offset."""
        return f"{self.topic_id} {self.scan_from} {self.instance}"

    @classmethod
    def of(cls, committed: confluent_kafka.TopicPartition) -> CommittedPosition:
        """Returns what an offset and its metadata say."""
        parts = (committed.metadata or "").split(" ", _PARTS - 1)
        if len(parts) == _PARTS and parts[1].isdecimal():
            epoch = leader_epoch(committed)
            return cls(committed.offset, parts[0], int(parts[1]), parts[2], epoch)
        return cls(committed.offset)
