"""The topic that has the state of a worker, one partition for each of the topic that it reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.headers import headers_of
from headrace.kafka.client.offsets import earliest_offsets, high_watermarks
from headrace.kafka.read.range_reader import read_records
from headrace.kafka.write.record import ProducerRecord
from headrace.model import OffsetRange, TopicPartition
from headrace.workers.state.expiry import set_at_of
from headrace.workers.state.stream_time import NEVER

if TYPE_CHECKING:
    from headrace.kafka.group.commits import OffsetCommit
    from headrace.kafka.group.start_positions import StartPosition
    from headrace.kafka.read.range_reader import Record

RESERVED = b"\x00headrace."
"""Keys that begin like this are headrace's own."""
POSITION = RESERVED + b"position"
TIMERS = RESERVED + b"timers:"
"""Begins the key of the timers of a key."""

_GROUP = "headrace.state"
# As long as brokers may take to abort the transaction of an instance that was killed, and more.
_SILENCE_SECONDS = 120.0


class StatePosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The commit that a state is of.

    Attributes:
        offset: that the group committed.
        metadata: what was committed with it.
        stream_time_ms: of the partition before that offset; -1: none, or the state does not expire.
    """

    offset: int
    metadata: str
    stream_time_ms: int = NEVER

    def is_of(self, start: StartPosition) -> bool:
        """Returns whether an instance that starts there has this state."""
        return (self.offset, self.metadata) == (start.position, start.metadata)


# Made at import: threads restore several partitions at once.
_POSITIONS = msgspec.json.Decoder(StatePosition)


@dataclass
class StoredValues:
    """A partition of the topic, as it was read.

    Attributes:
        values: as JSON, by record key.
        set_at: when each was set, milliseconds since 1970: by stream time, or where that is not
            known, as it was written.
        timers: as JSON, by record key.
        position: that they are of; ``None``: there is none.
    """

    values: dict[bytes, bytes] = field(default_factory=dict)
    set_at: dict[bytes, int] = field(default_factory=dict)
    timers: dict[bytes, bytes] = field(default_factory=dict)
    position: StatePosition | None = None

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The keys of its records, but for the position."""
        return *self.values, *(TIMERS + key for key in self.timers)

    def take(self, key: bytes, value: bytes | None, set_at: int = NEVER) -> None:
        """Applies the next record."""
        if key == POSITION:
            self.position = None if value is None else _position(value)
        elif key.startswith(TIMERS):
            self.timers.pop(key[len(TIMERS) :], None)
            if value is not None:
                self.timers[key[len(TIMERS) :]] = value
        elif value is None:
            self.values.pop(key, None)
            self.set_at.pop(key, None)
        else:
            self.values[key], self.set_at[key] = value, set_at


def position_record(
    topic: str, commit: OffsetCommit, stream_time_ms: int = NEVER
) -> ProducerRecord:
    """Returns what says in ``topic`` that its state is that of a commit, and its stream time."""
    value = msgspec.json.encode(StatePosition(commit.offset, commit.metadata, stream_time_ms))
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
            stored.take(key, record.value(), _set_at(record))
    return stored


def _set_at(record: Record) -> int:
    set_at = set_at_of(headers_of(record))
    return record.timestamp()[1] if set_at is None else set_at


def _position(value: bytes) -> StatePosition | None:
    try:
        return _POSITIONS.decode(value)
    except msgspec.MsgspecError:
        return None  # not headrace's own: it fits no commit
