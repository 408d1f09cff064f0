"""Keeps an Iceberg table fast to read: merges small files, expires snapshots, removes orphans."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import SinkError
from headrace.runtime.clock import now_in_ms
from headrace.sinks.api import CompactionResult
from headrace.sinks.lake.files.data_file import FileSwap, WriteSpec, WrittenFile
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.files.partitions import Partition
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable, folder_of
from headrace.sinks.lake.iceberg.data_files import written_spec
from headrace.sinks.lake.iceberg.positions import MERGED, Mark
from headrace.sinks.lake.iceberg.scanned_files import FileReader, partition_of
from headrace.sinks.lake.iceberg.schema import file_schema, partitions_of
from headrace.sinks.lake.iceberg.sent_once import send
from headrace.sinks.lake.layout import TableLayout
from headrace.sinks.lake.table_schema import check_partitioning
from headrace.sinks.lake.upkeep.compaction import (
    RETENTION,
    TARGET_BYTES,
    TRANSACTION_BYTES,
    Threshold,
    is_small,
)
from headrace.sinks.lake.upkeep.merging import FileMerger, in_groups
from headrace.storage import files as storage

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

_EXPIRE_VERSIONS = 50
_OWN_KINDS = (".parquet", ".avro")
_MAX_AGE = "history.expire.max-snapshot-age-ms"
_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
_FIVE_DAYS_MS = str(5 * 86_400_000)  # Iceberg's default

_Group = list["FileScanTask"]
_Swap = FileSwap["FileScanTask"]


def upkeep_of(place: CatalogTable, layout: TableLayout, event_time: str | None) -> IcebergUpkeep:
    """Returns the upkeep of a table by what it is, beside pipelines that write to it.

    Raises:
        SinkError: if there is none.
    """
    columns = file_schema(place.existing().metadata)
    known = event_time if event_time in columns.names else None
    return IcebergUpkeep(place, WriteSpec(place.uri, columns, layout, known))


class IcebergUpkeep:
    """The upkeep of one table; other writers may commit meanwhile.

    Files with deletes of other engines are left alone, as are those of an earlier partitioning.

    Args:
        place: of the table.
        declared: what is written to it.
    """

    def __init__(self, place: CatalogTable, declared: WriteSpec) -> None:
        self._place = place
        self._declared = declared
        self._expired_at = 0

    def shorten_log(self, version: int) -> None:
        """Expires snapshots, as the properties of the table say: ``history.expire.*``."""
        if version - self._expired_at >= _EXPIRE_VERSIONS:
            self._place.retrying(self._expire)
            self._expired_at = version

    def _expire(self) -> None:
        table = self._place.existing()
        # Snapshots show a rollback, until each pipeline that it took rows of was started again.
        if not all(mark.is_in(table.metadata) for mark in Mark.of_all(table.metadata)):
            return
        if old := _old_snapshots(table, now_in_ms()):
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def small_files(self) -> tuple[int, dict[Partition, int]]:
        """See :meth:`~headrace.sinks.lake.upkeep.maintenance.Upkeep.small_files`."""
        with self._place.errors_named():
            table = self._place.existing()
            small = self._small(table).items()
            counts = {partition: len(files) for partition, files in small}
        head = table.metadata.current_snapshot()
        return 0 if head is None else head.sequence_number or 0, counts

    def run(
        self, threshold: Threshold = lambda _: 2, abandoned: threading.Event | None = None
    ) -> CompactionResult:
        """Merges the small files of each partition that has as many as its ``threshold``.

        Each gigabyte is one snapshot. Positions stay as they are.

        Raises:
            SinkError: if there is no table, or the merging was abandoned.
        """
        with self._place.errors_named():
            table = self._place.existing()
            small = self._small(table).items()
            crowded = [files for partition, files in small if len(files) >= threshold(partition)]
            split = (in_groups(files, _size, TARGET_BYTES) for files in crowded)
            groups = [group for several in split for group in several if len(group) > 1]
            transactions = in_groups(
                groups, lambda group: sum(map(_size, group)), TRANSACTION_BYTES
            )
            merging = _Merging(table, written_spec(table, self._declared), abandoned)
            return sum((self._merge(merging, part) for part in transactions), CompactionResult())

    def _merge(self, merging: _Merging, groups: Sequence[_Group]) -> CompactionResult:
        swaps = [FileSwap([merging.merged(group)], group) for group in groups]
        swapped = self._place.retrying(lambda: self._swapped(swaps))
        left = (swap for swap in swaps if swap not in swapped)
        merging.folder.delete(file.path for swap in left for file in swap.added)
        return CompactionResult(sum(len(swap.removed) for swap in swapped), len(swapped))

    def _swapped(self, swaps: Sequence[_Swap]) -> list[_Swap]:
        """Commits what others have left possible meanwhile, and returns it."""
        table = self._place.existing()
        check_partitioning(self._declared, partitions_of(table.metadata, self._declared))
        live = {task.file.file_path: task for task in table.scan().plan_files()}
        # An attempt before may have been committed although its answer was lost.
        root, _ = folder_of(table, self._declared.root)
        if done := [swap for swap in swaps if storage.join(root, swap.added[0].path) in live]:
            return done
        whole = [s for s in swaps if all(_is_mergeable(live, task, table) for task in s.removed)]
        if whole:
            added = [file for swap in whole for file in swap.added]
            removed = [live[task.file.file_path].file for swap in whole for task in swap.removed]
            summary = {MERGED: str(len(removed))}
            send(table, self._declared, FileSwap(added, removed), summary, lambda _: {})
        return whole

    def _small(self, table: Table) -> dict[Partition, _Group]:
        check_partitioning(self._declared, partitions_of(table.metadata, self._declared))
        small: dict[Partition, _Group] = defaultdict(list)
        for task in table.scan().plan_files():
            if is_small(task.file.file_size_in_bytes) and _is_plain(task, table):
                small[partition_of(task, self._declared)].append(task)
        return small

    def remove_orphans(self, retention: timedelta = RETENTION) -> CompactionResult:
        """Deletes Parquet and Avro files that nothing of the table names and that are old enough.

        Files of other kinds may be the catalog's. ``retention`` must exceed the longest batch:
        files that a batch has written but not committed look like orphans.
        """
        self._place.retrying(self._expire)
        with self._place.errors_named():
            table = self._place.existing()
            root, options = table.location(), written_spec(table, self._declared).storage_options
            before = datetime.now(UTC) - retention
            old = storage.list_files_before(root, before, options)
            held = {_without_scheme(path) for path in _held_files(table)}
            orphans = [
                name
                for name in old
                if name.endswith(_OWN_KINDS)
                and _without_scheme(storage.join(root, name)) not in held
            ]
            storage.delete_files(root, orphans, options)
        return CompactionResult(vacuumed=len(orphans))


class _Merging:
    """Writes several files as one."""

    def __init__(self, table: Table, spec: WriteSpec, abandoned: threading.Event | None) -> None:
        self.folder = TableFolder(spec.root, spec.storage_options)
        self._reader = FileReader(table)
        self._spec = spec
        self._columns = file_schema(table.metadata)
        self._abandoned = abandoned
        times = [] if spec.event_time is None else [spec.event_time]
        codec = spec.layout.compression
        self._merger = FileMerger(self.folder, codec, spec.schema, times, abandoned, spec.files)

    def merged(self, tasks: Sequence[FileScanTask]) -> WrittenFile:
        """Returns a new file with the rows of others, which are of one partition."""
        partition = partition_of(tasks[0], self._spec)
        return self._merger.write(partition, self._rows(tasks), "merged")

    def _rows(self, tasks: Sequence[FileScanTask]) -> Iterator[pa.Table]:
        for task in tasks:
            if self._abandoned is not None and self._abandoned.is_set():
                raise SinkError(self._spec.root, "a merge of small files was abandoned")
            rows = self._spec.files.rows(self._reader.rows(task), Partition(()))
            # A file that lacks a column and one that has it differ in the kind of its texts.
            yield rows.cast(self._columns)


def _is_plain(task: FileScanTask, table: Table) -> bool:
    return not task.delete_files and task.file.spec_id == table.metadata.default_spec_id


def _is_mergeable(live: Mapping[str, FileScanTask], task: FileScanTask, table: Table) -> bool:
    present = live.get(task.file.file_path)
    return present is not None and _is_plain(present, table)


def _size(task: FileScanTask) -> int:
    return int(task.file.file_size_in_bytes)


def _old_snapshots(table: Table, now_ms: int) -> list[int]:
    """Returns the ids of snapshots that may expire: neither young nor among the last, nor named."""
    properties = table.properties
    oldest_ms = now_ms - int(properties.get(_MAX_AGE, _FIVE_DAYS_MS))
    named = {ref.snapshot_id for ref in table.metadata.refs.values()}
    snapshots = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    kept = int(properties.get(_MIN_SNAPSHOTS, "1"))
    return [
        snapshot.snapshot_id
        for snapshot in snapshots[: max(0, len(snapshots) - kept)]
        if snapshot.timestamp_ms < oldest_ms and snapshot.snapshot_id not in named
    ]


def _without_scheme(path: str) -> str:
    """Returns a path as it is for all engines: some write ``s3a://``, ``file:/`` or no scheme."""
    _, has_scheme, rest = path.partition("://")
    return (rest if has_scheme else path.removeprefix("file:")).lstrip("/")


def _held_files(table: Table) -> Iterator[str]:
    """Yields what the metadata name, and every data file and manifest that a snapshot holds."""
    for statistics in (*table.metadata.statistics, *table.metadata.partition_statistics):
        yield statistics.statistics_path
    read: set[str] = set()
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in read:
                read.add(manifest.manifest_path)
                yield manifest.manifest_path
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
                yield from (entry.data_file.file_path for entry in entries)
