"""Sink ``lake``: a Delta table under the project's lake, partitioned by event time and columns.

    Lake("impressions", partition_by=("day", "hour", "campaign"))

    impressions/_delta_log/...
    impressions/day=2019-11-24/hour=7/campaign=all/part-<task>-<uuid>.zstd.parquet

Guarantees:
- Exactly once. A batch is one Delta transaction that records versions of applications, such as the
  offsets it ends at, and that goes through only if the table records what it is expected to: of
  two drivers that try at the same moment, one commits.
- Nothing half-written is visible: readers see the files of a batch all at once, or none.
- Partition columns read back as they were, whatever they hold. Null and the empty text are one
  partition and read back as null; values that can't name a directory have the home that
  :class:`~headrace.sinks.lake.layout.UnsafeValues` says.
- Nothing but the commit is in a batch's way: :mod:`headrace.sinks.lake.upkeep.maintenance` merges
  small files beside it, those of late rows sooner.
- Compaction and other pipelines may write at the same time, as may other Delta engines that append
  or delete rows. Their OPTIMIZE may not, as long as headrace merges: delta-rs duplicates rows then.
- A table that requires more of a writer than :mod:`headrace.sinks.lake.delta.table_features` lists
  is refused.

What it does not do: keep an order between rows, update or delete rows, or survive a power cut
that loses what the file system had acknowledged. A task or driver that dies leaves files that no
version holds; ``headrace compact TABLE`` removes them after the retention.

The task's half is :mod:`headrace.sinks.lake.writer`, the driver's
:mod:`headrace.sinks.lake.delta.table`.
"""
