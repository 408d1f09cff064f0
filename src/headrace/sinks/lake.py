"""Sink ``lake``: a Delta table under the project's lake, partitioned by event time and columns.

    Lake("impressions", partition_by=("day", "hour", "campaign"))

    impressions/_delta_log/...
    impressions/day=2019-11-24/hour=7/campaign=all/part-<task>-<uuid>.zstd.parquet

Guarantees:
- Exactly once. A batch is one Delta transaction that carries (application id, batch id). A batch
  that is committed already, or an older one, is refused and changes nothing, also when two
  drivers try at the same moment.
- Nothing half-written is visible: readers see the files of a batch all at once, or none.
- Partition columns read back as they were, whatever they hold. Null and the empty text are one
  partition and read back as null; values that can't name a directory have the home that
  :class:`~headrace.model.UnsafeValues` says.
- Late rows add at most one file per partition and batch.
- Compaction, other pipelines and other Delta engines may write at the same time.

What it does not do: keep an order between rows, update or delete rows, or survive a power cut
that loses what the file system had acknowledged. A task or driver that dies leaves files that no
version holds; ``headrace compact TABLE`` removes them after the retention.

The task's half, which needs no Spark either, is :class:`headrace.sinks.files.PartitionedWriter`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pyarrow as pa
from deltalake import DeltaTable

from headrace.sinks.compaction import RETENTION, SMALL_BYTES, Compaction, CompactionResult
from headrace.sinks.delta_log import Batch, DeltaLog, live_paths
from headrace.sinks.folder import TableFolder
from headrace.sinks.manifest import WriteSpec, WrittenFile
from headrace.sinks.merging import FileMerger
from headrace.sinks.partitions import Partition
from headrace.sinks.storage import NO_OPTIONS, Options
from headrace.sinks.table_schema import new_columns, table_schema

NO_METADATA: Mapping[str, object] = {}


class LakeTable:
    """The driver's half: commits the files that tasks wrote. Not thread-safe.

    Every method raises SinkError when the log can't be read or written, and OSError when data
    files can't.

    Args:
        spec: the one its tasks have.
    """

    def __init__(self, spec: WriteSpec) -> None:
        self._spec = spec
        self._columns = table_schema(spec)
        self._log = DeltaLog(spec.root, spec.storage_options)
        self._folder = TableFolder(spec.root, spec.storage_options)
        self._compaction = Compaction(spec.root, spec.storage_options, spec.lake.compression)
        self._small_files: Counter[Partition] | None = None

    def committed_batch(self, app_id: str) -> int | None:
        """The last batch of ``app_id`` in the table; None when there is none."""
        table = self._log.snapshot()
        return None if table is None else table.transaction_version(app_id)

    def commit(
        self,
        files: Sequence[WrittenFile],
        *,
        app_id: str,
        batch_id: int,
        metadata: Mapping[str, object] = NO_METADATA,
    ) -> bool:
        """Make ``files`` visible in one transaction; creates the table when there is none.

        New columns of the rows are added to the table first. No files: nothing is committed.

        Args:
            files: of all tasks of the batch.
            app_id: the pipeline's identity, new when its checkpoint is.
            batch_id: Spark's.
            metadata: JSON values for the history of the table.

        Returns:
            False when this or a later batch is in the table: nothing changed, discard the files.

        Raises:
            SinkError: a column's type or the partitioning differs from the table's.
        """
        batch = Batch(app_id, batch_id, tuple(files), metadata)
        committed = self._log.retrying(lambda: self._commit_once(batch))
        if committed and self._small_files is not None:
            self._small_files.update(one.partition for one in files if one.size < SMALL_BYTES)
        return committed

    def _commit_once(self, batch: Batch) -> bool:
        table = self._log.snapshot()
        if table is not None and batch.committed_in(table):
            return _is_in(table, batch.files)  # by this call: the answer was lost
        if not batch.files:
            return True
        if table is None:
            self._log.create(self._columns, self._spec.partition_columns, batch)
        else:
            self._log.append(self._with_new_columns(table), batch)
        return True

    def _with_new_columns(self, table: DeltaTable) -> DeltaTable:
        missing = new_columns(self._spec, table)
        if not missing:
            return table
        self._log.add_columns(table, missing)
        return self._log.existing()

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """Delete files of a batch that is given up; those that the table holds are kept."""
        table = self._log.snapshot()
        live = live_paths(table) if table and files else set()
        self._folder.delete(file.path for file in files if file.path not in live)

    def is_late(self, file: WrittenFile, late_before_us: int) -> bool:
        """Whether the newest time partition of ``file`` was over at ``late_before_us``."""
        newest = file.max_event_time_us
        return newest is not None and self._spec.time_key.end_us(newest) <= late_before_us

    def merge_late(self, files: Sequence[WrittenFile], late_before_us: int) -> list[WrittenFile]:
        """``files`` with the late ones merged: at most one a partition. Call it before commit.

        Args:
            files: of all tasks of the batch; merged ones are deleted.
            late_before_us: event time, microseconds since 1970, before which partitions are over:
                the watermark less ``Lake.lateness``.
        """
        late: dict[Partition, list[WrittenFile]] = defaultdict(list)
        for file in files:
            if self.is_late(file, late_before_us):
                late[file.partition].append(file)
        several = {partition: group for partition, group in late.items() if len(group) > 1}
        replaced = {file.path for group in several.values() for file in group}
        kept = [file for file in files if file.path not in replaced]
        return kept + self._merged(several)

    def _merged(self, groups: Mapping[Partition, Sequence[WrittenFile]]) -> list[WrittenFile]:
        event_times = [self._spec.event_time] if self._spec.event_time else []
        merger = FileMerger(self._folder, self._spec.lake.compression, event_times=event_times)
        paths = {key: [file.path for file in files] for key, files in groups.items()}
        merged = merger.merge_all(paths.items())
        self._folder.delete(path for group in paths.values() for path in group)
        return merged

    def compact(self, min_files: int = 2, retention: timedelta = RETENTION) -> CompactionResult:
        """Merge small files and delete dead ones, see :class:`Compaction`."""
        return self._compaction.run(min_files) + self._compaction.vacuum(retention)

    def compact_if_due(self) -> CompactionResult:
        """After a commit: merge where ``Lake.compact_files`` small files have gathered."""
        threshold = self._spec.lake.compact_files
        if not threshold or max(self._counted().values(), default=0) < threshold:
            return CompactionResult()
        result = self._compaction.run(threshold)
        self._small_files = None
        return result

    def _counted(self) -> Counter[Partition]:
        if self._small_files is None:
            self._small_files = Counter(self._compaction.small_files())
        return self._small_files


def read_table(
    uri: str, columns: Sequence[str] | None = None, options: Options = NO_OPTIONS
) -> pa.Table:
    """The rows of a Delta table, in no order; SinkError when there is none.

    delta-rs reads them: a pyarrow dataset would call its Python file system from threads that
    can outlive the interpreter, which then aborts.
    """
    table = DeltaLog(uri, options).existing()
    types = pa.schema(table.schema())
    rows = pa.table(table.scan(columns=list(columns) if columns is not None else None))
    return rows.cast(pa.schema([types.field(name) for name in rows.column_names]))


def _is_in(table: DeltaTable, files: Sequence[WrittenFile]) -> bool:
    return bool(files) and files[0].path in live_paths(table)
