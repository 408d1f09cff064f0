"""The task's half of a PostgreSQL table: rows are copied into a staging table."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from headrace.errors import SinkError
from headrace.settings import Secret
from headrace.sinks.api import RejectedRow
from headrace.sinks.postgres.connection import connect, translated_errors
from headrace.sinks.postgres.rows.copying import copyable, csv_of
from headrace.sinks.postgres.rows.row_by_row import insert_each
from headrace.sinks.postgres.rows.staging import copy_into, create_staging_table, drop_tables
from headrace.sinks.postgres.rows.text_forms import without_form
from headrace.sinks.postgres.sqlstates import ServerError, is_of_row, may_be_of_row
from headrace.sinks.postgres.target import TargetSpec

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    from headrace.sinks.postgres.connection import Connection


# A row that is inserted alone costs ten times one in a COPY. So a single rejected row is looked
# for by halves until few are left; where many are rejected, each half would fail, down to the last.
_ONE_BY_ONE = 64
_ONE_BY_ONE_WHERE_MANY_ARE_REJECTED = 1_000
_MANY = 1 / 32


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
        self._text_forms: Mapping[str, str] = {}
        self._rows = 0
        self._one_by_one = _ONE_BY_ONE

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Copies the rows; those that the table's types and constraints do not take are returned.

        Raises:
            SinkUnavailableError: if the server does not answer.
            SinkError: if PostgreSQL refuses all of them.
        """
        with translated_errors(), connect(self._url) as connection:
            if not self._is_made:
                self._text_forms = create_staging_table(connection, self._spec, self._staging)
                self._is_made = True
            rejected = without_form(rows, self._text_forms)
            places = [place for place in range(rows.num_rows) if place not in rejected]
            if places:
                taken = rows.take(places) if rejected else rows
                for row in self._copy(connection, taken):
                    rejected[places[row.index]] = replace(row, index=places[row.index])
        self._rows += rows.num_rows - len(rejected)
        return [rejected[place] for place in sorted(rejected)]

    def close(self) -> list[str]:
        """Returns the staging table, if there are rows in it."""
        if not self._rows:
            return []
        return [msgspec.json.encode(StagedRows(self._staging, self._rows)).decode()]

    def abort(self) -> None:
        """Drops the staging table, if the server answers; else the next start does."""
        if self._is_made:
            # Not worth an error: the table is in no piece.
            with suppress(SinkError), translated_errors(), connect(self._url) as connection:
                drop_tables(connection, [self._staging])

    def _copy(self, connection: Connection, rows: pa.Table) -> list[RejectedRow]:
        """One ``COPY``; where it fails for a row's sake, each half separately.

        Halves of few rows are inserted one by one, larger ones too where many are rejected.
        """
        import psycopg

        try:
            self._copy_all(connection, rows)
        except (psycopg.Error, OverflowError) as error:
            if isinstance(error, psycopg.Error) and not may_be_of_row(error):
                raise
            if rows.num_rows == 1:
                return [self._rejected_row(connection, rows, error)]
            rejected = None
            if rows.num_rows <= self._one_by_one and isinstance(error, psycopg.Error):
                rejected = insert_each(connection, self._spec, self._staging, rows)
                are_many = rejected is not None and len(rejected) >= rows.num_rows * _MANY
                self._one_by_one = _ONE_BY_ONE_WHERE_MANY_ARE_REJECTED if are_many else _ONE_BY_ONE
            return self._copy_halves(connection, rows) if rejected is None else rejected
        return []

    def _copy_halves(self, connection: Connection, rows: pa.Table) -> list[RejectedRow]:
        half = rows.num_rows // 2
        rejected = self._copy(connection, rows.slice(0, half))
        later = self._copy(connection, rows.slice(half))
        # In their order: the order of the rows is that of a sequence, which every insert advances.
        return rejected + [replace(row, index=row.index + half) for row in later]

    def _rejected_row(
        self, connection: Connection, row: pa.Table, error: psycopg.Error | OverflowError
    ) -> RejectedRow:
        if isinstance(error, OverflowError):  # a time in a list or struct that Python does not know
            return RejectedRow(0, "wrong-value", str(error))
        if not is_of_row(error, lambda: self._fails_without_rows(connection, row)):
            raise error
        server_error = ServerError.of(error)
        return RejectedRow(0, server_error.reason, server_error.message)

    def _fails_without_rows(self, connection: Connection, rows: pa.Table) -> bool:
        import psycopg

        try:
            self._copy_all(connection, rows.slice(0, 0))
        except psycopg.Error:
            return True
        return False

    def _copy_all(self, connection: Connection, rows: pa.Table) -> None:
        content = csv_of(copyable(rows, self._spec.any_fields))
        statement = copy_into(self._spec, self._staging)
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(content)
