"""Rows of an Iceberg table, as of one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.model.partition_value import RESCUED_COLUMN
from headrace.sinks.lake.files.partitions import with_rescued_values
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable
from headrace.sinks.lake.iceberg.positions import recorded

if TYPE_CHECKING:
    from pyiceberg.table import Table


class IcebergSnapshot:
    """The newest snapshot of a table; what is committed afterwards is not in it.

    Args:
        place: of the table.
        table: as it was read.
        partitions: columns that are partitions.
    """

    def __init__(self, place: CatalogTable, table: Table, partitions: Sequence[str]) -> None:
        self._place = place
        self._table = table
        self._partitions = partitions

    @property
    def column_names(self) -> Sequence[str]:
        """Returns the names of the table's columns."""
        return [field.name for field in self._table.schema().fields]

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """Returns what the table recorded of applications then."""
        return recorded(self._table.metadata, app_ids)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the rows; unsafe values are as they came, by which the ledger has counted events.

        Raises:
            SinkError: if they can't be read.
        """
        partitions = {*self._partitions} & {*columns}
        rescued = {RESCUED_COLUMN} & ({*self.column_names} - {*columns}) if partitions else ()
        with self._place.errors_named():
            for batch in self._table.scan(
                selected_fields=(*columns, *rescued)
            ).to_arrow_batch_reader():
                rows = with_rescued_values(pa.Table.from_batches([batch]), partitions)
                yield from rows.select(list(columns)).to_batches()

    def close(self) -> None:
        """Nothing is open: a snapshot of the table stays until it expires."""


def read_table(place: CatalogTable, columns: Sequence[str] | None) -> pa.Table:
    """Returns the rows of a table, in no order; SinkError when there is none."""
    table = place.existing()
    with place.errors_named():
        return table.scan(selected_fields=tuple(columns or "*")).to_arrow()
