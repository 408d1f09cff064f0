"""The driver's half of the lake: one Delta table, committed to, compacted and read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

import pyarrow as pa

from headrace.errors import SinkError, TableMismatchError
from headrace.sinks.api import CommitRejection, CompactionResult, Transaction
from headrace.sinks.lake.delta.log import DeltaLog, live_paths
from headrace.sinks.lake.delta.log_tail import LogTail
from headrace.sinks.lake.delta.table_features import not_written
from headrace.sinks.lake.files.data_file import WriteSpec, WrittenFile
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.table_schema import (
    ColumnChange,
    added_columns,
    new_columns,
    recorded_columns,
    table_schema,
)
from headrace.sinks.lake.unique.filter import UniqueFilter
from headrace.sinks.lake.unique.row_keys import KeyRule
from headrace.sinks.lake.unique.table_keys import DeltaKeys
from headrace.sinks.lake.upkeep.compaction import RETENTION, Compaction
from headrace.storage.files import NO_OPTIONS, Options


class LakeTable:
    """The driver's half: commits the files that tasks wrote. Not thread-safe.

    Every method raises SinkError when the log can't be read or written, and OSError when data
    files can't.

    Args:
        spec: the one its tasks have.

    Attributes:
        unique: what finds rows that the table has already; None: it may have duplicates.
    """

    def __init__(self, spec: WriteSpec) -> None:
        self._spec = spec
        self._columns = table_schema(spec)
        self._recorded = recorded_columns(spec)
        self._log = DeltaLog(spec.root, spec.storage_options)
        self._folder = TableFolder(spec.root, spec.storage_options)
        rule = KeyRule.of(spec)
        self.unique = None if rule is None else UniqueFilter(spec, rule, DeltaKeys(spec, rule))
        self._compaction = Compaction(spec.root, spec.storage_options, spec.layout.compression)

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """What the table records of applications; those it does not know are left out."""
        return self._log.versions(app_ids)

    @property
    def log(self) -> DeltaLog:
        """The log, which records positions."""
        return self._log

    def commit(
        self, files: Sequence[WrittenFile], transaction: Transaction
    ) -> bool | CommitRejection:
        """Makes ``files`` visible in one commit; creates the table when there is none.

        New columns of the rows are added to the table first. Without files the commit only records
        the transaction, whose metadata go to the history of the table.

        Args:
            files: of all tasks of the batch.
            transaction: what the commit records. Of two writers that expect the same of the table,
                one commits.

        Returns:
            False when the table records its versions already, where it was expected not to:
            nothing changed, discard the files. Rows that a table which is unique has already, and
            the files without them: nothing changed.

        Raises:
            SinkError: if the table records neither what is expected nor the versions, or requires
                more of a writer than headrace does.
            TableMismatchError: if a column's type or the partitioning differs from the table's.
        """
        return self._log.retrying(lambda: self._commit_once(files, transaction))

    def _commit_once(
        self, files: Sequence[WrittenFile], transaction: Transaction
    ) -> bool | CommitRejection:
        tail = self._log.tail(transaction.app_ids)
        app_ids = transaction.app_ids
        recorded = (
            {} if tail is None else {name: tail.transaction_version(name) for name in app_ids}
        )
        if not transaction.follows(recorded, self._spec.root):
            # An earlier attempt of this call may have committed, and its answer was lost.
            return not files or files[0].path in live_paths(self._log.existing())
        if self.unique is not None:
            # In each attempt: rows of a writer that was faster are looked at, too.
            rejection = self.unique.check(files, -1 if tail is None else tail.version)
            if rejection is not None:
                return rejection
        if tail is None:
            self._log.create(self._columns, self._spec.partition_columns, files, transaction)
            # delta-rs takes no properties of others when it creates a table. A crash before this
            # leaves a table without them, to which the next commit adds them.
            self._log.set_properties(self._recorded)
        elif tail.unfulfilled is not None:
            raise SinkError(self._spec.root, not_written(tail.unfulfilled))
        elif self._has_grown(tail):
            return self._commit_once(files, transaction)
        else:
            # The log's own commit, and not that of delta-rs: see the docstring of its module.
            tail.append(files, transaction)
        return True

    def _has_grown(self, tail: LogTail) -> bool:
        """Adds what the table lacks of the rows' columns; its log must be read again then."""
        if missing := new_columns(self._spec, tail):
            self._log.add_columns(missing)
        elif self._recorded.items() <= tail.properties.items():
            return False
        else:
            self._log.set_properties(self._recorded)
        return True

    def grow(self) -> None:
        """Adds the columns of the rows that the table lacks, in transactions of their own.

        Raises:
            TableMismatchError: if a column's type or the partitioning differs from the table's.
        """
        while (tail := self._log.tail()) is not None and tail.unfulfilled is None:
            if not self._has_grown(tail):
                return

    def version(self) -> int:
        """The table's newest version; -1 when there is no table."""
        tail = self._log.tail()
        return -1 if tail is None else tail.version

    def check(self) -> None:
        """Compares the declaration with the existing table.

        Raises:
            TableMismatchError: if a column's type or the partitioning differs, the pipeline wrote
                columns before that it lacks now, or the table requires more of a writer than
                headrace does.
        """
        self.changes()

    def changes(self) -> list[ColumnChange]:
        """Returns what the first commit will add to the table; nothing, if there is none yet.

        Raises:
            TableMismatchError: as :meth:`check`.
        """
        tail = self._log.tail()
        if tail is not None and tail.unfulfilled is not None:
            raise TableMismatchError(self._spec.root, not_written(tail.unfulfilled))
        return added_columns(self._spec, tail)

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """Deletes files of a batch that is abandoned; those that the table holds are kept."""
        table = self._log.snapshot()
        live = live_paths(table) if table and files else set()
        self._folder.delete(file.path for file in files if file.path not in live)

    def compact(self, min_files: int = 2, retention: timedelta = RETENTION) -> CompactionResult:
        """Merges small files and deletes dead ones, see :class:`Compaction`."""
        return self._compaction.run(lambda _: min_files) + self._compaction.vacuum(retention)


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
