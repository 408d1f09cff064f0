"""The lines of a pipeline's ledger, which hold its sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.ledger.sums import Fate, Hop, Sums


@dataclass(frozen=True, slots=True, order=True)
class LedgerKey:
    """What the sums of a line are of: one hop, fate, window and partition.

    Attributes:
        hop: of the events.
        fate: what became of them there.
        window: start of their window, in seconds since 1970; None: no event time is known.
        topic: that they were read from.
        partition: that they were read from; -1: it is not known.
    """

    hop: Hop
    fate: Fate
    window: int | None
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """The sums of one key."""

    key: LedgerKey
    sums: Sums


def side_table_fate(hop: Hop) -> tuple[Hop, Fate]:
    """Returns hop and fate of the events in a side table, by the hop before steps or sink."""
    return (Hop.JOIN, Fate.UNMATCHED) if hop is Hop.JOIN else (Hop.READ, Fate.LATE)


def added(lines: Iterable[LedgerLine]) -> dict[LedgerKey, Sums]:
    """Returns the sums of lines by key; the order of the lines does not matter."""
    totals: dict[LedgerKey, Sums] = {}
    for line in lines:
        totals[line.key] = totals.get(line.key, Sums()) + line.sums
    return totals


def lines_of(totals: Mapping[LedgerKey, Sums]) -> tuple[LedgerLine, ...]:
    """Returns a line for each key whose sums are not zero."""
    return tuple(LedgerLine(key, sums) for key, sums in totals.items() if sums != Sums())
