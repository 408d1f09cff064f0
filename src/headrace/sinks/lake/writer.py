"""The task's half of a lake: rows in, one Parquet file per partition out, and their manifest.

Runs in Spark's Python workers, which are forked: pyarrow and polars are imported inside. Nothing
here touches the Delta log, so files are invisible until the driver commits their manifest
(:mod:`headrace.sinks.lake.delta.table`); a task that dies leaves orphans, which vacuum removes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import SinkError
from headrace.model.partition_value import RESCUED_COLUMN
from headrace.sinks.api import RejectedRow
from headrace.sinks.lake.files.data_file import EventTimeRange, WriteSpec, WrittenFile
from headrace.sinks.lake.files.encoding import ParquetEncoding
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.files.grouping import Grouping, PartitionRows
from headrace.sinks.lake.files.partitions import (
    Partition,
    partition_text,
    rescue,
    unsafe_values,
)
from headrace.sinks.lake.unique.row_keys import KeyRule, keys_text, with_keys, without_keys

if TYPE_CHECKING:
    import pyarrow as pa


UNSAFE = "unsafe-partition-value"
# Of a task: above it, files are written before the batch ends, and there are more of them.
MAX_BUFFERED_BYTES = 128 * 1024 * 1024
_REMOTE_WRITES = 16  # at once


@dataclass
class _Buffer:
    """Rows of one partition that are not written yet."""

    pieces: list[pa.Table] = field(default_factory=list)
    times: EventTimeRange = field(default_factory=EventTimeRange)
    size: int = 0

    def rows(self) -> pa.Table:
        import pyarrow as pa

        return pa.concat_tables(self.pieces)


class PartitionedWriter:
    """Writes the rows of one task and batch, a file per partition.

    Rows are buffered until :meth:`close`, or until more than ``MAX_BUFFERED_BYTES`` are held:
    then every partition is written out, and what follows goes to further files. Not thread-safe.
    End with :meth:`close` or :meth:`abort`.

    Args:
        spec: the table.
        task_id: part of the file names, so that an orphan shows where it came from.
    """

    def __init__(self, spec: WriteSpec, task_id: str) -> None:
        self._spec = spec
        self._task_id = task_id
        self._folder = TableFolder(spec.root, spec.storage_options)
        self._grouping = Grouping(spec.event_time, spec.time_key, spec.layout.value_columns)
        self._buffers: dict[Partition, _Buffer] = {}
        self._buffered_bytes = 0
        self._encoding: ParquetEncoding | None = None
        self._rule = KeyRule.of(spec)
        self._rows = 0
        self._written: list[WrittenFile] = []

    def write(self, rows: pa.RecordBatch | pa.Table) -> list[RejectedRow]:
        """Takes rows with the columns of ``spec.schema``; text is cheapest as string_view.

        Returns:
            rows whose partition value has no home: always empty under ``UnsafeValues.RESCUE``.

        Raises:
            SinkError: if a column is missing.
        """
        table = self._table(rows)
        refused: dict[tuple[object, ...], str] = {}
        for group in self._grouping.split(self._keyed(table)):
            unsafe = unsafe_values(self._named(group.values))
            if unsafe and not self._spec.rescues:
                reasons = (f"{column} {reason}" for column, reason in unsafe.items())
                refused[group.values] = "; ".join(reasons)
            else:
                self._buffer(group, list(unsafe))
        if self._buffered_bytes > MAX_BUFFERED_BYTES:
            self._flush()
        return self._unsafe_rows(table, refused) if refused else []

    def close(self) -> list[str]:
        """Writes what is buffered; returns the files of this task as JSON."""
        return [file.to_json() for file in self.finish()]

    def finish(self) -> list[WrittenFile]:
        """Writes what is buffered; returns the files of this task, to be committed."""
        self._flush()
        return list(self._written)

    def abort(self) -> None:
        """Forgets what is buffered, and deletes what was written."""
        self._buffers.clear()
        self._folder.delete([written.path for written in self._written])
        self._written.clear()

    def _table(self, rows: pa.RecordBatch | pa.Table) -> pa.Table:
        import pyarrow as pa

        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        columns = self._spec.schema.names
        missing = [name for name in columns if name not in table.column_names]
        if missing:
            raise SinkError(self._spec.root, f"the rows lack column(s) {', '.join(missing)}")
        return table if table.column_names == columns else table.select(columns)

    def _keyed(self, rows: pa.Table) -> pa.Table:
        """The rows with what they are compared by, where the table is unique."""
        if self._rule is None:
            return rows
        keys = self._rule.keys(rows, self._rows)
        self._rows += rows.num_rows
        return with_keys(rows, keys)

    def _named(self, values: Sequence[object]) -> dict[str, object]:
        return dict(zip(self._spec.layout.value_columns, values, strict=True))

    def _buffer(self, group: PartitionRows, unsafe: list[str]) -> None:
        import pyarrow as pa

        values, rows = self._named(group.values), group.rows
        if unsafe:
            values, rescued = rescue(values, unsafe)
            rows = rows.append_column(RESCUED_COLUMN, pa.repeat(pa.scalar(rescued), len(rows)))
        texts = self._spec.time_key.texts(group.time_key)
        texts |= {column: partition_text(value) for column, value in values.items()}
        partition = Partition(tuple((name, texts[name]) for name in self._spec.partition_columns))
        buffer = self._buffers.setdefault(partition, _Buffer())
        buffer.pieces.append(rows)
        buffer.times |= group.times
        buffer.size += group.size
        self._buffered_bytes += group.size

    def _unsafe_rows(
        self, rows: pa.Table, refused: Mapping[tuple[object, ...], str]
    ) -> list[RejectedRow]:
        columns = [rows[name].to_pylist() for name in self._spec.layout.value_columns]
        return [
            RejectedRow(index, UNSAFE, refused[values])
            for index, values in enumerate(zip(*columns, strict=True))
            if values in refused
        ]

    def _flush(self) -> None:
        # Emptied first: what fails must not be rewritten by a later flush of the same attempt.
        buffers, self._buffers, self._buffered_bytes = self._buffers, {}, 0
        if not buffers:
            return
        encoding = self._encoding or self._chosen_encoding(buffers)
        self._folder.for_each(
            lambda item: self._write_file(*item, encoding), buffers.items(), at_once=_REMOTE_WRITES
        )

    def _chosen_encoding(self, buffers: Mapping[Partition, _Buffer]) -> ParquetEncoding:
        # Of one partition: which columns repeat is much the same in all.
        partition, largest = max(buffers.items(), key=lambda item: item[1].size)
        sample, _ = without_keys(largest.rows())
        self._encoding = ParquetEncoding(
            self._spec.files.rows(sample, partition),
            self._spec.layout.compression,
            self._spec.event_time,
        )
        return self._encoding

    def _write_file(self, partition: Partition, buffer: _Buffer, encoding: ParquetEncoding) -> None:
        rows, keys = without_keys(buffer.rows())
        rows = self._spec.files.rows(rows, partition)
        times, event_time = buffer.times, self._spec.event_time
        known = {event_time: times} if event_time else {}
        path = self._folder.new_path(partition, self._task_id, self._spec.layout.compression)
        size, footer = self._folder.write(path, [rows], encoding)
        # After the file is closed: an unfinished one is in no piece, and `write` has removed it.
        self._written.append(
            WrittenFile(
                path=path,
                size=size,
                rows=rows.num_rows,
                partition_values=dict(partition.values),
                stats=self._spec.files.stats(footer, known, rows),
                min_event_time_us=times.lowest_us,
                max_event_time_us=times.highest_us,
                keys=keys_text(keys),
            )
        )
