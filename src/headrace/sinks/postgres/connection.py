"""Connections to PostgreSQL, its tables, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import SinkError, SinkUnavailableError
from headrace.runtime.extras import require_extra
from headrace.settings import Secret

if TYPE_CHECKING:
    import psycopg

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

NAME = "PostgreSQL"
_MAX_DETAIL_CHARACTERS = 500
_CONNECTING: dict[str, Any] = {
    "connect_timeout": 10,
    "tcp_user_timeout": 60_000,
    "client_encoding": "utf8",
    "application_name": "headrace",
}
_TRANSIENT = frozenset({"08", "40", "53", "57"})
# A standby after a failover; a lock that is not available.
_TRANSIENT_STATES = frozenset({"25006", "55P03"})
_OF_A_ROW = frozenset({"22", "23", "44", "54", "P0"})
# Standard SQL leaves the classes from I to Z to the database; PostgreSQL itself has P0 and XX.
_OWN_CLASSES = frozenset("IJKLMNOPQRSTUVWXYZ")
# Connection, transaction, login, resources, the operator, the system, PostgreSQL itself.
_NEVER_OF_A_ROW = _TRANSIENT | {"", "25", "26", "28", "2D", "3B", "3D", "58", "F0", "HV", "XX"}
_REASONS = {
    "22021": "nul-character",
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


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """A table: its name, ``schema.table`` or as the search path finds it; its columns' types."""

    name: str
    columns: Mapping[str, str]

    @property
    def parts(self) -> list[str]:
        """Schema, where it was given, and table."""
        return self.name.split(".", 1)

    def quoted(self, connection: Connection) -> str:
        """The name as SQL has it, for ``to_regclass``."""
        return quoted(connection, self.name)


def connect(url: Secret) -> Connection:
    """A connection that commits each statement unless it stands in a transaction.

    Raises:
        ExtraMissingError: if psycopg is not installed.
        SinkUnavailableError: the server does not answer, or does not let us in.
        SinkError: the URL is none. No message holds the password.
    """
    require_extra("postgres")
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parameters = conninfo_to_dict(url.reveal())
    except psycopg.ProgrammingError:
        raise SinkError(NAME, "the URL is not valid") from None  # its message quotes the URL
    try:
        return psycopg.connect(url.reveal(), autocommit=True, **_connecting(parameters))
    except psycopg.Error as error:
        password = str(parameters.get("password") or "")
        text = str(error).strip()
        raise SinkUnavailableError(
            NAME, text.replace(password, "***") if password else text
        ) from None


def _connecting(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return _CONNECTING | {name: value for name, value in parameters.items() if name in _CONNECTING}


@contextmanager
def translated_errors() -> Iterator[None]:
    """Errors of PostgreSQL as ours: :class:`SinkUnavailableError` where trying again may help.

    After a connection that was lost in a transaction's end, it is not known whether it was
    committed.

    Raises:
        ExtraMissingError: if psycopg is not installed.
    """
    require_extra("postgres")
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ""
        lost = not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        transient = lost or state[:2] in _TRANSIENT or state in _TRANSIENT_STATES
        raise (SinkUnavailableError if transient else SinkError)(
            NAME, error_message(error)
        ) from error


def find_table(connection: Connection, name: str) -> PostgresTable | None:
    """The table called ``name``, with the columns that can be written; ``None`` without one."""
    columns: dict[str, str] = dict(
        connection.execute(_COLUMNS, (quoted(connection, name),)).fetchall()
    )
    return PostgresTable(name, columns) if columns else None


def quoted(connection: Connection, name: str) -> str:
    """Returns the name of a table, with its schema where it has one, as SQL has it."""
    from psycopg import sql

    return sql.Identifier(*name.split(".", 1)).as_string(connection)


def is_of_row(state: str) -> bool:
    """Whether an error of this SQLSTATE is a row's own: PostgreSQL says so, or a trigger."""
    return state[:2] in _OF_A_ROW or (state[:1] in _OWN_CLASSES and state[:2] != "XX")


def may_be_of_row(state: str) -> bool:
    """Triggers raise errors of any class, also of their own."""
    return state[:2] not in _NEVER_OF_A_ROW and state not in _TRANSIENT_STATES


def row_reason(state: str) -> str:
    """Returns the stable code for an error of a row."""
    return _REASONS.get(state) or _REASONS_OF_CLASS.get(state[:2], "rejected-by-trigger")


def error_message(error: psycopg.Error) -> str:
    """Returns what PostgreSQL says, with the column where it knows one."""
    text = error.diag.message_primary or str(error).strip() or type(error).__name__
    column = error.diag.column_name
    where = f"column {column!r}: " if column and repr(column)[1:-1] not in text else ""
    return (where + text)[:_MAX_DETAIL_CHARACTERS]
