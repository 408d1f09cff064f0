"""Rows that ``reprocess`` rewrites, in a Delta table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import ClassVar, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from headrace.errors import SinkError
from headrace.model.partition_value import RESCUED_COLUMN
from headrace.sinks.api import Transaction
from headrace.sinks.lake.delta.log import DeltaLog, live_files
from headrace.sinks.lake.delta.log_tail import replace_rows
from headrace.sinks.lake.delta.table import LakeTable
from headrace.sinks.lake.driver import LakeDriver
from headrace.sinks.lake.files.data_file import FileSwap, StoredFile, WriteSpec, WrittenFile
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.files.partitions import with_partition_values
from headrace.sinks.lake.replacing import AddingDriver, TableReplacingDriver, check_expected
from headrace.sinks.lake.row_comparison import RowFile, RowIdentity
from headrace.sinks.lake.upkeep.compaction import check_protocol
from headrace.sinks.lake.upkeep.merging import conformed
from headrace.storage import files as storage

_Result = TypeVar("_Result")


class _DeltaRows:
    """A version of a Delta table: a :class:`~headrace.sinks.lake.replacing.ReplacedTable`."""

    def __init__(self, table: DeltaTable, folder: TableFolder) -> None:
        self.table, self._folder = table, folder
        self.columns = pa.schema(table.schema())
        self._partition_columns = tuple(table.metadata().partition_columns)

    @cached_property
    def _in_files(self) -> pa.Schema:
        """The columns that are in the files."""
        return pa.schema(
            [field for field in self.columns if field.name not in self._partition_columns]
        )

    @cached_property
    def files(self) -> Sequence[StoredFile]:
        return list(live_files(self.table))

    def of(self, file: RowFile, names: Sequence[str] | None = None) -> pa.Table:
        chosen = [field for field in self.columns if names is None or field.name in names]
        rows = self._folder.read(file.path, None if names is None else [*names, RESCUED_COLUMN])
        whole = with_partition_values(rows, dict(file.partition.values))
        return conformed(whole, pa.schema(chosen))

    def stored(self, file: RowFile) -> pa.Table:
        return self.of(file, self._in_files.names)

    @property
    def timestamps(self) -> list[str]:
        return [field.name for field in self._in_files if pa.types.is_timestamp(field.type)]

    def check_removable(self, numbers: Collection[int]) -> None:  # noqa: ARG002
        properties = self.table.metadata().configuration
        for name in ("delta.appendOnly", "delta.enableChangeDataFeed"):
            if properties.get(name) == "true":
                reason = f"rows would have to be removed, and the table has {name} = true"
                raise SinkError(self.table.table_uri, reason)


class LakeReplacingDriver(TableReplacingDriver[_DeltaRows]):
    """A Delta table, opened beside the pipeline that writes to it.

    Args:
        spec: the table.
        keys: how rows of records are found.
        shown: columns of rows that :class:`RowChanges` has, beside those of ``keys``.

    Raises:
        TableMismatchError: if a column's type or the partitioning differs from the table's, or the
            table requires more of a writer than headrace does.
        StorageError: if the table's storage can't be used.
    """

    conflicts: ClassVar[tuple[type[Exception], ...]] = (CommitFailedError,)

    def __init__(self, spec: WriteSpec, keys: RowIdentity, shown: Sequence[str]) -> None:
        storage.require_conditional_writes(spec.root, spec.storage_options)
        self._table = LakeTable(spec)
        self._table.check()
        self._log = DeltaLog(spec.root, spec.storage_options)
        super().__init__(spec, keys, shown, self._table.log)

    def discard(self, pieces: Sequence[str]) -> None:
        """Deletes the files, but for those that the table holds."""
        self._table.discard([WrittenFile.from_json(piece) for piece in pieces])

    def _retrying(self, attempt: Callable[[], _Result]) -> _Result:
        return self._log.retrying(attempt)

    def _read(self, transaction: Transaction) -> _DeltaRows:
        self._table.grow()
        table = self._log.existing()
        check_protocol(self._log.uri, table)
        check_expected(self._log.uri, table.transaction_version, transaction)
        return _DeltaRows(table, self._folder)

    def _commit(self, table: _DeltaRows, swap: FileSwap[int], records: Transaction) -> None:
        replaced = FileSwap(swap.added, [table.files[number] for number in swap.removed])
        root, options = self._spec.root, self._spec.storage_options
        replace_rows(table.table, root, options, replaced, records)


class LakeAddingDriver(AddingDriver):
    """A unique Delta table.

    Args:
        spec: the table.
        shown: columns of rows that :class:`RowChanges` has, beside their places.
    """

    def __init__(self, spec: WriteSpec, shown: Sequence[str]) -> None:
        super().__init__(LakeDriver(spec), shown)
        self._log = DeltaLog(spec.root, spec.storage_options)
        self._folder = TableFolder(spec.root, spec.storage_options)

    def _read(self) -> _DeltaRows:
        return _DeltaRows(self._log.existing(), self._folder)
