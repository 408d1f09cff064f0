"""What tasks hand over of each row: hashes of key and values, its number in the task, its slice."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.errors import TableMismatchError
from headrace.model import EventField, Metadata

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events.event_hash import Hashes
    from headrace.sinks.lake.data_file import WriteSpec

RowKeys: TypeAlias = NDArray[np.void]
"""An element for each row, of type :data:`ROW_KEY`."""

ROW_KEY = np.dtype([("key", "<u8"), ("values", "<u8"), ("place", "<u4"), ("slice", "<i4")])
"""The hash of the key, 0 for a row without; that of the columns that are compared; where the row
stands among those of its task; the number of its slice."""

SLICES = 8
MIN_SLICE_US = 3_600_000_000
_COLUMN = "__headrace_{}"
_COLUMNS = [_COLUMN.format(name) for name in ROW_KEY.names or ()]
_LAST_SLICE = 2**31 - 1
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class KeyRule:
    """How rows are compared; picklable.

    Attributes:
        by: columns of the key.
        compared: the columns in which a duplicate equals the first row, but for those of the key.
        event_time: column of the event time.
        slice_us: length of a slice of event time.
        max_distance: rows are near whose slices are at most so far apart.
        any_fields: by column, the fields that are or hold an ``Any``, whose JSON is compared.
    """

    by: tuple[str, ...]
    compared: tuple[str, ...]
    event_time: str
    slice_us: int
    max_distance: int
    any_fields: Mapping[str, EventField] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: WriteSpec) -> KeyRule | None:
        """Returns the rule of a table; None: it may have duplicates.

        Raises:
            TableMismatchError: if the rows lack a column that they are compared by.
        """
        unique = spec.layout.unique
        if unique is None:
            return None
        missing = [name for name in unique.by if name not in spec.schema.names]
        if missing or spec.event_time is None:
            what = f"column {missing[0]!r}" if missing else "an event time"
            raise TableMismatchError(spec.root, f"its rows are to be unique and lack {what}")
        own = {*unique.by, *unique.ignore, *(each.value for each in Metadata)}
        # In whole milliseconds, as engines write the statistics of files.
        slice_us = max(MIN_SLICE_US, unique.within // _MILLISECOND // SLICES * 1_000)
        return cls(
            tuple(unique.by),
            tuple(name for name in spec.schema.names if name not in own),
            spec.event_time,
            slice_us,
            -(unique.within // -_MICROSECOND // slice_us),
            spec.any_fields,
        )

    def keys(self, rows: pa.Table, first_place: int = 0) -> RowKeys:
        """Returns what is compared of each of ``rows``, which may lack columns of the table."""
        from headrace.sinks.lake.unique.column_hash import hash_rows

        columns = {name: self._comparable(rows, name) for name in rows.column_names}
        compared = [(name, columns[name]) for name in self.compared if name in columns]
        keys = np.zeros(rows.num_rows, ROW_KEY)
        keys["key"] = self._key_hashes(columns, rows.num_rows)
        keys["values"] = hash_rows(compared, rows.num_rows)
        keys["place"] = np.arange(first_place, first_place + rows.num_rows)
        keys["slice"] = self._slices(columns, keys["key"])
        return keys

    def _comparable(self, rows: pa.Table, name: str) -> pa.Array:
        from headrace.sinks.lake.unique.any_texts import any_texts

        column = _array(rows, name)
        known = self.any_fields.get(name)
        return column if known is None else any_texts(column, known)

    def _key_hashes(self, columns: dict[str, pa.Array], rows: int) -> Hashes:
        from headrace.sinks.lake.unique.column_hash import hash_rows, hash_values

        key = [(name, columns[name]) for name in self.by if name in columns]
        hashes = hash_rows(key, rows)
        has_key = np.full(rows, len(key) == len(self.by) and self.event_time in columns)
        for _, column in key:
            has_key &= hash_values(column) != 0
        if self.event_time in columns:
            has_key &= columns[self.event_time].is_valid().to_numpy(zero_copy_only=False)
        return np.where(has_key, hashes, np.uint64(0))

    def _slices(self, columns: dict[str, pa.Array], keys: Hashes) -> NDArray[np.int64]:
        import pyarrow as pa

        if self.event_time not in columns:
            return np.zeros(len(keys), np.int64)
        times = columns[self.event_time].cast(pa.timestamp("us", "UTC"), safe=False)
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


def _array(rows: pa.Table, name: str) -> pa.Array:
    import pyarrow as pa

    column = rows[name].combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
