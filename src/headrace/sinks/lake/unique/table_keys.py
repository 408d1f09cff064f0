"""The keys of rows that a Delta table has already, read from its files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from numpy.typing import NDArray

from headrace.sinks.lake.delta.log import DeltaLog
from headrace.sinks.lake.delta.log_tail import added_files
from headrace.sinks.lake.files.data_file import WriteSpec
from headrace.sinks.lake.files.folder import TableFolder
from headrace.sinks.lake.files.partitions import partition_text, with_partition_values
from headrace.sinks.lake.unique.row_keys import KeyRule, RowKeys
from headrace.sinks.lake.upkeep.merging import conformed

_AT_ONCE = 4  # files in memory


@dataclass(frozen=True)
class _TableFile:
    """A data file of a table.

    Attributes:
        path: below the table's root.
        partition: Delta's text of each partition column; None: null.
        kept: which of its rows were not deleted by a deletion vector; None: all.
    """

    path: str
    partition: Mapping[str, str | None]
    kept: pa.BooleanArray | None = None


class DeltaKeys:
    """Reads the keys of rows from files of a table: a :class:`TableKeys`."""

    def __init__(self, spec: WriteSpec, rule: KeyRule) -> None:
        self._spec = spec
        self._rule = rule
        self._folder = TableFolder(spec.root, spec.storage_options)

    def added(self, after: int, version: int) -> Iterator[RowKeys] | None:
        """See :meth:`TableKeys.added`."""
        newer = range(after + 1, version + 1)
        files = added_files(self._spec.root, newer, self._spec.storage_options)
        if files is None:
            return None
        return self._read(
            _TableFile(unquote(file["path"]), file["partitionValues"]) for file in files
        )

    def in_slices(self, slices: Collection[int]) -> Iterator[RowKeys]:
        """See :meth:`TableKeys.in_slices`."""
        # A log of its own: the list of all files takes memory.
        table = DeltaLog(self._spec.root, self._spec.storage_options).snapshot()
        return iter(()) if table is None else self._read(self._files(table, slices))

    def _read(self, files: Iterable[_TableFile]) -> Iterator[RowKeys]:
        waiting = list(files)
        while waiting:
            batch, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
            yield from self._folder.for_each(self._keys, batch, at_once=_AT_ONCE)

    def _keys(self, file: _TableFile) -> RowKeys:
        rows = self._folder.read(file.path)
        if file.kept is not None:
            rows = rows.filter(file.kept)
        rows = with_partition_values(rows, file.partition)
        # One form of a row: as tasks compare it before they write it.
        return self._rule.keys(conformed(rows, self._spec.schema))

    def _files(self, table: DeltaTable, slices: Collection[int]) -> Iterator[_TableFile]:
        """Yields the files that may have rows of these slices, by their statistics."""
        actions = pa.table(table.get_add_actions(flatten=True))
        columns, kept = self._spec.partition_columns, _kept_rows(table)
        for row in actions.filter(self._overlaps(actions, sorted(slices))).to_pylist():
            partition = {name: partition_text(row.get(f"partition.{name}")) for name in columns}
            path = unquote(row["path"])
            yield _TableFile(path, partition, kept.get(path))

    def _overlaps(self, actions: pa.Table, slices: Sequence[int]) -> pa.Array:
        """Whether each file may have rows of one of ``slices``, which are in order."""
        lowest = self._slices(actions, f"min.{self._rule.event_time}", -1)
        highest = self._slices(actions, f"max.{self._rule.event_time}", 1)
        return pa.array(any_within(slices, lowest, highest))

    def _slices(self, actions: pa.Table, column: str, direction: int) -> NDArray[np.int64]:
        """The slices of times; far off where a file has no statistics: it may have any."""
        far = direction * (np.iinfo(np.int64).max - 1)
        if column not in actions.column_names:
            return np.full(actions.num_rows, far)
        times: Any = actions[column]
        micros = times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
        numbers: NDArray[np.int64] = micros.fill_null(0).to_numpy() // self._rule.slice_us
        return np.where(micros.is_null().to_numpy(), far, numbers)


def any_within(
    slices: Sequence[int], lowest: NDArray[np.int64], highest: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns whether one of ``slices``, which are in order, is from each lowest to its highest.

    Not from the first slice to the last: a single late row would have all in between read.
    """
    from_lowest = np.append(slices, np.iinfo(np.int64).max)[np.searchsorted(slices, lowest)]
    within: NDArray[np.bool_] = from_lowest <= highest
    return within


def _kept_rows(table: DeltaTable) -> dict[str, pa.BooleanArray]:
    """Returns which rows are left of each file with a deletion vector, by its path."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    vectors = pa.table(table.deletion_vectors())
    paths = (unquote(uri.removeprefix(table.table_uri)) for uri in vectors["filepath"].to_pylist())
    return {path: row.values for path, row in zip(paths, vectors["selection_vector"], strict=True)}
