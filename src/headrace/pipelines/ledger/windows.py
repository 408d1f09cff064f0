"""What the ledger says of a window, and what it is compared with."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headrace.pipelines.ledger.sums import Fate, Hop, Sums


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
    bytes: int
    ids_differ: bool
    partition: str = ""


@dataclass(frozen=True)
class Break:
    """Offsets of a partition that no batch has read, or that several batches have.

    Attributes:
        hop: always ``offsets``.
        partition: ``topic/number``.
        start: the first of the offsets.
        end: the offset after the last one.
        is_gap: True: no batch has read them; False: more than one has.
    """

    partition: str
    start: int
    end: int
    is_gap: bool
    hop: Hop = Hop.OFFSETS


@dataclass(frozen=True)
class WindowBalance:
    """One window of a pipeline.

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


@dataclass(frozen=True)
class Recount:
    """Rows that a table holds.

    Attributes:
        sums: by start of the window, in seconds since 1970; None: rows without an event time.
            Bytes are 0, as rows have none.
        has_ids: whether the rows tell the ids that the ledger counts.
        without_ids: windows with rows that do not, where others do.
        failure: why there is none, as a sentence; empty: there is one.
    """

    sums: Mapping[int | None, Sums] = field(default_factory=dict)
    has_ids: bool = True
    failure: str = ""
    without_ids: frozenset[int | None] = frozenset()

    def compares_ids(self, start: int | None) -> bool:
        """Returns whether all rows of a window tell their ids."""
        return self.has_ids and start not in self.without_ids
