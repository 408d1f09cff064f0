"""Commits of pyiceberg, as this sink needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.table import Transaction as IcebergTransaction
from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId

from headrace.sinks.lake.files.data_file import FileSwap, WriteSpec
from headrace.sinks.lake.iceberg.data_files import data_file
from headrace.sinks.lake.iceberg.positions import Mark

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata


def send(
    table: Table,
    spec: WriteSpec,
    swap: FileSwap[DataFile],
    summary: Mapping[str, str],
    before: Callable[[Mark], Mapping[str, str]],
) -> None:
    """Commits files in one snapshot: an append, or an overwrite where some are removed.

    Args:
        table: that the snapshot follows; afterwards it has the snapshot.
        spec: what is written to it.
        swap: the files.
        summary: of the snapshot.
        before: called with the snapshot before it is sent, to note what must not be deleted any
            more, since its answer can be lost; returns the properties that the commit sets.
    """
    transaction = _SentOnce(table)
    update = transaction.update_snapshot(dict(summary))
    snapshot = update.overwrite() if swap.removed else update.merge_append()
    for removed in swap.removed:
        snapshot.delete_data_file(removed)
    for written in swap.added:
        snapshot.append_data_file(data_file(table, spec, written))
    snapshot.commit()
    mark = Mark(snapshot.snapshot_id, table.metadata.next_sequence_number())
    if properties := before(mark):
        transaction.set_properties(dict(properties))
    transaction.commit_transaction()


class _SentOnce(IcebergTransaction):
    """A transaction that pyiceberg neither sends again nor cleans up after.

    Sent again it would not look at positions. What it deletes after a conflict may be in the table:
    a proxy on the way can have sent the request twice, and passed on the second answer. It collides
    with a change of columns or partitions: files were written for those that the table had.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._known: tuple[object, TableMetadata] | None = None
        columns, partitions = table.metadata.current_schema_id, table.metadata.default_spec_id
        same_columns = AssertCurrentSchemaId.model_validate({"current-schema-id": columns})
        same_partitions = AssertDefaultSpecId.model_validate({"default-spec-id": partitions})
        self._stage((), (same_columns, same_partitions))

    @property
    def table_metadata(self) -> TableMetadata:
        # pyiceberg builds it at each look, and looks 15 times: a copy of all snapshots each.
        if self._known is None or self._known[0] is not self._updates:
            self._known = (self._updates, super().table_metadata)
        return self._known[1]

    def commit_transaction(self) -> Table:
        self._snapshot_producers.clear()
        return super().commit_transaction()
