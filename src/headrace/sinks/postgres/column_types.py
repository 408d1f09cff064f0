"""Types of a table's columns, and which of them would change a value without an error.

PostgreSQL rounds a number to the scale of ``numeric(p, s)``, a time to the precision of its column,
a double to a ``real``; it takes a day for a time, and cuts blanks off for ``varchar(n)``. Blanks at
the end of a ``char(n)`` are no part of the value. Where values of a kind never fit, the start is
refused. Elsewhere staging tables have a wider type, and a CHECK that the value is the same in the
table.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sinks.postgres.connection import quoted
from headrace.sinks.postgres.identifiers import EXACT

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg.sql import Composable, Composed

    from headrace.sinks.postgres.connection import Connection

# Of a domain, its base type, with the length or scale that it declares.
_COLUMN_TYPES = """
WITH RECURSIVE columns AS (
    SELECT attnum, attname, format_type(atttypid, atttypmod) AS declared, attcollation,
        atttypid AS type, atttypmod AS modifier
    FROM pg_catalog.pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT attnum, attname, declared, attcollation, typbasetype, greatest(modifier, typtypmod)
    FROM columns JOIN pg_catalog.pg_type ON pg_type.oid = type AND typtype = 'd'
)
SELECT attnum, attname, declared, typname, modifier, nspname, collname, collisdeterministic
FROM columns
JOIN pg_catalog.pg_type ON pg_type.oid = type AND typtype <> 'd'
LEFT JOIN pg_catalog.pg_collation AS c ON c.oid = attcollation
LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = collnamespace
ORDER BY attnum
"""
_ROUNDED = frozenset({"numeric", "time", "timetz", "timestamp", "timestamptz", "interval"})
# Without a length; blanks at the end of a bpchar do not count, in keys either.
_LIMITED = {"varchar": "text", "bpchar": "bpchar"}
# Of a length, PostgreSQL counts four bytes more.
_LENGTH_HEADER = 4
# Every integer of so many bits is a float, too.
_BITS_OF_FLOATS = 16


class Kind(enum.Enum):
    """What a column of the rows holds, as far as PostgreSQL might change it."""

    INTEGER = "integers"
    DECIMAL = "decimals"
    DOUBLE = "doubles"
    SUM = "sums of doubles"
    TIME = "times"


_REFUSED = {
    ("float4", Kind.DOUBLE): "double precision",
    ("float4", Kind.DECIMAL): "numeric",
    ("float4", Kind.SUM): "double precision",
    ("float8", Kind.DECIMAL): "numeric",
    ("time", Kind.TIME): "timestamptz",
    ("timetz", Kind.TIME): "timestamptz",
}


@dataclass(frozen=True)
class ColumnType:
    """The type of a column.

    Attributes:
        number: of the column, from 1.
        name: of the column.
        declared: its type, as SQL has it.
        base: name of the type, without length and scale; of a domain, that of its base type.
        modifier: PostgreSQL's number for length or scale; -1: there is none.
        collation: schema and name; None: the type has none.
        takes_texts_for_one: whether texts that differ may be equal.
    """

    number: int
    name: str
    declared: str
    base: str
    modifier: int
    collation: tuple[str, str] | None
    takes_texts_for_one: bool

    def fault(self, kind: Kind | None) -> str | None:
        """Returns why values of a kind would be changed in the column; None: each may fit."""
        fitting = None if kind is None else _REFUSED.get((self.base, kind))
        if kind is Kind.SUM and self.base == "numeric" and self.modifier >= 0:
            fitting = "double precision"
        if kind is None or fitting is None:
            return None
        return (
            f"its column {self.name!r} is {self.declared}, which would change the {kind.value} of"
            f" the rows: {fitting}"
        )

    def exact_staging(self, kind: Kind | None) -> tuple[str, str] | None:
        """Returns a wider type, and when its value is the same in the column; None: always.

        The condition has the column for ``{0}``, and its type for ``{1}``.
        """
        length = self.modifier - _LENGTH_HEADER
        if self.modifier >= 0 and self.base in _LIMITED:
            return _LIMITED[self.base], f"char_length({{0}}) <= {length}"
        if self.modifier >= 0 and self.base in _ROUNDED:
            return self.base, "{0} = {0}::{1}"
        if self.base in {"float4", "float8"} and kind is Kind.INTEGER:
            return "bigint", "{0} = {0}::{1}::bigint"
        if self.base == "date" and kind is Kind.TIME:
            return "timestamp", "{0} = {0}::{1}"
        return None


def column_types(connection: Connection, name: str) -> list[ColumnType]:
    """Returns the types of a table's columns, in their order."""
    rows = connection.execute(_COLUMN_TYPES, (quoted(connection, name),)).fetchall()
    return [
        ColumnType(
            number,
            column,
            declared,
            base,
            modifier,
            None if collation is None else (schema, collation),
            base == "citext" or is_deterministic is False,
        )
        for number, column, declared, base, modifier, schema, collation, is_deterministic in rows
    ]


def kinds_of(schema: pa.Schema) -> dict[str, Kind]:
    """Returns the kind of each column of rows that has one."""
    from pyarrow import types

    checks = {
        Kind.INTEGER: lambda kind: types.is_integer(kind) and kind.bit_width > _BITS_OF_FLOATS,
        Kind.DECIMAL: types.is_decimal,
        Kind.DOUBLE: types.is_float64,
        Kind.TIME: types.is_timestamp,
    }
    return {
        column.name: kind
        for column in schema
        for kind, is_of_kind in checks.items()
        if is_of_kind(column.type)
    }


def exact_columns(
    staging: Composable, columns: Sequence[ColumnType], kinds: Mapping[str, Kind]
) -> list[Composed]:
    """Returns statements that let the columns of a staging table take what the table keeps."""
    from psycopg import sql

    statements = []
    for column in columns:
        if (wider := column.exact_staging(kinds.get(column.name))) is None:
            continue
        type_, condition = wider
        name = sql.Identifier(column.name)
        collate: Composable = sql.SQL("")
        if type_ in _LIMITED.values() and column.collation is not None:
            collate = sql.SQL(" COLLATE {}").format(sql.Identifier(*column.collation))
        check = sql.SQL(condition).format(name, sql.SQL(column.declared))
        change = "ALTER TABLE {} ALTER COLUMN {} TYPE {}{}, ADD CONSTRAINT {} CHECK ({})"
        constraint = sql.Identifier(f"{EXACT}{column.number}_{column.name}")
        statements.append(
            sql.SQL(change).format(staging, name, sql.SQL(type_), collate, constraint, check)
        )
    return statements
