"""Which ranges one task reads: many small ones together, since a task costs more than they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.pipelines.source.reading.reader import ReadRange

PACK_OFFSETS = 10_000  # milliseconds of work: not worth a second processor


def packs(work: Sequence[ReadRange], min_tasks: int) -> list[tuple[ReadRange, ...]]:
    """The work of each task, in order. A task reads a partition once, and at least one range.

    Together they span at most :data:`PACK_OFFSETS`, and no more than leaves ``min_tasks`` tasks
    where there are as many ranges.
    """
    total = sum(_span(read) for read in work)
    return list(_packed(work, min(PACK_OFFSETS, total // max(1, min_tasks))))


def _packed(work: Sequence[ReadRange], max_span: int) -> Iterator[tuple[ReadRange, ...]]:
    pack: list[ReadRange] = []
    for read in work:
        if pack and not _joins(read, pack, max_span):
            yield tuple(pack)
            pack = []
        pack.append(read)
    if pack:
        yield tuple(pack)


def _joins(read: ReadRange, pack: Sequence[ReadRange], max_span: int) -> bool:
    if read.range is None or pack[-1].range is None:
        return False
    follows_itself = read.range.partition == pack[-1].range.partition
    return not follows_itself and sum(map(_span, pack)) + _span(read) <= max_span


def _span(read: ReadRange) -> int:
    return 0 if read.range is None else read.range.span
