"""The driver's half of an Iceberg table: commits of the files that tasks wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import SinkError, TableMismatchError
from headrace.sinks.api import CommitRejection, PositionStore, Transaction
from headrace.sinks.lake.files.data_file import FileSwap, WriteSpec, WrittenFile
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.iceberg.catalog.catalogs import LOST_RACES, CatalogTable
from headrace.sinks.lake.iceberg.data_files import written_spec
from headrace.sinks.lake.iceberg.positions import (
    IcebergPositions,
    Mark,
    properties_of,
    recorded,
    summary_of,
)
from headrace.sinks.lake.iceberg.schema import (
    PresentIceberg,
    add_partitions,
    changed_column,
    declared_columns,
    iceberg_types,
    missing_values,
    partitions_of,
)
from headrace.sinks.lake.iceberg.sent_once import send
from headrace.sinks.lake.iceberg.unique_keys import IcebergKeys
from headrace.sinks.lake.table_schema import (
    added_columns,
    check_partitioning,
    recorded_columns,
    table_schema,
)
from headrace.sinks.lake.unique.filter import UniqueFilter
from headrace.sinks.lake.unique.row_keys import KeyRule

if TYPE_CHECKING:
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

_CREATED = "is created"
TABLE_PROPERTIES = {
    "format-version": "2",
    # Each commit writes all snapshots again, a kilobyte each.
    "history.expire.max-snapshot-age-ms": str(3_600_000),
    "history.expire.min-snapshots-to-keep": "100",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
}


class IcebergTable:
    """One table of a catalog. Not thread-safe.

    Every method raises SinkError when the catalog or the table's files can't be read or written.

    Args:
        place: of the table.
        declared: what is written to it; its root and its files are those of the table once
            :meth:`open` has found them.

    Raises:
        TableMismatchError: if no table can have the declared columns.

    Attributes:
        unique: what finds rows that the table has already, once it is open; None: it may have
            duplicates.
    """

    unique: UniqueFilter | None = None

    def __init__(self, place: CatalogTable, declared: WriteSpec) -> None:
        self._place = place
        columns = [field.with_type(iceberg_types(field.type)) for field in declared.schema]
        self._declared = replace(declared, root=place.uri, schema=pa.schema(columns))
        self._declared_columns = _plain(declared_columns(self._declared))
        self._table: Table | None = None
        self._columns: IcebergSchema | None = None
        self._seen: Mark | None = None
        self._sent: set[str] = set()
        self._folder: TableFolder | None = None

    @property
    def log(self) -> PositionStore:
        """Returns what the table records of pipelines."""
        return IcebergPositions(self._place)

    def changes(self) -> list[str]:
        """Returns what :meth:`make` does to the table, as ends of sentences about it.

        Raises:
            TableMismatchError: if the rows do not fit the table.
        """
        table = self._place.load()
        return [_CREATED] if table is None else self._changes(table.metadata)

    def _changes(self, metadata: TableMetadata) -> list[str]:
        if (name := missing_values(metadata, self._declared)) is not None:
            reason = f"column {name!r} may not be null, and is not in the rows"
            raise TableMismatchError(self._place.uri, reason)
        added = added_columns(self._declared, PresentIceberg.of(metadata, self._declared))
        return [change.text for change in added]

    def make(self, record: Mapping[str, str]) -> tuple[Table, list[str]]:
        """Makes the table, or adds to it what it lacks; returns it, and what was changed.

        Args:
            record: properties that it gets, too.

        Raises:
            TableMismatchError: if the rows do not fit the table.
        """
        sent: list[str] = []
        return self._place.retrying(lambda: self._made(record, sent))

    def open(self) -> WriteSpec:
        """Makes the table, and records what the pipeline writes; returns what tasks write.

        Raises:
            TableMismatchError: if the rows do not fit the table.
        """
        table, _ = self.make(recorded_columns(self._declared))
        spec = written_spec(table, self._declared)
        self._table, self._seen = table, Mark.head(table.metadata)
        self._columns = table.schema()
        self._folder = TableFolder(spec.root, spec.storage_options)
        if (rule := KeyRule.of(spec)) is not None:
            if table.format_version == 1:
                reason = "a unique table needs version 2 of the format, and it has version 1"
                raise TableMismatchError(self._place.uri, reason)
            self.unique = UniqueFilter(spec, rule, IcebergKeys(self._place, spec, rule))
        return spec

    def _made(self, record: Mapping[str, str], sent: list[str]) -> tuple[Table, list[str]]:
        """Does what :meth:`make` does; ``sent`` is what an attempt changed, its answer was lost."""
        table = self._place.load()
        changes = [_CREATED] if table is None else self._changes(table.metadata)
        if table is not None and not changes and record.items() <= table.properties.items():
            return table, sent
        sent[:] = changes or sent
        try:
            made = self._created(record) if table is None else self._grown(table, record, changes)
        except LOST_RACES:
            sent.clear()
            raise
        return made, sent

    def _grown(self, table: Table, record: Mapping[str, str], changes: Sequence[str]) -> Table:
        transaction = table.transaction()
        if changes:
            with transaction.update_schema() as update:
                update.union_by_name(self._declared_columns)
        if record:
            transaction.set_properties(dict(record))
        return transaction.commit_transaction()

    def _created(self, record: Mapping[str, str]) -> Table:
        catalog = self._place.open_catalog()
        catalog.create_namespace_if_not_exists(self._place.identifier[:-1])
        transaction = catalog.create_table_transaction(
            self._place.identifier,
            self._declared_columns,
            properties=TABLE_PROPERTIES | dict(record),
        )
        with transaction.update_spec() as update:
            add_partitions(update, self._declared)
        transaction.commit_transaction()
        return self._place.existing()

    def commit(
        self, files: Sequence[WrittenFile], transaction: Transaction
    ) -> bool | CommitRejection:
        """Makes ``files`` visible in one snapshot, which records ``transaction``.

        Returns:
            False when the table records its versions already, where it was expected not to:
            nothing changed, discard the files. Rows that a table which is unique has already, and
            the files without them: nothing changed.

        Raises:
            SinkError: if the table records neither what is expected nor the versions, or another
                writer has taken rows from it meanwhile.
            TableMismatchError: if another engine has changed the partitioning meanwhile, or a
                column that the rows have.
            SinkUnavailableError: if the catalog does not answer; the batch may be in the table.
        """
        own: list[int] = []
        self._sent.clear()  # those of the batch before are not discarded any more
        return self._place.retrying(lambda: self._commit_once(files, transaction, own))

    def _commit_once(
        self, files: Sequence[WrittenFile], batch: Transaction, own: list[int]
    ) -> bool | CommitRejection:
        if self.unique is not None:
            self._table = None  # rows that others have deleted are no duplicates any more
        table = self._current()
        if not batch.follows(recorded(table.metadata, batch.app_ids), self._place.uri):
            # An earlier attempt of this call may have committed, and its answer was lost.
            last = Mark.last(table.metadata, self._declared.pipeline)
            return last is not None and last.snapshot_id in own
        self._check_unchanged(table.metadata)
        if self.unique is not None:
            rejection = self.unique.check(files, table.metadata.next_sequence_number() - 1)
            if rejection is not None:
                return rejection
        self._table = None  # after a failure it is read again
        self._attempt(table, files, batch, own)
        self._table, self._seen = table, Mark.head(table.metadata)
        return True

    def _current(self) -> Table:
        """Returns the table; read again after what may have changed it.

        Raises:
            SinkError: if rows were taken from it since it was read last.
        """
        if self._table is None:
            table = self._place.existing()
            if self._seen is not None and not self._seen.is_in(table.metadata):
                reason = "another writer has replaced rows of the table (a rollback)"
                raise SinkError(self._place.uri, reason)
            self._table, self._seen = table, Mark.head(table.metadata)
        return self._table

    def _check_unchanged(self, metadata: TableMetadata) -> None:
        """Raises TableMismatchError if files of this driver no longer fit the table."""
        check_partitioning(self._declared, partitions_of(metadata, self._declared))
        if self._columns is None or not self.has_other_columns(metadata):
            return
        names = table_schema(self._declared).names
        if (name := changed_column(self._columns, metadata.schema(), names)) is not None:
            reason = f"another engine has dropped or renamed column {name!r} since the start"
            raise TableMismatchError(self._place.uri, reason)
        self._changes(metadata)

    def has_other_columns(self, metadata: TableMetadata) -> bool:
        """Returns whether columns have changed since :meth:`open`, which gave tasks their ids."""
        return self._columns is not None and metadata.current_schema_id != self._columns.schema_id

    def _attempt(
        self, table: Table, files: Sequence[WrittenFile], batch: Transaction, own: list[int]
    ) -> None:
        def before(mark: Mark) -> Mapping[str, str]:
            own.append(mark.snapshot_id)
            self._sent.update(file.path for file in files)
            return properties_of(batch, self._declared.pipeline, mark)

        send(table, self._declared, FileSwap(files), summary_of(batch), before)

    def version(self) -> int:
        """The sequence number of the table's newest snapshot, as far as this driver knows."""
        return 0 if self._seen is None else self._seen.sequence_number

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """Deletes files of a batch that is abandoned; none of a commit that was sent."""
        if self._folder is not None:
            self._folder.delete(file.path for file in files if file.path not in self._sent)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Returns columns that may all be null: so the table can lack them later."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])
