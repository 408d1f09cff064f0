"""Types of a table's columns, and which of them would change a value without an error.

PostgreSQL rounds a number to the scale of ``numeric(p, s)``, a time to the precision of its column,
a double to a ``real``; it takes a day for a time, and cuts blanks off for ``varchar(n)``. Blanks at
the end of a ``char(n)`` are no part of the value. Where values of a kind never fit, the start is
refused. Elsewhere staging tables have a wider type, and a CHECK that the value is the same in the
table. Where the wider type is of another kind, such as a time for a date, a CHECK of the table
would mean something else: the table looks at it then, not the staging table.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.sinks.arrow_types import is_bytes, is_text
from headrace.sinks.postgres.connection import quoted
from headrace.sinks.postgres.identifiers import EXACT
from headrace.sinks.postgres.rows.text_forms import FORMS, text_form

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg.sql import Composable, Identifier

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
SELECT attnum, attname, declared, typname, modifier, nspname, collname, collisdeterministic,
    typtype, format_type(type, modifier)
FROM columns
JOIN pg_catalog.pg_type ON pg_type.oid = type AND typtype <> 'd'
LEFT JOIN pg_catalog.pg_collation AS c ON c.oid = attcollation
LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = collnamespace
ORDER BY attnum
"""
_CHECKS = """
SELECT conname FROM pg_catalog.pg_constraint
JOIN pg_catalog.pg_attribute ON attrelid = conrelid AND attnum = ANY(conkey)
WHERE conrelid = to_regclass(%s) AND contype = 'c' AND attname = %s
"""
_ROUNDED = frozenset({"numeric", "time", "timetz", "timestamp", "timestamptz", "interval"})
_PLAIN_TEXTS = frozenset({"text", "varchar"})
# Without a length; blanks at the end of a bpchar do not count, in keys either.
_LIMITED = {"varchar": "text", "bpchar": "bpchar"}
# Parts of composite types, at any depth, and what else is in domains, arrays and ranges.
_ROUNDED_PARTS = """
WITH RECURSIVE parts (name, type, modifier) AS (
    SELECT attname, atttypid, atttypmod FROM pg_catalog.pg_attribute
    WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
    UNION
    SELECT name, inner_type, inner_modifier
    FROM parts JOIN pg_catalog.pg_type AS t ON t.oid = type
    CROSS JOIN LATERAL (
        SELECT typelem, modifier WHERE typcategory = 'A'
        UNION ALL SELECT typbasetype, greatest(modifier, typtypmod) WHERE typtype = 'd'
        UNION ALL SELECT atttypid, atttypmod FROM pg_catalog.pg_attribute
            WHERE typtype = 'c' AND attrelid = typrelid AND attnum > 0 AND NOT attisdropped
        UNION ALL SELECT rngsubtype, -1 FROM pg_catalog.pg_range AS r
            -- PostgreSQL 12 and 13 have no multiranges.
            WHERE t.oid IN (rngtypid, (to_jsonb(r) ->> 'rngmultitypid')::oid)
    ) AS inner_types (inner_type, inner_modifier)
)
SELECT DISTINCT name FROM parts JOIN pg_catalog.pg_type ON oid = type
WHERE (modifier >= 0 AND typname = ANY(%s)) OR typname = ANY(%s)
"""
_FLOATS = frozenset({"float4", "float8"})


class ColumnKind(enum.Enum):
    """What a column of the rows holds, as far as PostgreSQL might change it."""

    INTEGER = "integers"
    DECIMAL = "decimals"
    DOUBLE = "doubles"
    FLOAT = "floats"
    SUM = "sums of doubles"
    BOOLEAN = "booleans"
    DATE = "dates"
    TIME = "times"
    TIME_OF_DAY = "times of day"
    TEXT = "texts"
    BYTES = "bytes"
    NESTED = "lists, structs and maps"
    VECTOR = "lists of floats"
    JSON = "values of JSON"


