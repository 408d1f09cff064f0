"""Merging small data files of one partition into one file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import SinkError
from headrace.runtime.cleanup import cleaning_up_after_failure
from headrace.sinks.lake.files.data_file import DeltaFiles, EventTimeRange, FileForm, WrittenFile
from headrace.sinks.lake.files.encoding import ParquetEncoding
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.files.partitions import Partition

if TYPE_CHECKING:
    import pyarrow as pa

_Item = TypeVar("_Item")
# A merge holds one row group in memory, whatever the size of its files.
_ROW_GROUP_BYTES = 64 * 1024 * 1024
_DELTA_FILES = DeltaFiles()
_REMOTE_MERGES = 4  # at once: each holds a row group


class FileMerger:
    """Writes files that hold the rows of others, in constant memory.

    Args:
        folder: of the table.
        codec: Parquet's name of the compression.
        columns: of the table but its partition columns: what a file lacks is null.
        event_times: timestamp columns to keep statistics of.
        abandoned: looked at before each file is read; None: merges are never abandoned.
        files: what the data files hold.
    """

    def __init__(
        self,
        folder: TableFolder,
        codec: str,
        columns: pa.Schema,
        event_times: Sequence[str],
        abandoned: threading.Event | None = None,
        files: FileForm = _DELTA_FILES,
    ) -> None:
        self._folder = folder
        self._codec = codec
        self._columns = columns
        self._event_times = tuple(event_times)
        self._abandoned = abandoned
        self._files = files

    def merge(self, partition: Partition, paths: Sequence[str]) -> WrittenFile:
        """One new file with the rows of ``paths``, in their order; deletes nothing.

        Raises:
            SinkError: if the merge was abandoned.
        """
        return self.write(partition, self._read(paths), "merged")

    def write(self, partition: Partition, tables: Iterable[pa.Table], name: str) -> WrittenFile:
        """One new file with the rows of ``tables``, which have the table's columns; at least one.

        Args:
            partition: of the rows.
            tables: in the order of their rows.
            name: part of the file's name.
        """
        path = self._folder.new_path(partition, name, self._codec)
        summary = _Summary(self._event_times)
        groups = summary.of(_row_groups(tables))
        first = next(groups)
        event_time = self._event_times[0] if len(self._event_times) == 1 else None
        # Dense: what is merged is rewritten once, and read ever after.
        encoding = ParquetEncoding(first, self._codec, event_time, dense=True)
        size, footer = self._folder.write(path, chain([first], groups), encoding)
        return summary.file(path, size, partition, self._files.stats(footer, summary.times))

    def merge_all(self, groups: Iterable[tuple[Partition, Sequence[str]]]) -> list[WrittenFile]:
        """:meth:`merge` for each of ``groups``, in their order; a failure leaves no new files."""
        written: list[str] = []

        def merge(group: tuple[Partition, Sequence[str]]) -> WrittenFile:
            file = self.merge(*group)
            written.append(file.path)
            return file

        with cleaning_up_after_failure(lambda: self._folder.delete(written)):
            return self._folder.for_each(merge, groups, at_once=_REMOTE_MERGES)

    def _read(self, paths: Sequence[str]) -> Iterator[pa.Table]:
        for path in paths:
            if self._abandoned is not None and self._abandoned.is_set():
                raise SinkError(self._folder.root, "a merge of small files was abandoned")
            yield conformed(self._folder.read(path), self._columns)


class _Summary:
    """Counts what passes by: rows, and the range of each timestamp column."""

    def __init__(self, event_times: Sequence[str]) -> None:
        self._rows = 0
        self.times = dict.fromkeys(event_times, EventTimeRange())

    def of(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            self._rows += table.num_rows
            for name, times in self.times.items():
                self.times[name] = times | event_times_of(table[name])
            yield table

    def file(self, path: str, size: int, partition: Partition, stats: str) -> WrittenFile:
        ranges = list(self.times.values())
        only = ranges[0] if len(ranges) == 1 else EventTimeRange()
        return WrittenFile(
            path=path,
            size=size,
            rows=self._rows,
            partition_values=dict(partition.values),
            stats=stats,
            min_event_time_us=only.lowest_us,
            max_event_time_us=only.highest_us,
        )


def event_times_of(column: pa.ChunkedArray) -> EventTimeRange:
    """Returns the range of a timestamp column."""
    import pyarrow as pa
    from pyarrow import compute

    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    ends = compute.min_max(micros).as_py()
    return EventTimeRange(ends["min"], ends["max"], column.null_count)


def conformed(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Returns rows of a file with the columns of its table: what the file lacks is null."""
    import pyarrow as pa

    return pa.Table.from_arrays(
        [
            # Some engines write nanoseconds, which no column of Delta has.
            rows[field.name].cast(field.type, safe=not pa.types.is_timestamp(field.type))
            if field.name in rows.column_names
            else pa.nulls(rows.num_rows, field.type)
            for field in columns
        ],
        schema=columns,
    )


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    import pyarrow as pa

    for group in in_groups(tables, lambda table: table.nbytes, _ROW_GROUP_BYTES):
        yield pa.concat_tables(group)


def in_groups(
    items: Iterable[_Item], size_of: Callable[[_Item], int], target: int
) -> Iterator[list[_Item]]:
    """``items`` in their order, in lists that just reach the ``target`` size; the last may not."""
    group: list[_Item] = []
    size = 0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= target:
            yield group
            group, size = [], 0
    if group:
        yield group
