"""Connections to PostgreSQL, its tables, and its errors as ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import SinkError, SinkUnavailableError
from headrace.runtime.extras import require_extra
from headrace.settings import Secret
from headrace.sinks.postgres.identifiers import table_identifier
from headrace.sinks.postgres.servers.address import PRODUCT, product_at
from headrace.sinks.postgres.sqlstates import Cause, ServerError, cause_of

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

    Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

NAME = PRODUCT
_CONNECTING: dict[str, Any] = {
    # Seconds. Without it, a host that drops packets holds a batch for two minutes.
    "connect_timeout": 10,
    # Milliseconds: a server that vanished in the middle of a COPY is noticed, not waited for.
    "tcp_user_timeout": 60_000,
    "client_encoding": "utf8",
    "application_name": "headrace",
}
_UTC = frozenset({"UTC", "Etc/UTC"})
_TO_UTC = "SET TimeZone TO 'UTC'"
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


def connect(url: Secret) -> Connection:
    """A connection that commits each statement unless it is in a transaction.

    Its transactions see what others have committed when a lock was waited for, and times without a
    zone are UTC, whatever the role and the database have by default.

    Raises:
        ExtraMissingError: if psycopg is not installed.
        SinkUnavailableError: if the server does not answer, or does not let us in.
        SinkError: if the URL is none. No message holds the password.
    """
    require_extra("postgres")
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parameters = conninfo_to_dict(url.reveal())
    except psycopg.ProgrammingError:
        raise SinkError(
            product_at(url), "the URL is not valid"
        ) from None  # its message quotes the URL
    try:
        in_url = {name: value for name, value in parameters.items() if name in _CONNECTING}
        connection = psycopg.connect(url.reveal(), autocommit=True, **(_CONNECTING | in_url))
        # The server reports it with the connection.
        if connection.info.parameter_status("TimeZone") not in _UTC:
            connection.execute(_TO_UTC)
    except psycopg.Error as error:
        password = str(parameters.get("password") or "")
        text = str(error).strip()
        raise SinkUnavailableError(
            product_at(url), text.replace(password, "***") if password else text
        ) from None
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection


def execute_numbered(
    connection: Connection, statement: Composed, parameters: Sequence[object]
) -> psycopg.RawCursor[tuple[Any, ...]]:
    """Executes a statement with names in it and parameters ``$1``, ``$2`` and so on.

    Where parameters are ``%s``, psycopg takes the percent sign of a name for one of them.
    """
    import psycopg

    return psycopg.RawCursor(connection).execute(statement, parameters)


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
        is_transient = cause_of(error) is Cause.TRANSIENT
        raise (SinkUnavailableError if is_transient else SinkError)(
            NAME, ServerError.of(error).message
        ) from error


def find_table(connection: Connection, name: str) -> PostgresTable | None:
    """The table called ``name``, with the columns that can be written; ``None`` without one."""
    columns: dict[str, str] = dict(
        connection.execute(_COLUMNS, (quoted(connection, name),)).fetchall()
    )
    return PostgresTable(name, columns) if columns else None


def quoted(connection: Connection, name: str) -> str:
    """Returns the name of a table as SQL has it, for ``to_regclass``."""
    return table_identifier(name).as_string(connection)
