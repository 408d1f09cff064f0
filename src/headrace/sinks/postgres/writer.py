"""The task's half of a PostgreSQL table: rows are copied into a staging table."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import SinkError
from headrace.settings import Secret
from headrace.sinks.api import RejectedRow
from headrace.sinks.postgres import statements
from headrace.sinks.postgres.connection import (
    connect,
    error_message,
    find_table,
    is_of_row,
    row_reason,
    translated_errors,
)
from headrace.sinks.postgres.statements import TargetSpec

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    from headrace.sinks.postgres.connection import Connection

_JSON = msgspec.json.Encoder(decimal_format="number")


class StagedRows(msgspec.Struct, frozen=True):
    """A piece: a staging table, and how many rows are in it."""

    table: str
    rows: int


class StagingWriter:
    """Copies the rows of one task into a staging table of its own, made with the first row.

    No connection is kept: a task may wait long for its next rows.

    Args:
        url: of the database.
        prefix: of the staging tables of one start of a pipeline.
        spec: the table that they are for.
        task_id: names the staging table.
    """

    def __init__(self, url: Secret, prefix: str, spec: TargetSpec, task_id: str) -> None:
        self._url, self._spec = url, spec
        self._staging = f"{prefix}{task_id}"
        self._is_made = False
        self._rows = 0

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Copies the rows; those that the table's types and constraints do not take are returned.

        Raises:
            SinkUnavailableError: the server does not answer.
            SinkError: PostgreSQL refuses all of them.
        """
        rejected: list[RejectedRow] = []
        with translated_errors(), connect(self._url) as connection:
            if not self._is_made:
                create_staging_table(connection, self._spec, self._staging)
                self._is_made = True
            self._copy(connection, rows, 0, rejected)
        self._rows += rows.num_rows - len(rejected)
        return rejected

    def close(self) -> list[str]:
        """Returns the staging table, if there are rows in it."""
        if not self._rows:
            return []
        return [msgspec.json.encode(StagedRows(self._staging, self._rows)).decode()]

    def abort(self) -> None:
        """Drops the staging table, if the server answers; else the next start does."""
        if self._is_made:
            with suppress(SinkError), translated_errors(), connect(self._url) as connection:
                drop_tables(connection, [self._staging])

    def _copy(
        self, connection: Connection, rows: pa.Table, first: int, rejected: list[RejectedRow]
    ) -> None:
        """One ``COPY``; where it fails for a row's sake, each half by itself."""
        import psycopg

        try:
            self._copy_all(connection, copyable(rows))
        except (psycopg.Error, OverflowError) as error:
            fault = _row_fault(first, error)
            if fault is None:
                raise
            if rows.num_rows == 1:
                rejected.append(fault)
                return
            half = rows.num_rows // 2
            self._copy(connection, rows.slice(0, half), first, rejected)
            self._copy(connection, rows.slice(half), first + half, rejected)

    def _copy_all(self, connection: Connection, rows: pa.Table) -> None:
        statement = statements.copy_into(self._spec, self._staging)
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(csv_of(rows))


def create_staging_table(connection: Connection, spec: TargetSpec, staging: str) -> None:
    """Makes a staging table with the columns that the rows have.

    Raises:
        SinkError: the table that it is for is gone.
    """
    table = find_table(connection, spec.table)
    if table is None:
        raise SinkError(f"table {spec.table}", "there is no such table any more")
    every = connection.execute(statements.EVERY_COLUMN, (table.quoted(connection),))
    unused = [name for (name,) in every if name not in spec.columns]
    connection.execute(statements.create_staging(spec, staging, unused))


def _row_fault(index: int, error: psycopg.Error | OverflowError) -> RejectedRow | None:
    """Returns what an error says of a row; None: it is not a row's own."""
    if isinstance(error, OverflowError):  # a time in a list or struct that Python does not know
        return RejectedRow(index, "wrong-value", str(error))
    state = error.sqlstate or ""
    return RejectedRow(index, row_reason(state), error_message(error)) if is_of_row(state) else None


def drop_tables(connection: Connection, names: Sequence[str]) -> None:
    """Drops staging tables, those that are there."""
    from psycopg import sql

    for name in names:
        statement = sql.SQL("DROP TABLE IF EXISTS {}").format(statements.staging_name(name))
        connection.execute(statement)


def csv_of(rows: pa.Table) -> bytes:
    """Returns the rows as CSV: null is nothing, the empty text is ``""``."""
    from pyarrow import csv

    content = io.BytesIO()
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    csv.write_csv(rows, content, options)
    return content.getvalue()


def copyable(rows: pa.Table) -> pa.Table:
    """Returns the rows with columns that CSV can carry: bytes as hex, nested values as JSON."""
    import pyarrow as pa

    for place, column in enumerate(rows.schema):
        convert = _converter(column.type)
        if convert is not None:
            values = rows[place].to_pylist(maps_as_pydicts="lossy")  # the last of a key, as JSON
            texts = [None if value is None else convert(value) for value in values]
            rows = rows.set_column(place, column.name, pa.array(texts, pa.string()))
    return rows


def _converter(kind: pa.DataType) -> Any:
    from pyarrow import types

    if types.is_binary(kind) or types.is_large_binary(kind):
        return lambda value: "\\x" + value.hex()
    if types.is_nested(kind):
        return lambda value: _JSON.encode(value).decode()
    if types.is_string_view(kind) or types.is_decimal(kind):
        return str
    return None
