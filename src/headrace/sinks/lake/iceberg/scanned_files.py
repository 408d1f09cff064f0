"""Data files that a snapshot holds, as pyiceberg plans to read them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan

from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.files.partitions import Partition, partition_text

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table


class FileReader:
    """Reads files by pyiceberg, which knows renamed and widened columns and deleted rows.

    Args:
        table: that has the files.
        names: columns to read; None: all.
    """

    def __init__(self, table: Table, names: Collection[str] | None = None) -> None:
        columns = table.schema()
        chosen = columns if names is None else columns.select(*names)
        self._scan = ArrowScan(table.metadata, table.io, chosen, AlwaysTrue())

    def rows(self, task: FileScanTask) -> pa.Table:
        """Returns the rows of a file, in their order; no columns if all of them are deleted."""
        batches = list(self._scan.to_record_batches([task]))
        return pa.Table.from_batches(batches) if batches else pa.table({})


def partition_of(task: FileScanTask, spec: WriteSpec) -> Partition:
    """Returns the partition of a file, as writers name it; the file's partitioning is that of spec.

    Args:
        task: of the file.
        spec: what is written to the table.
    """
    texts: dict[str, str | None] = {}
    for number, name in enumerate(spec.partition_columns):
        value = task.file.partition[number]
        if name in spec.layout.value_columns:
            texts[name] = partition_text(value)
        else:
            texts |= spec.time_key.texts(value)
    return Partition(tuple((name, texts[name]) for name in spec.partition_columns))
