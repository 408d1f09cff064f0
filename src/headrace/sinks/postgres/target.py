"""The table that rows are written to, and whether it takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.errors import TableMismatchError
from headrace.sinks.api import DELETED
from headrace.sinks.postgres.column_types import (
    ColumnKind,
    ColumnType,
    column_types,
    rounded_within,
)
from headrace.sinks.postgres.connection import find_table, quoted
from headrace.sinks.postgres.identifiers import listed_names, table_identifier

if TYPE_CHECKING:
    from headrace.model import EventField
    from headrace.sinks.postgres.connection import Connection

_NEEDED_COLUMNS = """
SELECT attname FROM pg_catalog.pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
  AND attnotnull AND NOT atthasdef AND attidentity = '' AND attgenerated = ''
"""
# ON CONFLICT takes no deferrable index (indimmediate), no partial one (indpred) and none on an
# expression, whose attribute number is 0 and therefore has no name.
_UNIQUE_INDEXES = """
SELECT i.indexrelid FROM pg_catalog.pg_index AS i
WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indimmediate
  AND i.indpred IS NULL
  AND (
      SELECT array_agg(coalesce(a.attname, '')::text ORDER BY a.attname)
      FROM generate_series(0, i.indnkeyatts - 1) AS place
      LEFT JOIN pg_catalog.pg_attribute AS a
          ON a.attrelid = i.indrelid AND a.attnum = i.indkey[place]
  ) = (SELECT array_agg(name ORDER BY name::name) FROM unnest(%s::text[]) AS name)
"""
# DISTINCT ON and GROUP BY compare by the column's collation and the default operators of its type,
# ON CONFLICT by those of the index: of any index on these columns. Deterministic collations
# distinguish the same texts, whatever their order.
_COMPARED_OTHERWISE = """
SELECT a.attname, pg_get_indexdef(i.indexrelid)
FROM pg_catalog.pg_index AS i
CROSS JOIN generate_series(0, i.indnkeyatts - 1) AS place
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[place]
JOIN pg_catalog.pg_opclass AS own ON own.oid = i.indclass[place]
CROSS JOIN LATERAL (
    WITH RECURSIVE base (type) AS (
        SELECT a.atttypid
        UNION ALL
        SELECT typbasetype FROM base JOIN pg_catalog.pg_type AS t
            ON t.oid = base.type AND t.typtype = 'd'
    )
    SELECT usual.opcfamily, usual.opcintype
    FROM pg_catalog.pg_opclass AS usual
    WHERE usual.opcmethod = own.opcmethod AND usual.opcdefault
      AND usual.opcintype IN (SELECT type FROM base UNION SELECT own.opcintype)
    ORDER BY usual.opcintype = own.opcintype
    LIMIT 1
) AS usual
LEFT JOIN pg_catalog.pg_collation AS of_index ON of_index.oid = i.indcollation[place]
LEFT JOIN pg_catalog.pg_collation AS of_column ON of_column.oid = a.attcollation
WHERE i.indexrelid = ANY(%s) AND (
    (
        of_index.oid <> of_column.oid
        AND NOT (of_index.collisdeterministic AND of_column.collisdeterministic)
    ) OR (
        SELECT count(DISTINCT amopopr) FROM pg_catalog.pg_amop
        WHERE amopstrategy = 3 AND amoplefttype = amoprighttype AND (amopfamily, amoplefttype)
            IN ((own.opcfamily, own.opcintype), (usual.opcfamily, usual.opcintype))
    ) > 1
)
"""


@dataclass(frozen=True)
class TargetSpec:
    """A table to write to; picklable.

    Attributes:
        table: its name.
        columns: of the rows.
        mode: of :class:`~headrace.sinks.write_mode.WriteMode`.
        key: for upsert and add, and for append where rows are unique.
        newest_by: for upsert.
        distinct: for add: names of distinct counts. Each is a column with the estimate, which the
            rows lack, beside one with the sketch, which the rows have.
        takes_null_keys: whether the unique index takes null for a value like others.
        kinds: what is in the columns that some types of PostgreSQL would round or cut.
        any_fields: by column, the fields with an ``Any`` within a list, struct or map.
        compared: where rows are unique or ties refused, the columns in which rows of a key differ.
        refuses_ties: for upsert by ``newest_by``: whether of two rows that are equally new, and
            differ, only the first is taken; or else the one that is written last.
        deletes: for upsert: whether rows with :data:`~headrace.sinks.api.DELETED` delete those of
            their key.
        compared_types: types of the columns of ``compared``, which the table has.
    """

    table: str
    columns: tuple[str, ...]
    mode: str
    key: tuple[str, ...]
    newest_by: str | None
    distinct: tuple[str, ...] = ()
    takes_null_keys: bool = False
    kinds: Mapping[str, ColumnKind] = field(default_factory=dict)
    any_fields: Mapping[str, EventField] = field(default_factory=dict)
    compared: tuple[str, ...] = ()
    refuses_ties: bool = False
    deletes: bool = False
    compared_types: tuple[ColumnType, ...] = ()

    @property
    def is_unique(self) -> bool:
        """Whether rows are added, and those whose key exists are left out."""
        return self.mode == "append" and bool(self.key)

    @property
    def staged(self) -> tuple[str, ...]:
        """Columns of the rows in staging tables, beside those of their order."""
        return (*self.columns, DELETED) if self.deletes else self.columns

    @property
    def written(self) -> tuple[str, ...]:
        """Columns that an insert fills: those of the rows, and the estimates."""
        return (*self.columns, *self.distinct)

    @property
    def sketches(self) -> tuple[str, ...]:
        """Columns of the sketches, in the order of ``distinct``."""
        return tuple(map(sketch_column, self.distinct))


def with_compared_types(connection: Connection, spec: TargetSpec) -> TargetSpec:
    """Returns the spec with the types of what is compared, as the table has them now."""
    columns = column_types(connection, spec.table) if spec.compared else ()
    types = tuple(column for column in columns if column.name in spec.compared)
    return replace(spec, compared_types=types)


def sketch_column(name: str) -> str:
    """Returns the column of the sketch of a distinct count."""
    return f"{name}_sketch"


def check_table(connection: Connection, spec: TargetSpec) -> None:
    """Looks at the table's columns and keys, and changes nothing.

    Raises:
        TableMismatchError: if there is no such table, it lacks a column or needs another one, one
            can't hold the values as they are, or there is no unique index that compares the key as
            its columns do.
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
    # Each insert would fail: better one sentence at the start than a dead letter for each row.
    name = quoted(connection, spec.table)
    needed = {column for (column,) in connection.execute(_NEEDED_COLUMNS, (name,))}
    if lacking := sorted(needed.difference(spec.written)):
        reason = f"its column {lacking[0]!r} is NOT NULL without a default, and the rows lack it"
        raise TableMismatchError(spec.table, reason)
    columns = column_types(connection, spec.table)
    _check_types(connection, spec, columns)
    if spec.key:
        _check_key(connection, spec, columns)


