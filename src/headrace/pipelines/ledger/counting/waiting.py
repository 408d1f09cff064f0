"""Sums of events that wait in a join, before and after a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.ledger.sums import Fate, Hop, Sums
from headrace.pipelines.ledger.sums import LedgerKey, LedgerLine, added, lines_of


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in one partition, as the state says that a batch begins and ends with.

    Attributes:
        before: lines of fate ``waiting`` before the batch.
        after: those after it.
    """

    before: tuple[LedgerLine, ...] = ()
    after: tuple[LedgerLine, ...] = ()

    @property
    def lines(self) -> tuple[LedgerLine, ...]:
        """Lines that a batch adds to those of the batches before: negative where a wait ends."""
        return lines_of(added((*self.after, *negative(self.before))))


WaitingByPartition: TypeAlias = Mapping[str, Mapping[int, tuple[LedgerLine, ...]]]
"""Lines of what waits, by topic and partition; empty lines: nothing waits there."""


def all_lines(held: WaitingByPartition) -> Iterator[LedgerLine]:
    """Yields the lines of all partitions."""
    return (line for of_topic in held.values() for lines in of_topic.values() for line in lines)


def negative(lines: Iterable[LedgerLine]) -> Iterator[LedgerLine]:
    """Yields lines that subtract what others add."""
    return (LedgerLine(line.key, Sums() - line.sums) for line in lines)


def waiting_lines(
    topic: str, partition: int, sums: Mapping[int | None, Sums]
) -> tuple[LedgerLine, ...]:
    """Returns the lines of what waits in a partition, from its sums by window."""
    return lines_of(
        {
            LedgerKey(Hop.JOIN, Fate.WAITING, window, topic, partition): of_window
            for window, of_window in sums.items()
        }
    )
