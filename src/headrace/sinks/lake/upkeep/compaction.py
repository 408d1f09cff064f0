"""Fewer, larger files: rewriting small ones beside a running writer, and removing dead ones."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta

import pyarrow as pa
from deltalake import DeltaTable

from headrace.errors import SinkError
from headrace.sinks.api import CompactionResult
from headrace.sinks.lake.delta.log import DeltaLog, live_files, live_paths
from headrace.sinks.lake.delta.log_tail import replace_files
from headrace.sinks.lake.delta.table_features import not_written, unfulfilled
from headrace.sinks.lake.files.data_file import FileSwap, StoredFile
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.files.partitions import Partition
from headrace.sinks.lake.upkeep.merging import FileMerger, in_groups
from headrace.storage.files import NO_OPTIONS, Options, list_files

# Readers open a file for each task: below this the opening costs more than the reading.
TARGET_BYTES = 128 * 1024 * 1024
# Two files that are smaller than this fit into one.
SMALL_BYTES = TARGET_BYTES // 2
# As of Delta Lake: readers that began with an older version still find its files.
RETENTION = timedelta(days=7)
# What one commit of a merge replaces at most: a conflict loses this much work, and no more.
TRANSACTION_BYTES = 8 * TARGET_BYTES

Threshold = Callable[[Partition], int]


_Group = list[StoredFile]


class Compaction:
    """Compacts the table at ``uri``; other writers may commit meanwhile.

    About a gigabyte is one transaction without a data change: readers of changes see nothing,
    and a crash leaves orphans only. Application transactions stay as they are.
    """

    def __init__(self, uri: str, options: Options = NO_OPTIONS, codec: str = "zstd") -> None:
        self._options = options
        self._log = DeltaLog(uri, options)
        self._folder = TableFolder(uri, options)
        self._codec = codec

    def small_files(self) -> tuple[int, dict[Partition, int]]:
        """The table's version (-1: no table), and how many small files each partition has in it."""
        table = self._log.snapshot()
        if table is None:
            return -1, {}
        small = _small_files(table).items()
        return table.version(), {partition: len(files) for partition, files in small}

    def run(
        self, threshold: Threshold = lambda _: 2, abandoned: threading.Event | None = None
    ) -> CompactionResult:
        """Merge the small files of every partition that has as many as its ``threshold``.

        Args:
            threshold: of a partition.
            abandoned: once it is set, nothing more is merged, and files of merges that are not
                committed are deleted.

        Raises:
            SinkError: if there is no table, it uses features that headrace does not write, or the
                compaction was abandoned.
        """
        table = self._log.existing()
        check_protocol(self._log.uri, table)
        partition_columns = table.metadata().partition_columns
        columns = pa.schema(
            [field for field in pa.schema(table.schema()) if field.name not in partition_columns]
        )
        times = [field.name for field in columns if pa.types.is_timestamp(field.type)]
        merger = FileMerger(self._folder, self._codec, columns, times, abandoned)
        small = _small_files(table).items()
        crowded = [files for partition, files in small if len(files) >= threshold(partition)]
        grouped = (in_groups(files, lambda file: file.size, TARGET_BYTES) for files in crowded)
        groups = [group for several in grouped for group in several if len(group) > 1]
        transactions = in_groups(
            groups, lambda group: sum(file.size for file in group), TRANSACTION_BYTES
        )
        return sum((self._merge(merger, several) for several in transactions), CompactionResult())

    def vacuum(self, older_than: timedelta = RETENTION) -> CompactionResult:
        """Delete files that no version since ``older_than`` holds, orphans of crashes included.

        ``older_than`` must exceed the longest batch: files that a batch has written but not
        committed look like orphans.
        """
        # delta-rs names files too that an earlier vacuum has deleted.
        present = set(list_files(self._log.uri, self._options))
        deleted = self._log.existing().vacuum(
            retention_hours=math.ceil(older_than.total_seconds() / 3600),
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
        )
        return CompactionResult(vacuumed=len(present.intersection(deleted)))

    def _merge(self, merger: FileMerger, groups: Sequence[_Group]) -> CompactionResult:
        merges = merger.merge_all(
            [(group[0].partition, [file.path for file in group]) for group in groups]
        )
        swaps = [FileSwap([file], group) for file, group in zip(merges, groups, strict=True)]
        swapped = self._log.retrying(lambda: self._swap(swaps))
        self._folder.delete(file.path for file in merges if file.path not in swapped)
        merged = sum(len(swap.removed) for swap in swaps if swap.added[0].path in swapped)
        return CompactionResult(merged=merged, written=len(swapped))

    def _swap(self, swaps: Sequence[FileSwap[StoredFile]]) -> set[str]:
        """Paths of the merged files in the table: not those of groups another one has merged."""
        table = self._log.existing()
        # A deletion vector takes rows from a file that was read and keeps its path. The protocol
        # that allows them may have come since, and no later without a collision of commits.
        check_protocol(self._log.uri, table)
        live = live_paths(table)
        # An attempt before may have been committed although its answer was lost.
        done = {file.path for swap in swaps for file in swap.added if file.path in live}
        whole = [swap for swap in swaps if live.issuperset(file.path for file in swap.removed)]
        added = [file for swap in whole for file in swap.added]
        if not done and whole:
            swap = FileSwap(added, [file for swap in whole for file in swap.removed])
            replace_files(table, self._log.uri, self._options, swap)
        return done or {file.path for file in added}


def check_protocol(uri: str, table: DeltaTable) -> None:
    """Refuses a table whose rows may be deleted without a new file: its reader version is above 1.

    Raises:
        SinkError: so it is, or the table requires more of a writer than headrace does.
    """
    if (feature := unfulfilled(table)) is not None:
        raise SinkError(uri, not_written(feature))
    version = table.protocol().min_reader_version
    if version > 1:
        raise SinkError(
            uri,
            f"another engine raised it to reader version {version}; compact it there (OPTIMIZE)",
        )


def is_small(size: int) -> bool:
    """Whether a file of ``size`` bytes is worth merging."""
    return size < SMALL_BYTES


def _small_files(table: DeltaTable) -> dict[Partition, _Group]:
    small: dict[Partition, _Group] = defaultdict(list)
    for file in live_files(table, SMALL_BYTES - 1):
        small[file.partition].append(file)
    return small
