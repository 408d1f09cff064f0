"""What a join holds of an event: its key, its time, where it was read, and the record's bytes."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.events.event_hash import Hashes
from headrace.model import DeadLetter
from headrace.pipelines.join.index.slices import FINGERPRINT_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

Integers = NDArray[np.int64]
Fingerprints = NDArray[np.uint32]
FINGERPRINT = np.dtype(f"<u{FINGERPRINT_BYTES}")


time_and_offset = attrgetter("time_us", "offset")
"""Orders events of a key: of equal times, the one that was read last counts."""


class KeyedEvent(NamedTuple):
    """An event of either side.

    Attributes:
        key: of the join, as bytes: text in UTF-8, an integer as decimal digits.
        time_us: its event time, microseconds since 1970.
        offset: of its record.
        value: of its record.
        hash: of its id, for the ledger; 0 for an event of the earlier topic.
    """

    key: bytes
    time_us: int
    offset: int
    value: bytes
    hash: int = 0


@dataclass(frozen=True)
class KeyedEvents:
    """Many events, by column: an element of each for each of them, in order of offset.

    Attributes:
        keys: of the join.
        times_us: their event times.
        offsets: of their records.
        values: of their records.
        hashes: of their ids, for the ledger; 0 for events of the earlier topic.
    """

    keys: Sequence[bytes]
    times_us: Integers
    offsets: Integers
    values: Sequence[bytes]
    hashes: Hashes

    @classmethod
    def of(cls, events: Sequence[KeyedEvent]) -> KeyedEvents:
        """Returns the columns of events."""
        return cls(
            [event.key for event in events],
            np.array([event.time_us for event in events], np.int64),
            np.array([event.offset for event in events], np.int64),
            [event.value for event in events],
            np.array([event.hash for event in events], np.uint64),
        )

    @classmethod
    def concat(cls, parts: Sequence[KeyedEvents]) -> KeyedEvents:
        """Returns the events of all parts, in their order."""
        return cls(
            [key for part in parts for key in part.keys],
            np.concatenate([np.empty(0, np.int64), *(part.times_us for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.offsets for part in parts)]),
            [value for part in parts for value in part.values],
            np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)]),
        )

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> KeyedEvent:
        numbers = int(self.times_us[index]), int(self.offsets[index])
        return KeyedEvent(self.keys[index], *numbers, self.values[index], int(self.hashes[index]))

    def __iter__(self) -> Iterator[KeyedEvent]:
        numbers = self.times_us.tolist(), self.offsets.tolist()
        return map(KeyedEvent, self.keys, *numbers, self.values, self.hashes.tolist())

    def where(self, is_kept: NDArray[np.bool_]) -> KeyedEvents:
        """Returns the events at whose places an array is true."""
        if is_kept.all():
            return self
        indices = np.flatnonzero(is_kept)
        places = indices.tolist()
        return KeyedEvents(
            [self.keys[i] for i in places],
            self.times_us[indices],
            self.offsets[indices],
            [self.values[i] for i in places],
            self.hashes[indices],
        )

    @cached_property
    def fingerprints(self) -> Fingerprints:
        """The fingerprint of each key."""
        return fingerprints(self.keys)


@dataclass(frozen=True)
class DecodedEvents:
    """Events that were kept or waited, decoded again.

    Attributes:
        rows: of those that are events of the topic now, in their order.
        events: these.
        rejected: dead letters of the others.
    """

    rows: pa.Table
    events: Sequence[KeyedEvent]
    rejected: Sequence[DeadLetter]


def fingerprints(keys: Collection[bytes]) -> Fingerprints:
    """Returns the CRC-32 of each key, in the order of the keys.

    Different keys rarely have the same: of a million keys that an index of a million does not hold,
    about 230 look as if it did.
    """
    return np.fromiter(map(zlib.crc32, keys), FINGERPRINT, len(keys))
