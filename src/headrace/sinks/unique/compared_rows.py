"""What rows are compared by: a hash of the key of each, and one of its other values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace.model import EventField
from headrace.model.source import RECORD_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events.event_hash import Hashes


class RowHashes(NamedTuple):
    """Hashes of rows, each with an element for each of them.

    Attributes:
        keys: of their keys; 0 of a row that lacks a column of it, or the event time.
        values: of the columns that are compared.
    """

    keys: Hashes
    values: Hashes


@dataclass(frozen=True)
class ComparedRows:
    """How rows are compared; picklable.

    Attributes:
        by: columns of the key.
        compared: the columns in which a duplicate equals the first row, but for those of the key.
        event_time: column of the event time.
        any_fields: by column, the fields that are or hold an ``Any``, whose JSON is compared.
    """

    by: tuple[str, ...]
    compared: tuple[str, ...]
    event_time: str
    any_fields: Mapping[str, EventField]

    def hashes(self, rows: pa.Table) -> RowHashes:
        """Returns the hashes of ``rows``, which may lack columns of the table."""
        from headrace.sinks.unique.column_hash import hash_rows

        columns = {name: self._comparable(rows, name) for name in rows.column_names}
        compared = [(name, columns[name]) for name in self.compared if name in columns]
        keys = self._key_hashes(columns, rows.num_rows)
        return RowHashes(keys, hash_rows(compared, rows.num_rows))

    def shown_key(self, row: pa.Table) -> str:
        """Returns the key of a table with one row, for messages."""
        return ", ".join(f"{name} {row[name][0].as_py()!s:.100}" for name in self.by)

    def _comparable(self, rows: pa.Table, name: str) -> pa.Array:
        from headrace.sinks.unique.any_texts import any_texts

        column = array_of(rows, name)
        known = self.any_fields.get(name)
        return column if known is None else any_texts(column, known)

    def _key_hashes(self, columns: dict[str, pa.Array], rows: int) -> Hashes:
        from headrace.sinks.unique.column_hash import hash_rows, hash_values

        key = [(name, columns[name]) for name in self.by if name in columns]
        hashes = hash_rows(key, rows)
        has_key = np.full(rows, len(key) == len(self.by) and self.event_time in columns)
        for _, column in key:
            has_key &= hash_values(column) != 0
        if self.event_time in columns:
            has_key &= columns[self.event_time].is_valid().to_numpy(zero_copy_only=False)
        return np.where(has_key, hashes, np.uint64(0))


def compared_columns(schema: pa.Schema, others: Iterable[str]) -> tuple[str, ...]:
    """Returns the columns in which a duplicate equals the first row: those that are no others."""
    left_out = {*others, *RECORD_COLUMNS}
    return tuple(name for name in schema.names if name not in left_out)


def array_of(rows: pa.Table, name: str) -> pa.Array:
    """Returns a column as one array."""
    import pyarrow as pa

    column = rows[name].combine_chunks()
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
