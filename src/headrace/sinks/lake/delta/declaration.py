"""The format Delta."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sinks.api import CompactionResult, PositionStore, SinkDriver, Snapshot
from headrace.sinks.lake.format import DeclaredTable, TableFormat

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Delta(TableFormat):
    """A Delta table: its log is in the folder of the table, and it needs no catalog.

    Partitions by time are the columns ``day`` and ``hour``.
    """

    def position_store(self, table: DeclaredTable) -> PositionStore:
        """Returns what the table's log records."""
        from headrace.sinks.lake.delta.log import DeltaLog

        return DeltaLog(table.folder, table.context.storage)

    def open(self, table: DeclaredTable, schema: pa.Schema) -> SinkDriver:
        """Opens the table, which the first commit makes."""
        from headrace.sinks.lake.driver import LakeDriver

        return LakeDriver(table.write_spec(schema))

    def changes(self, table: DeclaredTable, schema: pa.Schema) -> Sequence[str]:
        """See :meth:`TableFormat.changes`."""
        from headrace.sinks.lake.delta.table import LakeTable

        return [change.text for change in LakeTable(table.write_spec(schema)).changes()]

    def merge_small_files(self, table: DeclaredTable) -> CompactionResult:
        """Merges the small files of every partition."""
        from headrace.sinks.lake.upkeep.compaction import Compaction

        codec = table.layout.compression
        return Compaction(table.folder, table.context.storage, codec).run()

    def remove_dead_files(self, table: DeclaredTable) -> CompactionResult:
        """Deletes files that no version of the last week holds."""
        from headrace.sinks.lake.upkeep.compaction import Compaction

        return Compaction(table.folder, table.context.storage).vacuum()

    def read(self, table: DeclaredTable, columns: Sequence[str] | None) -> pa.Table:
        """Returns the rows of the newest version."""
        from headrace.sinks.lake.delta.table import read_table

        return read_table(table.folder, columns, table.context.storage)

    def snapshot(self, table: DeclaredTable) -> Snapshot | None:
        """Returns the newest version; None: there is no table."""
        from headrace.sinks.lake.delta.snapshot import lake_snapshot

        return lake_snapshot(table.folder, table.context.storage)

    def open_to_reprocess(
        self, table: DeclaredTable, schema: pa.Schema, event_id: str | None
    ) -> SinkDriver:
        """Opens the table; a unique one finds the rows that it already has."""
        from headrace.sinks.lake.delta.replacing import LakeAddingDriver, LakeReplacingDriver
        from headrace.sinks.lake.row_comparison import RowIdentity

        spec, keys = table.write_spec(schema), RowIdentity.of_rows(schema, event_id)
        if table.layout.unique is not None:
            return LakeAddingDriver(spec, table.shown_columns(event_id))
        return LakeReplacingDriver(spec, keys, table.shown_columns(event_id))
