"""What tasks hand over of each row: hashes of key and values, its number in the task, its slice."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TableMismatchError
from headrace.sinks.unique.compared_rows import ComparedRows, array_of, compared_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.sinks.lake.files.data_file import WriteSpec

RowKeys: TypeAlias = NDArray[np.void]
"""An element for each row, of type :data:`ROW_KEY`."""

ROW_KEY = np.dtype([("key", "<u8"), ("values", "<u8"), ("place", "<u4"), ("slice", "<i4")])
"""The hash of the key, 0 for a row without; that of the columns that are compared; where the row
stands among those of its task; the number of its slice."""

SLICES = 8
MIN_SLICE_US = 3_600_000_000
_COLUMN = "_headrace_{}"
_COLUMNS = [_COLUMN.format(name) for name in ROW_KEY.names or ()]
_LAST_SLICE = 2**31 - 1
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class KeyRule(ComparedRows):
    """How rows of a lake's table are compared; picklable.

    Attributes:
        slice_us: length of a slice of event time.
        max_distance: rows are near whose slices are at most so far apart.
    """

    slice_us: int
    max_distance: int

    @classmethod
    def of(cls, spec: WriteSpec) -> KeyRule | None:
        """Returns the rule of a table; None: it may have duplicates.

        Raises:
            TableMismatchError: if the rows lack a column that they are compared by.
        """
        unique = spec.layout.unique
        if unique is None or unique.within is None:
            return None
        missing = [name for name in unique.by if name not in spec.schema.names]
        if missing or spec.event_time is None:
            what = f"column {missing[0]!r}" if missing else "an event time"
            raise TableMismatchError(spec.root, f"its rows must be unique and lack {what}")
        # In whole milliseconds, as engines write the statistics of files.
        slice_us = max(MIN_SLICE_US, unique.within // _MILLISECOND // SLICES * 1_000)
        return cls(
            tuple(unique.by),
            compared_columns(spec.schema, (*unique.by, *unique.ignore)),
            spec.event_time,
            spec.any_fields,
            slice_us,
            -(unique.within // -_MICROSECOND // slice_us),
        )

    def keys(self, rows: pa.Table, first_place: int = 0) -> RowKeys:
        """Returns what is compared of each of ``rows``, which may lack columns of the table."""
        hashes = self.hashes(rows)
        keys = np.zeros(rows.num_rows, ROW_KEY)
        keys["key"], keys["values"] = hashes
        keys["place"] = np.arange(first_place, first_place + rows.num_rows)
        keys["slice"] = self._slices(rows)
        return keys

    def _slices(self, rows: pa.Table) -> NDArray[np.int64]:
        import pyarrow as pa

        if self.event_time not in rows.column_names:
            return np.zeros(rows.num_rows, np.int64)
        times = array_of(rows, self.event_time).cast(pa.timestamp("us", "UTC"), safe=False)
        micros: NDArray[np.int64] = times.cast(pa.int64()).fill_null(0).to_numpy()
        return np.clip(micros // self.slice_us, -_LAST_SLICE, _LAST_SLICE)


def with_keys(rows: pa.Table, keys: RowKeys) -> pa.Table:
    """Returns ``rows`` with their keys in columns, which go wherever the rows go."""
    import pyarrow as pa

    for name, column in zip(ROW_KEY.names or (), _COLUMNS, strict=True):
        rows = rows.append_column(column, pa.array(np.ascontiguousarray(keys[name])))
    return rows


def without_keys(rows: pa.Table) -> tuple[pa.Table, RowKeys]:
    """Returns what :func:`with_keys` was given; no keys if it was not."""
    if _COLUMNS[0] not in rows.column_names:
        return rows, np.empty(0, ROW_KEY)
    keys = np.empty(rows.num_rows, ROW_KEY)
    for name, column in zip(ROW_KEY.names or (), _COLUMNS, strict=True):
        keys[name] = rows[column].to_numpy()
    return rows.drop_columns(_COLUMNS), keys


def keys_text(keys: RowKeys) -> str:
    """Returns keys as a text, for a task's manifest."""
    return base64.b64encode(keys.tobytes()).decode()


def keys_of_text(text: str) -> RowKeys:
    """Returns the keys that :func:`keys_text` was given."""
    return np.frombuffer(base64.b64decode(text), ROW_KEY)