_NUMBERS_OF_THE_SERVER = ("oid", "xid", "xid8", "cid", "tid", "oidvector", "int2vector")
_NAMES_OF_THE_SERVER = (
    *("regclass", "regcollation", "regconfig", "regdictionary", "regnamespace", "regoper"),
    *("regoperator", "regproc", "regprocedure", "regrole", "regtype"),
)
# They round to cents, cut texts, take a negative number for another one, look names up, make words
# of a text, or keep three digits.
_UNCLEAR = {
    "money": "numeric",
    **dict.fromkeys(_NUMBERS_OF_THE_SERVER, "bigint"),
    **dict.fromkeys(("name", "char", *_NAMES_OF_THE_SERVER, "tsvector", "tsquery"), "text"),
    **dict.fromkeys(("halfvec", "sparsevec"), "jsonb"),
}
_RANGES_OF_TIMES = (
    *("daterange", "tsrange", "tstzrange"),
    *("datemultirange", "tsmultirange", "tstzmultirange"),
)
# They have a day or time that a text may be cut to, or round to a float.
_UNCLEAR_OF_TEXTS = dict.fromkeys(_RANGES_OF_TIMES, "text") | {"vector": "jsonb"}
# To them a number is a day, a time, seconds, a bit, an address, or a text.
_UNCLEAR_OF_NUMBERS = (*FORMS, "bool", "bit", "varbit", "macaddr", "macaddr8", "cidr")
_NUMBERS = (
    ColumnKind.INTEGER,
    ColumnKind.DECIMAL,
    ColumnKind.DOUBLE,
    ColumnKind.FLOAT,
    ColumnKind.SUM,
)
_LISTS = (ColumnKind.NESTED, ColumnKind.VECTOR)
# Some others take the text of a value for another value: bytea takes its characters, macaddr the
# digits of a date, jsonpath the difference of its numbers, an interval a time of day for hours.
_FITTING = {
    **dict.fromkeys(_NUMBERS, "numeric"),
    ColumnKind.BOOLEAN: "boolean",
    ColumnKind.DATE: "date",
    ColumnKind.TIME: "timestamptz",
    ColumnKind.TIME_OF_DAY: "time",
    ColumnKind.TEXT: "text",
    ColumnKind.BYTES: "bytea",
    **dict.fromkeys(_LISTS, "jsonb"),
}
_REFUSED = {
    ("float4", ColumnKind.DOUBLE): "double precision",
    ("float4", ColumnKind.DECIMAL): "numeric",
    ("float4", ColumnKind.SUM): "double precision",
    ("float8", ColumnKind.DECIMAL): "numeric",
    ("time", ColumnKind.TIME): "timestamptz",
    ("timetz", ColumnKind.TIME): "timestamptz",
    **{(name, ColumnKind.DATE): "date" for name in ("macaddr", "jsonpath")},
    ("interval", ColumnKind.TIME_OF_DAY): "time",
    **{
        ("bytea", kind): fitting
        for kind, fitting in _FITTING.items()
        if kind is not ColumnKind.BYTES
    },
    **{
        (name, kind): fitting
        for name, fitting in _UNCLEAR_OF_TEXTS.items()
        for kind in (ColumnKind.TEXT, ColumnKind.JSON)
    },
    **{(name, kind): "numeric" for name in _UNCLEAR_OF_NUMBERS for kind in _NUMBERS},
    **{(name, kind): "jsonb" for name in FORMS for kind in _LISTS},
    ("vector", ColumnKind.NESTED): "jsonb, or let a step make array<float> of the lists",
}


