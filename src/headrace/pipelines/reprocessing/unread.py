"""Which offsets of a plan were not read before: they go into parts of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headrace.model import OffsetRange
from headrace.pipelines.ledger.coverage import coverage_of
from headrace.pipelines.ledger.entry import EntryRange
from headrace.pipelines.ledger.history import read_history
from headrace.pipelines.ledger.reprocessed import outside
from headrace.pipelines.reprocessing.plan import ReprocessPlan
from headrace.sinks.api import PositionStore
from headrace.storage.files import NO_OPTIONS, Options


def unread_offsets(
    plan: ReprocessPlan, store: PositionStore, lake: str, options: Options = NO_OPTIONS
) -> Iterator[OffsetRange]:
    """Yields the offsets that neither a batch nor a reprocessing has read, as the ledger knows.

    Args:
        plan: of the reprocessing.
        store: what the sink records.
        lake: root URI of the lake.
        options: of the lake's storage.

    Raises:
        SinkError: if the ledger or the sink's positions can't be read.
    """
    history = read_history(lake, plan.pipeline, store.versions, options)
    if not history.entries or plan.checkpoint is None:
        return
    read = coverage_of(history.entries, history.recorded).up_to(plan.checkpoint)
    read += chain.from_iterable(part.ranges for part in history.reprocessed)
    for planned in plan.ranges:
        partition = planned.offsets.partition
        id_ = (partition.topic, plan.topic_id, partition.partition)
        # Of a partition that no batch has read, it is not known what was before the ledger.
        if any(range_.partition_id == id_ for range_ in read):
            for left in outside(read, EntryRange(*id_, planned.start, planned.end)):
                yield OffsetRange(partition, left.start, left.end)
