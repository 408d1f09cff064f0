"""An open Iceberg table."""

from __future__ import annotations

from headrace.sinks.lake.driver import TableDriver
from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable
from headrace.sinks.lake.iceberg.table import IcebergTable
from headrace.sinks.lake.iceberg.upkeep import IcebergUpkeep


def open_table(place: CatalogTable, declared: WriteSpec) -> TableDriver:
    """Opens a table, which is made when there is none.

    Raises:
        TableMismatchError: if a column's type or the partitioning differs from the table's.
        SinkError: if the catalog or the storage of the table can't be used.
    """
    table = IcebergTable(place, declared)
    return TableDriver(table.open(), table, IcebergUpkeep(place, declared))