def _check_types(connection: Connection, spec: TargetSpec, columns: Sequence[ColumnType]) -> None:
    """Looks whether the columns hold the values of the rows as they are.

    Raises:
        TableMismatchError: if one would change most of them.
    """
    for column in columns:
        is_written = column.name in spec.columns
        if is_written and (fault := column.fault(spec.kinds.get(column.name))):
            raise TableMismatchError(spec.table, fault)
    for name in rounded_within(connection, spec.table, columns):
        if name in spec.columns:
            reason = (
                f"its column {name!r} has parts that would round values or read them in several"
                " ways: jsonb"
            )
            raise TableMismatchError(spec.table, reason)


def _check_key(connection: Connection, spec: TargetSpec, columns: Sequence[ColumnType]) -> None:
    """Looks whether the rows of a key are those that the table's unique indexes take for one.

    Raises:
        TableMismatchError: if there is no such index, or it compares otherwise than the columns;
            or if texts that differ are one key, whose last row is not known without ``newest_by``.
    """
    from psycopg import sql

    key = ", ".join(spec.key)
    name = quoted(connection, spec.table)
    rows = connection.execute(_UNIQUE_INDEXES, (name, list(spec.key))).fetchall()
    indexes = [index for (index,) in rows]
    if not indexes:
        statement = sql.SQL("CREATE UNIQUE INDEX ON {} ({})").format(
            table_identifier(spec.table), listed_names(spec.key)
        )
        reason = (
            f"it has no unique index on ({key}), or a DEFERRABLE one:"
            f" {statement.as_string(connection)}"
        )
        raise TableMismatchError(spec.table, reason)
    for column, definition in connection.execute(_COMPARED_OTHERWISE, (indexes,)).fetchall():
        reason = (
            f"its unique index compares column {column!r} otherwise than the column itself does:"
            f" {definition}. Give the column the collation of the index, or the index that of the"
            " column, and its type's own operators"
        )
        raise TableMismatchError(spec.table, reason)
    if spec.mode == "upsert" and spec.newest_by is None:
        for column in columns:
            is_key = column.name in spec.key
            if is_key and column.has_equal_texts(spec.kinds.get(column.name)):
                reason = (
                    f"its column {column.name!r} is {column.declared}, which takes texts that"
                    " differ for one key, and they are in several partitions: name `newest_by`, or"
                    " make it text with a deterministic collation"
                )
                raise TableMismatchError(spec.table, reason)