# Types without an equality, those whose equality compares areas or lengths, or takes a month for 30
# days, and texts, whose collation may take others for equal.
_AREAS = frozenset(("point", "line", "lseg", "box", "circle", "path", "polygon"))
_TEXTS = frozenset(("text", "varchar", "bpchar", "citext", "json", "jsonpath", "xml"))
_COMPARED_TEXTS = _AREAS | _TEXTS | {"interval"}
# Without an order of names; a value that jsonb does not hold, as it is written: a NUL, half of a
# character beyond the first plane, a number without bounds.
_COMPARED_JSON = r"""
CASE WHEN {0}::text ~ '\\u0000|\\u[dD][89a-fA-F]'
    OR regexp_replace({0}::text, '"([^"\\]|\\.)*"', '', 'g') ~ '[eE][-+]?[0-9]{{4}}|[0-9]{{250}}'
THEN to_jsonb({0}::text) ELSE {0}::text::jsonb END
"""


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
        tells_texts_apart: whether texts that differ are values that differ.
        is_composite: whether it has parts.
        is_range: whether it is a range, or several.
        plain: its type, as SQL has it; of a domain its base type.
    """

    number: int
    name: str
    declared: str
    base: str
    modifier: int
    collation: tuple[str, str] | None
    tells_texts_apart: bool
    is_composite: bool
    is_range: bool
    plain: str

    def fault(self, kind: ColumnKind | None) -> str | None:
        """Returns why values of a kind would be changed in the column; None: each may fit."""
        fitting = _UNCLEAR.get(self.element)
        if kind is not None:
            fitting = fitting or _REFUSED.get((self.element, kind))
        if (
            kind is ColumnKind.BYTES and self.base != "bytea"
        ):  # they are sent as hex, which is a text
            fitting = "bytea"
        if kind in _LISTS and (self.is_range or self.base.startswith("_")):
            fitting = fitting or "jsonb"
        if kind is ColumnKind.SUM and self.base == "numeric" and self.modifier >= 0:
            fitting = "double precision"
        if fitting is None:
            return None
        values = "values" if kind is None else kind.value
        return (
            f"its column {self.name!r} is {self.declared}, which would change {values} of the rows,"
            f" or read them in several ways: make it {fitting}"
        )

    def has_equal_texts(self, kind: ColumnKind | None) -> bool:
        """Whether the values are texts, and two that differ may be one value of the column."""
        return kind is ColumnKind.TEXT and not self.tells_texts_apart

    def exact_staging(self, kind: ColumnKind | None) -> tuple[str, str] | None:
        """Returns a wider type, and when its value is the same in the column; None: always.

        The condition has the column for ``{0}``, and its type for ``{1}``.
        """
        wider = self._wider_element(kind)
        if wider is None:
            return None
        array = "[]" if self.base.startswith("_") else ""
        # A double has 15 digits as a number, and all that it needs as a text.
        digits = f"text{array}::" if wider == "numeric" and self.element in _FLOATS else ""
        return f"{wider}{array}", f"{{0}} = {{0}}::{{1}}::{digits}{wider}{array}"

    def exact_json(self) -> tuple[str, str] | None:
        """Returns a type that keeps values of JSON, and when the column does; None: always.

        The condition has the column for ``{0}``, its type for ``{1}``, its form of texts for
        ``{2}``.
        """
        wider = self.exact_staging(ColumnKind.JSON)
        if self.text_form is None:
            return wider
        is_array = self.base.startswith("_")
        condition = "{0}::text ~ {2}"
        if wider is not None:
            type_, is_same = wider
            condition += " AND " + is_same.replace("{0}", f"{{0}}::{type_}")
        return "text[]" if is_array else "text", condition

    @property
    def text_form(self) -> str | None:
        """Regular expression of the texts that the column reads as they are; None: of any."""
        return text_form(self.base)

    @property
    def compared_as(self) -> str:
        """Expression of SQL by which values are compared: ``{0}`` is the column, ``{1}`` its type.

        The type has no equality, or one that takes others for equal; a staging table may have a
        wider type, whose value is the same in the column.
        """
        if self.base == "json":
            return _COMPARED_JSON
        if self.element in _COMPARED_TEXTS or self.is_composite:
            return '{0}::{1}::text COLLATE "C"'
        return "{0}::{1}" if self.base.startswith("_") else "{0}"

    def is_same(self, own: str, its: str) -> Composable:
        """Returns the condition that the column has one value in two rows, by their aliases."""
        from psycopg import sql

        form, declared = sql.SQL(" ".join(self.compared_as.split())), sql.SQL(self.declared)
        values = (form.format(sql.Identifier(row, self.name), declared) for row in (own, its))
        return sql.SQL("{} IS NOT DISTINCT FROM {}").format(*values)

    @property
    def element(self) -> str:
        """Name of the type, of an array that of its elements."""
        return self.base.removeprefix("_")

    def _wider_element(self, kind: ColumnKind | None) -> str | None:
        if self.modifier >= 0 and self.element in _LIMITED:
            return _LIMITED[self.element]
        if self.modifier >= 0 and self.element in _ROUNDED:
            return self.element
        if self.element in _FLOATS:
            wider = {
                ColumnKind.INTEGER: "bigint",
                ColumnKind.TEXT: "numeric",
                ColumnKind.JSON: "numeric",
            }
            return None if kind is None else wider.get(kind)
        if self.element == "date" and kind is ColumnKind.TIME:
            return "timestamp"
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
            type_ == "e" or (base in _PLAIN_TEXTS and is_deterministic is not False),
            type_ == "c",
            type_ in ("r", "m"),
            plain,
        )
        for (
            number,
            column,
            declared,
            base,
            modifier,
            schema,
            collation,
            is_deterministic,
            type_,
            plain,
        ) in rows
    ]


def rounded_within(connection: Connection, name: str, columns: Sequence[ColumnType]) -> list[str]:
    """Returns the columns whose types have parts that round, or read a text in several ways.

    No error would come of them.
    """
    unclear = {*_UNCLEAR, *_UNCLEAR_OF_TEXTS, *_FLOATS, *FORMS, "bytea"}
    parameters = quoted(connection, name), list(_ROUNDED), list(unclear)
    rounded = {column for (column,) in connection.execute(_ROUNDED_PARTS, parameters).fetchall()}
    return [
        column.name
        for column in columns
        if column.name in rounded and column.element not in unclear | _ROUNDED
    ]


def kinds_of(schema: pa.Schema) -> dict[str, ColumnKind]:
    """Returns the kind of each column of rows that has one."""
    from pyarrow import types

    def has_floats(kind: pa.DataType) -> bool:
        """Whether it is a list whose numbers are as exact as those of a vector."""
        return types.is_list(kind) and bool(types.is_float32(kind.value_type))

    checks = {
        ColumnKind.BOOLEAN: types.is_boolean,
        ColumnKind.INTEGER: types.is_integer,
        ColumnKind.DECIMAL: types.is_decimal,
        ColumnKind.DOUBLE: types.is_float64,
        ColumnKind.FLOAT: types.is_float32,
        ColumnKind.DATE: types.is_date,
        ColumnKind.TIME: types.is_timestamp,
        ColumnKind.TIME_OF_DAY: types.is_time,
        ColumnKind.TEXT: is_text,
        ColumnKind.BYTES: is_bytes,
        ColumnKind.NESTED: lambda kind: types.is_nested(kind) and not has_floats(kind),
        ColumnKind.VECTOR: has_floats,
    }
    return {
        column.name: kind
        for column in schema
        for kind, is_of_kind in checks.items()
        if is_of_kind(column.type)
    }


def make_exact(
    connection: Connection,
    staging: Identifier,
    columns: Sequence[ColumnType],
    kinds: Mapping[str, ColumnKind],
) -> None:
    """Widens columns of a staging table, with a CHECK that the table keeps each value as it is."""
    from psycopg import sql

    for column in columns:
        if (wider := column.exact_staging(kinds.get(column.name))) is None:
            continue
        type_, condition = wider
        name = sql.Identifier(column.name)
        changes: Composable = sql.SQL("")
        if type_.removesuffix("[]") not in {column.element, *_LIMITED.values()}:
            names = staging.as_string(connection), column.name
            for (check,) in connection.execute(_CHECKS, names).fetchall():
                changes += sql.SQL("DROP CONSTRAINT {}, ").format(sql.Identifier(check))
        changes += sql.SQL("ALTER COLUMN {} TYPE {}").format(name, sql.SQL(type_))
        if type_.removesuffix("[]") in _LIMITED.values() and column.collation is not None:
            changes += sql.SQL(" COLLATE {}").format(sql.Identifier(*column.collation))
        changes += sql.SQL(", ADD CONSTRAINT {} CHECK ({})").format(
            sql.Identifier(f"{EXACT}{column.number}_{column.name}"),
            sql.SQL(condition).format(name, sql.SQL(column.declared)),
        )
        connection.execute(sql.SQL("ALTER TABLE {} {}").format(staging, changes))
