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
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import ExtraMissingError, SinkAwayError, SinkError
from headrace.settings import Secret

if TYPE_CHECKING:
    import psycopg

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

NAME = "PostgreSQL"
_LONGEST_DETAIL = 500
_CONNECTING: dict[str, Any] = {
    "connect_timeout": 10,
    "tcp_user_timeout": 60_000,
    "client_encoding": "utf8",
    "application_name": "headrace",
}
_PASSING = frozenset({"08", "40", "53", "57"})
_PASSING_STATES = frozenset({"25006", "55P03"})  # a standby after a failover; a lock not available
_OF_A_ROW = frozenset({"22", "23", "44", "54", "P0"})
# Connection, transaction, login, resources, the operator, the system, PostgreSQL itself.
_NEVER_OF_A_ROW = _PASSING | {"", "25", "26", "28", "2D", "3B", "3D", "58", "F0", "HV", "XX"}
_REASONS = {
    "22P05": "nul-character",
    "23502": "missing-value",
    "23503": "foreign-key",
    "23505": "not-unique",
    "23514": "check-violated",
    "42501": "not-permitted",
}
_REASONS_OF_CLASS = {
    "22": "wrong-value",
    "23": "constraint",
    "44": "constraint",
    "54": "row-too-large",
}
_COLUMNS = """
SELECT attname, atttypid::regtype::text
FROM pg_catalog.pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
  AND attgenerated = '' AND attidentity <> 'a'
ORDER BY attnum
"""

Row: TypeAlias = Mapping[str, bytes]
"""JSON text of each column."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its name, ``schema.table`` or as the search path finds it; its columns' types."""

    name: str
    columns: Mapping[str, str]

    @property
    def parts(self) -> list[str]:
        """Schema, where it was given, and table."""
        return self.name.split(".", 1)


@dataclass(frozen=True, slots=True)
class RowFault:
    """A row that was left out.

    ================== =====================================================================
    unknown-column     the table has no such column, or makes it itself
    nul-character      a NUL character in a text
    wrong-value        a value that the column's type does not take
    missing-value      null, or nothing, for a column that is NOT NULL
    not-unique         another row has the key
    foreign-key        the row that it refers to is not there
    check-violated     a CHECK
    constraint         another constraint
    row-too-large      beyond a limit of PostgreSQL, such as that of an index
    not-permitted      row-level security, or a right that a trigger lacks
    refused-by-trigger a trigger raised an error
    ================== =====================================================================

    Attributes:
        index: which row, from 0.
        reason: a stable code.
        detail: PostgreSQL's message.
    """

    index: int
    reason: str
    detail: str


def connect(url: Secret) -> Connection:
    """A connection that commits each statement unless it stands in a transaction.

    Raises:
        ExtraMissingError: psycopg is not installed.
        SinkAwayError: the server does not answer, or does not let us in.
        SinkError: the URL is none. No message holds the password.
    """
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError as error:
        raise ExtraMissingError("postgres") from error
    try:
        given = conninfo_to_dict(url.reveal())
    except psycopg.ProgrammingError:
        raise SinkError(NAME, "the URL is not valid") from None  # its message quotes the URL
    try:
        return psycopg.connect(url.reveal(), autocommit=True, **{**_CONNECTING, **_own(given)})
    except psycopg.Error as error:
        password = str(given.get("password") or "")
        text = str(error).strip()
        raise SinkAwayError(NAME, text.replace(password, "***") if password else text) from None


def _own(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in _CONNECTING}


@contextmanager
def failures_named() -> Iterator[None]:
    """Errors of PostgreSQL as ours: :class:`SinkAwayError` where trying again may help.

    After a connection that was lost in a transaction's end, it is not known whether it was
    committed.
    """
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ""
        lost = not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        passing = lost or state[:2] in _PASSING or state in _PASSING_STATES
        raise (SinkAwayError if passing else SinkError)(NAME, _message(error)) from error


def find_table(connection: Connection, name: str) -> Table | None:
    """The table called ``name``, with the columns that can be written; ``None`` without one."""
    from psycopg import sql

    quoted = sql.Identifier(*name.split(".", 1)).as_string(connection)
    columns: dict[str, str] = dict(connection.execute(_COLUMNS, (quoted,)).fetchall())
    return Table(name, columns) if columns else None


def insert_rows(connection: Connection, table: Table, rows: Sequence[Row]) -> list[RowFault]:
    """Inserts the rows in their order, and returns those that were left out.

    One statement for all rows in a row that have the same columns; where it fails for a row's
    sake, it is halved until the rows at fault stand alone.

    Raises:
        psycopg.Error: it failed for another reason; the transaction is to be rolled back.
    """
    faults = []
    numbered = enumerate(rows)
    for columns, run in itertools.groupby(numbered, key=lambda one: tuple(sorted(one[1]))):
        unknown = [name for name in columns if name not in table.columns]
        if unknown:
            detail = f"table {table.name!r} has no column {unknown[0]!r} that can be written"
            faults += [RowFault(index, "unknown-column", detail) for index, _ in run]
        else:
            faults += _Insertion(connection, table, columns).take(list(run))
    return faults


class _Insertion:
    def __init__(self, connection: Connection, table: Table, columns: Sequence[str]) -> None:
        from psycopg import sql

        self._connection = connection
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        template = (
            "INSERT INTO {table} ({names}) "
            "SELECT {names} FROM json_populate_recordset(NULL::{table}, %s::json)"
            if columns
            else "INSERT INTO {table} SELECT FROM json_array_elements(%s::json)"
        )
        self._statement = sql.SQL(template).format(table=sql.Identifier(*table.parts), names=names)

    def take(self, rows: list[tuple[int, Row]]) -> Iterator[RowFault]:
        import psycopg

        try:
            with self._connection.transaction():
                self._connection.execute(self._statement, (_array(rows),))
        except psycopg.Error as error:
            if not _may_be_of_a_row(error.sqlstate or ""):
                raise
            if len(rows) == 1:
                if (error.sqlstate or "")[:2] not in _OF_A_ROW and self._fails_without_rows():
                    raise
                yield RowFault(rows[0][0], _reason(error.sqlstate or ""), _message(error))
                return
            half = len(rows) // 2
            yield from self.take(rows[:half])
            yield from self.take(rows[half:])

    def _fails_without_rows(self) -> bool:
        """Whether it is the table's fault: rights and the like are checked before any row."""
        import psycopg

        try:
            with self._connection.transaction(force_rollback=True):
                self._connection.execute(self._statement, ("[]",))
        except psycopg.Error:
            return True
        return False


def _may_be_of_a_row(state: str) -> bool:
    """Triggers raise errors of any class, also of their own."""
    return state[:2] not in _NEVER_OF_A_ROW and state not in _PASSING_STATES


def _array(rows: list[tuple[int, Row]]) -> str:
    objects = (
        b"{"
        + b",".join(json.dumps(name).encode() + b":" + text for name, text in row.items())
        + b"}"
        for _, row in rows
    )
    return (b"[" + b",".join(objects) + b"]").decode()


def _reason(state: str) -> str:
    return _REASONS.get(state) or _REASONS_OF_CLASS.get(state[:2], "refused-by-trigger")


def _message(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    column = error.diag.column_name
    where = f"column {column!r}: " if column and repr(column)[1:-1] not in text else ""
    return (where + text)[:_LONGEST_DETAIL]
