"""The balance of one window of a ledger."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headrace.ledger.sums import Fate, Hop


class WindowState(enum.StrEnum):
    """How far a window is, and whether it balances.

    OPEN: event time has not passed its end. CLOSING: it has, but late events are still allowed, or
    a partition that has more records is behind. BALANCED: it is over, and all is accounted for.
    UNBALANCED: a hop has other sums than the one before. UNKNOWN: something has not reported.
    """

    OPEN = "open"
    CLOSING = "closing"
    BALANCED = "balanced"
    UNBALANCED = "unbalanced"
    UNKNOWN = "unknown"

    @classmethod
    def of(
        cls, differences: Sequence[Imbalance], unknown: str, otherwise: WindowState | None = None
    ) -> WindowState:
        """Returns UNBALANCED with differences, UNKNOWN with a reason, else the other state."""
        if differences:
            return cls.UNBALANCED
        return cls.UNKNOWN if unknown else otherwise or cls.BALANCED


@dataclass(frozen=True)
class Imbalance:
    """Events that a hop has not accounted for.

    Attributes:
        hop: where they are missing, or too many.
        number: how many are missing; negative: too many; 0: as many, but others.
        bytes: how many bytes are missing.
        ids_differ: whether the sums of the hashes of ids differ.
        partition: ``topic/number``; empty: of all partitions together.
    """

    hop: Hop
    number: int
    bytes: int = 0
    ids_differ: bool = False
    partition: str = ""

    def __str__(self) -> str:
        """Returns how many events are missing or too many, and where."""
        if self.number:
            amount = f"{abs(self.number)} {'missing' if self.number > 0 else 'too many'}"
        else:
            amount = "same number, other events" if self.ids_differ else "same events, other sizes"
        return f"{amount} at {self.hop}" + (f" ({self.partition})" if self.partition else "")


@dataclass(frozen=True)
class WindowBalance:
    """One window of a pipeline or of a link.

    Attributes:
        start: of the window; None: events without an event time.
        state: whether it balances.
        read: events that were read.
        fates: by fate, how many events have ended so, at any hop.
        differences: where it does not balance.
        unknown: why it is not known whether it does, as a sentence; empty: it is known.
        rows: that a recount has found; None: there was none.
        side_rows: that a recount of the side table has found; None: there was none.
    """

    start: datetime | None
    state: WindowState
    read: int
    fates: Mapping[Fate, int]
    differences: tuple[Imbalance, ...] = ()
    unknown: str = ""
    rows: int | None = None
    side_rows: int | None = None
