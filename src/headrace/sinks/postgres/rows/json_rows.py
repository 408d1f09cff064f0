"""PostgreSQL: rows in JSON into a table, inside the caller's transaction.

PostgreSQL converts the values itself (``json_populate_recordset``), so what a column takes is what
its type takes: numbers keep their digits, a ``json`` or ``text`` column gets an object's own text.
Columns that a row does not name get their default. A row that can't go in is left out with its
reason, and the others go in.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.sinks.postgres.column_types import (
    ColumnKind,
    ColumnType,
    column_types,
    rounded_within,
)
from headrace.sinks.postgres.connection import PostgresTable, execute_numbered
from headrace.sinks.postgres.identifiers import listed, listed_names, table_identifier
from headrace.sinks.postgres.sqlstates import ServerError, is_of_row, may_be_of_row

if TYPE_CHECKING:
    from psycopg.sql import Composed

    from headrace.sinks.postgres.connection import Connection

Row: TypeAlias = Mapping[str, bytes]
"""JSON text of each column."""


@dataclass(frozen=True, slots=True)
class RowFault:
    """A row that was left out.

    ===================== ==================================================================
    unknown-column        the table has no such column, or makes it itself
    nul-character         a NUL character in a text
    unsupported-character a character that the encoding of the database lacks, such as € in LATIN1
    wrong-value           a value that the column's type does not take, or would round or cut
    missing-value         null, or nothing, for a column that is NOT NULL
    not-unique            another row has the key
    foreign-key           the row that it refers to is not there
    check-violated        a CHECK
    constraint            another constraint
    row-too-large         beyond a limit of PostgreSQL, such as that of an index
    not-permitted         row-level security, or a right that a trigger lacks
    rejected-by-trigger   a trigger raised an error
    ===================== ==================================================================

    Attributes:
        index: which row, from 0.
        reason: a stable code.
        detail: PostgreSQL's message.
    """

    index: int
    reason: str
    detail: str


def insert_rows(
    connection: Connection, table: PostgresTable, rows: Sequence[Row]
) -> list[RowFault]:
    """Inserts the rows in their order, and returns those that were left out.

    One statement for all rows in a row that have the same columns; where it fails for a row's
    sake, it is halved until the rows at fault stand alone.

    Raises:
        psycopg.Error: it failed for another reason; the transaction must be rolled back.
    """
    faults = []
    types = column_types(connection, table.name)
    faults_of_types = {column.name: column.fault(ColumnKind.JSON) for column in types}
    for name in rounded_within(connection, table.name, types):
        faults_of_types[name] = (
            f"column {name!r} has parts that would round values or read them in several ways"
        )
    numbered = enumerate(rows)
    # A statement for each run of rows with the same columns: the others keep the table's defaults.
    for columns, run in itertools.groupby(numbered, key=lambda row: tuple(sorted(row[1]))):
        unknown = [name for name in columns if name not in table.columns]
        if unknown:
            detail = f"table {table.name!r} has no column {unknown[0]!r} that can be written"
            faults += [RowFault(index, "unknown-column", detail) for index, _ in run]
        elif details := [fault for name in columns if (fault := faults_of_types[name])]:
            faults += [RowFault(index, "wrong-value", details[0]) for index, _ in run]
        else:
            used = [column for column in types if column.name in columns]
            faults += _Insertion(connection, table, columns, used).take(list(run))
    return faults


class _Insertion:
    def __init__(
        self,
        connection: Connection,
        table: PostgresTable,
        columns: Sequence[str],
        types: Sequence[ColumnType],
    ) -> None:
        from psycopg import sql

        self._connection = connection
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        template = (
            "INSERT INTO {table} ({names}) "
            "SELECT {names} FROM json_populate_recordset(NULL::{table}, $1::json)"
            if columns
            else "INSERT INTO {table} SELECT FROM json_array_elements($1::json)"
        )
        self._statement = sql.SQL(template).format(table=table_identifier(table.name), names=names)
        self._changed = _select_changed(types)

    def take(self, rows: list[tuple[int, Row]]) -> Iterator[RowFault]:
        import psycopg

        try:
            with self._connection.transaction():
                # By place: columns that the table would take, and round or cut.
                changed: dict[int, str] = {}
                if self._changed is not None:
                    taken = execute_numbered(self._connection, self._changed, (_array(rows),))
                    changed = dict(taken.fetchall())
                kept = [row for place, row in enumerate(rows) if place not in changed]
                execute_numbered(self._connection, self._statement, (_array(kept),))
        except psycopg.Error as error:
            if not may_be_of_row(error):
                raise
            if len(rows) == 1:
                if not is_of_row(error, self._fails_without_rows):
                    raise
                server_error = ServerError.of(error)
                yield RowFault(rows[0][0], server_error.reason, server_error.message)
                return
            # By halves: a bad row among n costs about log n statements, not n.
            half = len(rows) // 2
            yield from self.take(rows[:half])
            yield from self.take(rows[half:])
        else:
            for place, column in changed.items():
                reason = "its type would round or cut the value, or read it in several ways"
                detail = f"column {column!r}: {reason}"
                yield RowFault(rows[place][0], "wrong-value", detail)

    def _fails_without_rows(self) -> bool:
        """Whether it is the table's fault: rights and the like are checked before any row."""
        import psycopg

        try:
            with self._connection.transaction(force_rollback=True):
                execute_numbered(self._connection, self._statement, ("[]",))
        except psycopg.Error:
            return True
        return False


def _select_changed(columns: Sequence[ColumnType]) -> Composed | None:
    """Selects place and column of each row with a value that its column would change; None: none.

    The values are read as wider types, of which the column's own would make another value.
    """
    from psycopg import sql

    wider = [(column, *exact) for column in columns if (exact := column.exact_json())]
    if not wider:
        return None
    conditions = {
        column.name: sql.SQL(condition).format(
            sql.Identifier(column.name), sql.SQL(column.declared), sql.Literal(column.text_form)
        )
        for column, _, condition in wider
    }
    whens = [
        sql.SQL("WHEN NOT ({}) THEN {}").format(condition, sql.Literal(name))
        for name, condition in conditions.items()
    ]
    return sql.SQL(
        "SELECT _headrace_place - 1, CASE {whens} END"
        " FROM ROWS FROM (json_to_recordset($1::json) AS"
        " ({definitions})) WITH ORDINALITY AS given ({names}, _headrace_place)"
        " WHERE NOT ({conditions})"
    ).format(
        whens=sql.SQL(" ").join(whens),
        definitions=listed(
            [
                sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(type_))
                for column, type_, _ in wider
            ]
        ),
        names=listed_names(list(conditions)),
        conditions=sql.SQL(" AND ").join(conditions.values()),
    )


def _array(rows: list[tuple[int, Row]]) -> str:
    objects = (
        b"{"
        + b",".join(json.dumps(name).encode() + b":" + text for name, text in row.items())
        + b"}"
        for _, row in rows
    )
    return (b"[" + b",".join(objects) + b"]").decode()
