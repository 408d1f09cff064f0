"""The topic that has the state of a worker, one partition for each of the topic that it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import earliest_offsets, high_watermarks
from headrace.kafka.read.range_reader import read_records
from headrace.kafka.write.record import ProducerRecord
from headrace.model import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from headrace.kafka.group.commits import OffsetCommit

RESERVED = b"\x00headrace."
"""Keys that begin like this are headrace's own."""
POSITION = RESERVED + b"position"

_GROUP = "headrace.state"
# As long as brokers may take to abort the transaction of an instance that was killed, and more.
_SILENCE_SECONDS = 120.0


class StatePosition(msgspec.Struct, frozen=True):
    """The commit that a state is of.

    Attributes:
        offset: that the group committed.
        metadata: what was committed with it.
    """

    offset: int
    metadata: str


# Made at import: threads restore several partitions at once.
_POSITIONS = msgspec.json.Decoder(StatePosition)


@dataclass
class StoredValues:
    """A partition of the topic, as it was read.

    Attributes:
        values: as JSON, by record key.
        position: that they are of; ``None``: there is none.
    """

    values: dict[bytes, bytes] = field(default_factory=dict)
    position: StatePosition | None = None

    def take(self, key: bytes, value: bytes | None) -> None:
        """Applies the next record."""
        if key == POSITION:
            self.position = None if value is None else _position(value)
        elif value is None:
            self.values.pop(key, None)
        else:
            self.values[key] = value


def position_record(topic: str, commit: OffsetCommit) -> ProducerRecord:
    """Returns what says in ``topic`` that its state is that of a commit."""
    value = msgspec.json.encode(StatePosition(commit.offset, commit.metadata))
    return ProducerRecord(topic, POSITION, value, (), commit.partition.partition)


def read_state(config: ClientConfig, partition: TopicPartition) -> StoredValues:
    """Returns the committed state of a partition, once no transaction in it is open.

    Raises:
        BrokerUnreachableError: if brokers do not answer, or a transaction stays open.
        AuthorizationError: if an ACL is missing.
        TopicMissingError: if there is no such partition.
    """
    [start] = earliest_offsets(config, [partition]).values()
    # Not the end that readers of committed records see: what was committed at last may lie behind a
    # transaction that is still open.
    [end] = high_watermarks(config, [partition]).values()
    stored = StoredValues()
    read = OffsetRange(partition, start, end)
    for record in read_records(config, _GROUP, [read], silence_limit_seconds=_SILENCE_SECONDS):
        key = record.key()
        if key is not None:
            stored.take(key, record.value())
    return stored


def _position(value: bytes) -> StatePosition | None:
    try:
        return _POSITIONS.decode(value)
    except msgspec.MsgspecError:
        return None  # not headrace's own: it fits no commit
