"""One version of a table: its rows, a part at a time, and what it records of pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.errors import SinkError
from headrace.model.partition_value import RESCUED_COLUMN
from headrace.sinks.lake.delta.log import DeltaLog
from headrace.sinks.lake.files.partitions import with_rescued_values
from headrace.storage.files import Options


class LakeSnapshot:
    """A version of a table; what is committed afterwards is not in it."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table

    @property
    def column_names(self) -> Sequence[str]:
        """Returns the names of the table's columns."""
        return [field.name for field in self._table.schema().fields]

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """Returns what the version records of applications."""
        recorded = {name: self._table.transaction_version(name) for name in app_ids}
        return {name: at for name, at in recorded.items() if at is not None}

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the rows as delta-rs reads them, on every storage that a lake can be on.

        Unsafe values are as they came, by which the ledger has counted events.
        """
        partitions = {*self._table.metadata().partition_columns} & {*columns}
        rescued = {RESCUED_COLUMN} & ({*self.column_names} - {*columns}) if partitions else ()
        try:
            for batch in self._table.scan(columns=[*columns, *rescued]):
                rows = with_rescued_values(pa.table(batch), partitions)
                yield from rows.select(list(columns)).to_batches()
        except (DeltaError, OSError) as error:
            raise SinkError(self._table.table_uri, f"its rows can't be read: {error}") from error

    def close(self) -> None:
        """Nothing is open: a version of the table stays."""


def lake_snapshot(uri: str, options: Options) -> LakeSnapshot | None:
    """Returns the newest version of a table; None when there is no table."""
    table = DeltaLog(uri, options).snapshot()
    return None if table is None else LakeSnapshot(table)
