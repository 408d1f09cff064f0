"""The table that rows are written to, and whether it takes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import TableMismatchError
from headrace.sinks.postgres.connection import find_table, quoted

if TYPE_CHECKING:
    from headrace.sinks.postgres.connection import Connection

_NEEDED_COLUMNS = """
SELECT attname FROM pg_catalog.pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
  AND attnotnull AND NOT atthasdef AND attidentity = '' AND attgenerated = ''
"""
# ON CONFLICT takes no deferrable index (indimmediate), no partial one (indpred) and none on an
# expression, whose attribute number is 0 and therefore has no name.
_UNIQUE_KEY = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_index AS i
    WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indimmediate
      AND i.indpred IS NULL
      AND (
          SELECT array_agg(coalesce(a.attname, '')::text ORDER BY a.attname)
          FROM generate_series(0, i.indnkeyatts - 1) AS place
          LEFT JOIN pg_catalog.pg_attribute AS a
              ON a.attrelid = i.indrelid AND a.attnum = i.indkey[place]
      ) = (SELECT array_agg(name ORDER BY name::name) FROM unnest(%s::text[]) AS name)
)
"""


@dataclass(frozen=True)
class TargetSpec:
    """A table to write to; picklable.

    Attributes:
        table: its name.
        columns: of the rows.
        mode: of :class:`~headrace.sinks.postgres.declaration.WriteMode`.
        key: for upsert and add.
        newest_by: for upsert.
        distinct: for add: names of distinct counts. Each is a column with the estimate, which the
            rows lack, beside one with the sketch, which the rows have.
        takes_null_keys: whether the unique index takes null for a value like others.
    """

    table: str
    columns: tuple[str, ...]
    mode: str
    key: tuple[str, ...]
    newest_by: str | None
    distinct: tuple[str, ...] = ()
    takes_null_keys: bool = False

    @property
    def written(self) -> tuple[str, ...]:
        """Columns that an insert fills: those of the rows, and the estimates."""
        return (*self.columns, *self.distinct)

    @property
    def sketches(self) -> tuple[str, ...]:
        """Columns of the sketches, in the order of ``distinct``."""
        return tuple(map(sketch_column, self.distinct))


def sketch_column(name: str) -> str:
    """Returns the column of the sketch of a distinct count."""
    return f"{name}_sketch"


def check_table(connection: Connection, spec: TargetSpec) -> None:
    """Looks at the table's columns and keys, and changes nothing.

    Raises:
        TableMismatchError: if there is no such table, it lacks a column or needs another one, or it
            has no unique index on the key.
    """
    table = find_table(connection, spec.table)
    if table is None:
        reason = "there is no such table: create it, with a column for each of the rows'"
        raise TableMismatchError(spec.table, f"{reason}: {', '.join(spec.columns)}")
    missing = [name for name in spec.written if name not in table.columns]
    if missing:
        reason = f"it has no column {missing[0]!r} that can be written"
        raise TableMismatchError(spec.table, reason)
    for column in spec.sketches:
        if table.columns[column] != "bytea":
            reason = f"its column {column!r} is {table.columns[column]}, and takes no sketch: bytea"
            raise TableMismatchError(spec.table, reason)
    name = quoted(connection, spec.table)
    needed = {column for (column,) in connection.execute(_NEEDED_COLUMNS, (name,))}
    if lacking := sorted(needed.difference(spec.written)):
        reason = f"its column {lacking[0]!r} is NOT NULL without a default, and the rows lack it"
        raise TableMismatchError(spec.table, reason)
    if spec.key:
        [(has_key,)] = connection.execute(_UNIQUE_KEY, (name, list(spec.key))).fetchall()
        if not has_key:
            key = ", ".join(spec.key)
            raise TableMismatchError(
                spec.table, f"it has no unique index on ({key}), or a DEFERRABLE one"
            )
