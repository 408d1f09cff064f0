"""Commits of pyiceberg, as this sink needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.table import Transaction as IcebergTransaction
from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


class SentOnce(IcebergTransaction):
    """A transaction that pyiceberg neither sends again nor clears up after.

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
