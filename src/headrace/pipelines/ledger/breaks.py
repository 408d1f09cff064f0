"""Gaps and overlaps between the offsets that batches have read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from headrace.ledger.sums import Hop
from headrace.pipelines.ledger.entry import EntryRange, joined
from headrace.pipelines.ledger.reprocessed import outside


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

    def __str__(self) -> str:
        """How often the offsets were read."""
        what = "no batch has read" if self.is_gap else "more than one batch has read"
        return f"{what} offsets {self.start} to {self.end} of {self.partition}"


def breaks_of(
    ranges: Sequence[EntryRange],
    known_otherwise: Sequence[EntryRange] = (),
    planned: Iterable[EntryRange] = (),
) -> list[Break]:
    """Returns the offsets that no batch has read, or more than one.

    Args:
        ranges: that batches have read.
        known_otherwise: ranges that are no gap, such as those that reprocessings have read.
        planned: ranges that a last batch has planned and not read.
    """
    by_partition: dict[tuple[str, str, int], list[EntryRange]] = {}
    for range_ in joined(range_ for range_ in ranges if range_.start < range_.end):
        by_partition.setdefault(range_.partition_id, []).append(range_)
    result = []
    for partition_id, of_partition in by_partition.items():
        for fault in _joined(_between(of_partition)):
            gap = EntryRange(*partition_id, fault.start, fault.end)
            parts = outside(known_otherwise, gap) if fault.is_gap else [gap]
            result += [replace(fault, start=part.start, end=part.end) for part in parts]
    for gap in planned:
        name = f"{gap.topic}/{gap.partition}"
        parts = outside([*ranges, *known_otherwise], gap)
        result += [Break(name, part.start, part.end, is_gap=True) for part in parts]
    return result


def _joined(breaks: Iterable[Break]) -> list[Break]:
    """Joins breaks of one partition and kind that follow one another."""
    result: list[Break] = []
    for fault in breaks:
        before = result[-1] if result else None
        if before and (before.end, before.is_gap) == (fault.start, fault.is_gap):
            result[-1] = replace(before, end=fault.end)
        else:
            result.append(fault)
    return result


def _between(ranges: Sequence[EntryRange]) -> list[Break]:
    """Gaps and overlaps of the ranges of one partition, which are sorted."""
    result, read_to = [], ranges[0].start
    for range_ in ranges:
        name = f"{range_.topic}/{range_.partition}"
        if range_.start > read_to:
            result.append(Break(name, read_to, range_.start, is_gap=True))
        elif range_.start < read_to:
            overlap = min(read_to, range_.end)
            result.append(Break(name, range_.start, overlap, is_gap=False))
        read_to = max(read_to, range_.end)
    return result
