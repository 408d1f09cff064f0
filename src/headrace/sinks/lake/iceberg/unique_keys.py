"""The keys of rows that an Iceberg table has already, read from its files."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.files.partitions import with_rescued_values
from headrace.sinks.lake.iceberg.catalog.catalogs import CatalogTable
from headrace.sinks.lake.iceberg.positions import MERGED
from headrace.sinks.lake.iceberg.scanned_files import FileReader
from headrace.sinks.lake.unique.row_keys import KeyRule, RowKeys
from headrace.sinks.lake.unique.table_keys import any_within
from headrace.sinks.lake.upkeep.merging import conformed

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


class IcebergKeys:
    """Reads keys: a :class:`~headrace.sinks.lake.unique.filter.TableKeys`.

    Versions are sequence numbers of the table.

    Args:
        place: of the table.
        spec: what is written to it.
        rule: how its rows are compared.
    """

    def __init__(self, place: CatalogTable, spec: WriteSpec, rule: KeyRule) -> None:
        self._place, self._spec, self._rule = place, spec, rule

    def added(self, after: int, version: int) -> Iterator[RowKeys] | None:
        """See :meth:`~headrace.sinks.lake.unique.filter.TableKeys.added`."""
        table, files = self._place.existing(), list[FileScanTask]()
        number = version + 1
        for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
            number = snapshot.sequence_number or 0
            if number <= after:
                break
            if number > version or _keeps_rows(snapshot):
                continue
            if snapshot.summary is None or snapshot.summary.operation is not Operation.APPEND:
                return None
            files += map(FileScanTask, _added_files(snapshot, table))
        # Where the snapshots from before have expired, others have that came since.
        is_whole = number <= after or (after <= 0 and number == 1)
        return self._read(table, files) if is_whole else None

    def in_slices(self, slices: Collection[int]) -> Iterator[RowKeys]:
        """See :meth:`~headrace.sinks.lake.unique.filter.TableKeys.in_slices`."""
        table = self._place.existing()
        event_time = table.schema().find_field(self._rule.event_time).field_id
        tasks = list(table.scan().plan_files())
        lowest = [self._slice(task.file.lower_bounds, event_time, -1) for task in tasks]
        highest = [self._slice(task.file.upper_bounds, event_time, 1) for task in tasks]
        ends = np.array(lowest, np.int64), np.array(highest, np.int64)
        chosen = np.flatnonzero(any_within(sorted(slices), *ends))
        return self._read(table, [tasks[number] for number in chosen])

    def _slice(self, bounds: Mapping[int, bytes] | None, column: int, direction: int) -> int:
        """Returns the slice of a bound; far off where a file has none: it may have any row."""
        if not bounds or column not in bounds:
            return direction * (2**63 - 2)
        return int(struct.unpack("<q", bounds[column])[0] // self._rule.slice_us)

    def _read(self, table: Table, tasks: Collection[FileScanTask]) -> Iterator[RowKeys]:
        reader = FileReader(table)
        for task in tasks:
            rows = reader.rows(task)
            if rows.num_rows:
                rows = with_rescued_values(rows, self._spec.layout.value_columns)
                # One form of a row: as tasks compare it before they write it.
                yield self._rule.keys(conformed(rows, self._spec.schema))


def _keeps_rows(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    if summary is None:
        return False
    return summary.operation is Operation.REPLACE or MERGED in summary.additional_properties


def _added_files(snapshot: Snapshot, table: Table) -> Iterator[DataFile]:
    for manifest in snapshot.manifests(table.io):
        is_own = manifest.added_snapshot_id == snapshot.snapshot_id
        if is_own and manifest.content is ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io):
                if entry.status is ManifestEntryStatus.ADDED:
                    yield entry.data_file
