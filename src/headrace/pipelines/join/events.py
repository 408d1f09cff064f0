"""What a join holds of an event: its key, its time, where it was read, and the record's bytes."""

from __future__ import annotations

from typing import NamedTuple


class KeyedEvent(NamedTuple):
    """An event of either side.

    Attributes:
        key: of the join, as bytes: text in UTF-8, an integer as decimal digits.
        time_us: its event time, microseconds since 1970.
        offset: of its record.
        value: of its record.
    """

    key: bytes
    time_us: int
    offset: int
    value: bytes
