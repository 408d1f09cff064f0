"""What a join holds of an event: its key, its time, where it was read, and the record's bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from headrace.model import DeadLetter

if TYPE_CHECKING:
    import pyarrow as pa


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
class DecodedEvents:
    """Events that were kept or waited, decoded once more.

    Attributes:
        rows: of those that are events of the topic now, in their order.
        events: these.
        rejected: dead letters of the others.
    """

    rows: pa.Table
    events: Sequence[KeyedEvent]
    rejected: Sequence[DeadLetter]
