"""Rows that ``reprocess`` rewrites, in an Iceberg table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headrace.errors import SinkError
from headrace.model.partition_value import RESCUED_COLUMN
from headrace.runtime.retrying import retry
from headrace.sinks.api import Transaction
from headrace.sinks.lake.files.data_file import FileSwap, WriteSpec, WrittenFile
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.files.partitions import Partition, with_rescued_values
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable
from headrace.sinks.lake.iceberg.driver import open_table
from headrace.sinks.lake.iceberg.positions import Mark, recorded, summary_of, versions_of
from headrace.sinks.lake.iceberg.scanned_files import FileReader, partition_of
from headrace.sinks.lake.iceberg.schema import file_schema, partitions_of
from headrace.sinks.lake.iceberg.sent_once import send
from headrace.sinks.lake.iceberg.table import IcebergTable
from headrace.sinks.lake.replacing import AddingDriver, TableReplacingDriver, check_expected
from headrace.sinks.lake.row_comparison import RowFile, RowIdentity
from headrace.sinks.lake.table_schema import check_partitioning
from headrace.sinks.lake.upkeep.merging import conformed

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

_Result = TypeVar("_Result")
# Without a wait: the other writer has committed, and what is read next has its files.
_COMPARISON_DELAYS = (0.0,) * 19


class _OutdatedError(SinkError):
    """Another writer has removed files, or rows of them, that were compared."""


@dataclass(frozen=True)
class _ScannedFile:
    """A file that a snapshot holds."""

    task: FileScanTask
    spec: WriteSpec = field(repr=False)

    @property
    def path(self) -> str:
        return self.task.file.file_path

    @property
    def partition(self) -> Partition:
        return partition_of(self.task, self.spec)

    @property
    def deletes(self) -> set[str]:
        return {file.file_path for file in self.task.delete_files}


class _IcebergRows:
    """A snapshot of a table: a :class:`~headrace.sinks.lake.replacing.ReplacedTable`."""

    def __init__(self, table: Table, spec: WriteSpec, folder: TableFolder) -> None:
        self._table, self._spec, self._folder = table, spec, folder
        self.columns = schema_to_pyarrow(table.schema(), include_field_ids=False)

    @property
    def head(self) -> Mark | None:
        return Mark.head(self._table.metadata)

    @cached_property
    def files(self) -> Sequence[_ScannedFile]:
        return [_ScannedFile(task, self._spec) for task in self._table.scan().plan_files()]

    def of(self, file: RowFile, names: Sequence[str] | None = None) -> pa.Table:
        chosen = [column for column in self.columns if names is None or column.name in names]
        read = {column.name for column in chosen} | ({RESCUED_COLUMN} & {*self.columns.names})
        partitions = read & {*self._spec.layout.value_columns}
        rows = conformed(
            self._rows(file, read), pa.schema([f for f in self.columns if f.name in read])
        )
        return with_rescued_values(rows, partitions).select([column.name for column in chosen])

    def stored(self, file: RowFile) -> pa.Table:
        return conformed(self._rows(file, self.columns.names), file_schema(self._table.metadata))

    def _rows(self, file: RowFile, names: Collection[str]) -> pa.Table:
        if isinstance(file, _ScannedFile):
            return FileReader(self._table, names).rows(file.task)
        return self._folder.read(file.path, names)

    @property
    def timestamps(self) -> list[str]:
        return [] if self._spec.event_time is None else [self._spec.event_time]

    def check_removable(self, numbers: Collection[int]) -> None:
        present = self._table.metadata.default_spec_id
        if any(self.files[number].task.file.spec_id != present for number in numbers):
            reason = "rows would have to be removed from files of an earlier partitioning"
            raise SinkError(
                self._spec.root, f"{reason}: rewrite these with the engine that made it"
            )


class IcebergReplacingDriver(TableReplacingDriver[_IcebergRows]):
    """An Iceberg table, opened beside the pipeline that writes to it.

    A part is one snapshot: an append, or an overwrite where rows go. Snapshots of others in between
    leave it possible as long as they hold the files that it rewrites, with the rows that were read.

    Args:
        place: of the table.
        declared: what is written to it.
        keys: how rows of records are found.
        shown: columns of rows that :class:`RowChanges` has, beside those of ``keys``.

    Raises:
        TableMismatchError: if a column's type or the partitioning differs from the table's.
        SinkError: if there is no table, or it can't be used.
    """

    conflicts: ClassVar[tuple[type[Exception], ...]] = (_OutdatedError,)

    def __init__(
        self, place: CatalogTable, declared: WriteSpec, keys: RowIdentity, shown: Sequence[str]
    ) -> None:
        place.existing()
        self._table = IcebergTable(place, declared)
        super().__init__(self._table.open(), keys, shown, self._table.log)
        self._place = place
        self._sent: dict[int, FileSwap[int]] = {}

    def discard(self, pieces: Sequence[str]) -> None:
        """Deletes the files, but for those of a commit that was sent."""
        sent = {file.path for swap in self._sent.values() for file in swap.added}
        files = (WrittenFile.from_json(piece) for piece in pieces)
        self._folder.delete(file.path for file in files if file.path not in sent)

    def _retrying(self, attempt: Callable[[], _Result]) -> _Result:
        # Ids of an earlier part say nothing about this one.
        self._sent.clear()
        with self._place.errors_named():
            return retry(attempt, _OutdatedError, _COMPARISON_DELAYS)

    def _read(self, transaction: Transaction) -> _IcebergRows:
        table = self._place.existing()
        self._check(table, transaction)
        return _IcebergRows(table, self._spec, self._folder)

    def _check(self, table: Table, transaction: Transaction) -> None:
        known = recorded(table.metadata, transaction.expected)
        check_expected(self._place.uri, known.get, transaction)
        check_partitioning(self._spec, partitions_of(table.metadata, self._spec))
        if self._table.has_other_columns(table.metadata):
            reason = "its columns have changed since the start of the command: run it again"
            raise SinkError(self._place.uri, reason)

    def _commit(self, table: _IcebergRows, swap: FileSwap[int], records: Transaction) -> None:
        self._place.retrying(lambda: self._send(table, swap, records))

    def _send(self, compared: _IcebergRows, swap: FileSwap[int], records: Transaction) -> None:
        table = self._place.existing()
        # An attempt before may have been committed although its answer was lost.
        if any(table.metadata.snapshot_by_id(id_) is not None for id_ in self._sent):
            return
        self._check(table, records)
        removed = [compared.files[number] for number in swap.removed]
        if removed and Mark.head(table.metadata) != compared.head:
            # What others have rewritten or deleted from meanwhile was not compared.
            live = {file.path: file for file in _IcebergRows(table, self._spec, self._folder).files}
            for file in removed:
                if file.path not in live or live[file.path].deletes != file.deletes:
                    reason = "files whose rows are replaced were rewritten by others too often"
                    raise _OutdatedError(self._place.uri, reason)

        def before(mark: Mark) -> Mapping[str, str]:
            # Before the request is sent: if its answer is lost, the id shows whether it was
            # committed.
            self._sent[mark.snapshot_id] = swap
            return versions_of(records)

        replaced = FileSwap(swap.added, [file.task.file for file in removed])
        send(table, self._spec, replaced, summary_of(records), before)


class IcebergAddingDriver(AddingDriver):
    """A unique Iceberg table.

    Args:
        place: of the table.
        declared: what is written to it.
        shown: columns of rows that :class:`RowChanges` has, beside their places.
    """

    def __init__(self, place: CatalogTable, declared: WriteSpec, shown: Sequence[str]) -> None:
        place.existing()
        table = open_table(place, declared)
        super().__init__(table, shown)
        self._place, self._spec = place, table.spec
        self._folder = TableFolder(table.spec.root, table.spec.storage_options)

    def _read(self) -> _IcebergRows:
        return _IcebergRows(self._place.existing(), self._spec, self._folder)
