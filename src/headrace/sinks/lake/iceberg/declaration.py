"""The format Iceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.model.fault import Fault, is_a
from headrace.model.name import NAME, NAME_WORDS
from headrace.runtime.extras import require_extra
from headrace.sinks.api import CompactionResult, PositionStore, SinkDriver, Snapshot
from headrace.sinks.lake.format import DeclaredTable, TableFormat
from headrace.sinks.lake.iceberg.catalog.settings import settings_faults
from headrace.sinks.lake.layout import TimeUnit

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.settings import Secret
    from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable
    from headrace.sinks.lake.iceberg.table import IcebergTable
    from headrace.sinks.lake.iceberg.upkeep import IcebergUpkeep

_DEFAULT = "default"


@dataclass(frozen=True)
class Iceberg(TableFormat):
    """An Apache Iceberg table in a catalog; :mod:`headrace.sinks.lake.iceberg` has the contract.

    The catalog is that of ``[sinks.lake]`` in headrace.toml; without it, a file in a lake that is
    a folder of this machine.

    Attributes:
        namespace: of the table in the catalog; it is made when it is missing. Unless it is
            ``default``, it is part of the name by which headrace knows the table: ``ads.clicks``.
            A REST catalog takes several levels: ``ads.eu``.
    """

    namespace: str = _DEFAULT

    extra: ClassVar[str] = "iceberg"
    hides_times: ClassVar[bool] = True
    keeps_partitions_in_files: ClassVar[bool] = True
    is_provisioned: ClassVar[bool] = True

    def partitions(self, partition_by: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the partitions of a table: Iceberg's hour is one of a certain day.

        So an hour makes a day redundant, and takes its place.
        """
        if TimeUnit.HOUR not in partition_by:
            return partition_by
        named = (TimeUnit.HOUR.value if name in set(TimeUnit) else name for name in partition_by)
        return tuple(dict.fromkeys(named))

    def full_name(self, table: str) -> str:
        """Returns the table's name with its namespace."""
        return table if self.namespace == _DEFAULT else f"{self.namespace}.{table}"

    def faults(self) -> Iterator[Fault]:
        """Yields what is wrong with the namespace."""
        namespace = self.namespace
        if not is_a(namespace, str) or not all(map(NAME.fullmatch, namespace.split("."))):
            yield Fault(f"Iceberg.namespace is {namespace!r}", f"{NAME_WORDS}; '.' between levels")

    def settings_faults(self, label: str, settings: Mapping[str, Secret]) -> Iterator[Fault]:
        """Yields what is wrong with the catalog."""
        return settings_faults(label, str(self.namespace), settings)

    def position_store(self, table: DeclaredTable) -> PositionStore:
        """Returns what the table's properties record."""
        place = self._place(table)
        from headrace.sinks.lake.iceberg.positions import IcebergPositions

        return IcebergPositions(place)

    def open(self, table: DeclaredTable, schema: pa.Schema) -> SinkDriver:
        """Opens the table, which is made now if there is none."""
        place = self._place(table)
        from headrace.sinks.lake.iceberg.driver import open_table

        return open_table(place, table.write_spec(schema))

    def changes(self, table: DeclaredTable, schema: pa.Schema) -> Sequence[str]:
        """Returns what :meth:`apply` does to the table."""
        return self._table(table, schema).changes()

    def apply(self, table: DeclaredTable, schema: pa.Schema) -> Sequence[str]:
        """Makes the table, or adds the columns that it lacks."""
        _, changes = self._table(table, schema).make({})
        return changes

    def merge_small_files(self, table: DeclaredTable) -> CompactionResult:
        """Merges the small files of every partition."""
        return self._upkeep(table).run()

    def remove_dead_files(self, table: DeclaredTable) -> CompactionResult:
        """Deletes files that are older than a week and that no snapshot holds."""
        return self._upkeep(table).remove_orphans()

    def read(self, table: DeclaredTable, columns: Sequence[str] | None) -> pa.Table:
        """Returns the rows of the newest snapshot."""
        place = self._place(table)
        from headrace.sinks.lake.iceberg.reading import read_table

        return read_table(place, columns)

    def snapshot(self, table: DeclaredTable) -> Snapshot | None:
        """Returns the newest snapshot; None: there is no table."""
        place = self._place(table)
        from headrace.sinks.lake.iceberg.reading import IcebergSnapshot

        present = place.load()
        columns = table.layout.value_columns
        return None if present is None else IcebergSnapshot(place, present, columns)

    def open_to_reprocess(
        self, table: DeclaredTable, schema: pa.Schema, event_id: str | None
    ) -> SinkDriver:
        """Opens the table beside the pipeline that writes to it."""
        place = self._place(table)
        from headrace.sinks.lake.iceberg.replacing import (
            IcebergAddingDriver,
            IcebergReplacingDriver,
        )
        from headrace.sinks.lake.row_comparison import RowIdentity

        spec, shown = table.write_spec(schema), table.shown_columns(event_id)
        if table.layout.unique is not None:
            return IcebergAddingDriver(place, spec, shown)
        return IcebergReplacingDriver(place, spec, RowIdentity.of_rows(schema, event_id), shown)

    def _table(self, table: DeclaredTable, schema: pa.Schema) -> IcebergTable:
        place = self._place(table)
        from headrace.sinks.lake.iceberg.table import IcebergTable

        return IcebergTable(place, table.write_spec(schema))

    def _upkeep(self, table: DeclaredTable) -> IcebergUpkeep:
        place = self._place(table)
        from headrace.sinks.lake.iceberg.upkeep import upkeep_of

        return upkeep_of(place, table.layout, table.event_time)

    def _place(self, table: DeclaredTable) -> CatalogTable:
        """Returns the table by its name; first of all, as it looks for the extra."""
        require_extra("iceberg")
        from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable

        return CatalogTable.of(table.context, self.namespace, table.name)
