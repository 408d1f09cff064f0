"""Gaps and overlaps between the offsets that batches have read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.pipelines.ledger.entry import EntryRange, joined
from headrace.pipelines.ledger.reprocessed import unread
from headrace.pipelines.ledger.windows import Break


def breaks_of(
    ranges: Iterable[EntryRange],
    recorded: Mapping[tuple[str, str, int], int],
    read_again: Sequence[EntryRange] = (),
) -> list[Break]:
    """Returns the offsets that no batch has read, or more than one.

    Args:
        ranges: that batches have read.
        recorded: by topic, topic id and partition, the positions that the sink records.
        read_again: ranges that reprocessings have read: they are no gap.
    """
    by_partition: dict[tuple[str, str, int], list[EntryRange]] = {}
    for range_ in joined(ranges):
        by_partition.setdefault(range_.partition_id, []).append(range_)
    result = []
    for partition_id, of_partition in by_partition.items():
        end = max(range_.end for range_ in of_partition)
        if (at := recorded.get(partition_id, end)) > end:
            of_partition.append(EntryRange(*partition_id, at, at))
        for fault in _between(of_partition):
            gap = EntryRange(*partition_id, fault.start, fault.end)
            left = unread(read_again, gap) if fault.is_gap else [gap]
            result += [replace(fault, start=part.start, end=part.end) for part in left]
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
