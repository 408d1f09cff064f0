"""The driver's half of a PostgreSQL table: one transaction a batch, rows and positions together."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from headrace.errors import SinkError, SinkUnavailableError, TableMismatchError
from headrace.runtime.retrying import retry
from headrace.settings import Secret
from headrace.sinks.api import CommitRejection, CommitResult, SinkDriver, Transaction
from headrace.sinks.postgres.connection import connect, translated_errors
from headrace.sinks.postgres.positions import (
    LOCK,
    SETUP_LOCK,
    PostgresPositions,
    record,
    recorded,
    set_up,
)
from headrace.sinks.postgres.recorded_table import (
    RecordedTable,
    TableDeclaration,
    are_columns_shared,
    declare,
    keep_declaration,
)
from headrace.sinks.postgres.rows.insert import insert_from
from headrace.sinks.postgres.rows.isolation import CHECK_NOW, insert_in_parts, remove_rejected
from headrace.sinks.postgres.rows.staging import (
    STAGING,
    count_rows,
    create_staging_table,
    drop_left_behind,
    drop_tables,
)
from headrace.sinks.postgres.rows.taken_out import TakenOut
from headrace.sinks.postgres.rows.unique_rows import (
    LeftOutRows,
    remove_known,
    remove_tied,
    tied_rows,
    try_comparison,
)
from headrace.sinks.postgres.sketches import insert_with_sketches
from headrace.sinks.postgres.sqlstates import ServerError, may_be_of_row
from headrace.sinks.postgres.target import TargetSpec, check_table, with_compared_types
from headrace.sinks.postgres.writer import StagedRows, StagingWriter

if TYPE_CHECKING:
    from headrace.sinks.postgres.connection import Connection

# Six seconds in all: a failover of a managed server takes longer, and the pipeline waits for it.
_DELAYS_SECONDS = (0.2, 0.4, 0.8, 1.6, 3.2)
# Of an INSERT without rows: what the table's columns, keys and kind do not allow.
_MISMATCHES = frozenset({"0A", "42"})
_MISMATCH_STATES = frozenset({"55000"})
_NO_RIGHT = "42501"
# Made at import: msgspec crashes where several threads are the first to decode a class.
_STAGED = msgspec.json.Decoder(StagedRows)


class _KeysTakenError(Exception):
    """The transaction of a batch is rolled back: rows of it have the keys of others.

    ``remove`` removes them from the staging tables, and returns them.
    """

    def __init__(self, remove: Callable[[Connection], LeftOutRows]) -> None:
        super().__init__("rows of the batch have keys of others")
        self.remove = remove


class PostgresDriver(SinkDriver):
    """An open table.

    Args:
        url: of the database.
        owner: names its staging tables, beside the table's name.
        spec: the table.
        declaration: what its rows mean.
        beside: what else the transaction of a batch writes, before its rows.

    Raises:
        TableMismatchError: if there is no such table, it lacks a column, has no unique key, or has
            rows of another declaration.
        SinkUnavailableError: if the server does not answer.
    """

    def __init__(
        self,
        url: Secret,
        owner: str,
        spec: TargetSpec,
        declaration: TableDeclaration,
        beside: Callable[[Connection, RecordedTable, Transaction], None] | None = None,
    ) -> None:
        self._url, self._beside = url, beside
        self._declaration = declaration
        self._taken_out = TakenOut()
        with translated_errors(), connect(url) as connection:
            check_table(connection, spec)
            self._spec = spec = with_compared_types(connection, spec)
            set_up(connection)
            with connection.transaction():
                connection.execute(LOCK, (SETUP_LOCK,))
                self._table = declare(connection, spec.table, declaration)
            # Pipelines and tables have names of any length; a name in SQL has 63 bytes.
            names = f"{owner} {self._table.target}"
            mine = f"{STAGING}{hashlib.blake2b(names.encode(), digest_size=6).hexdigest()}_"
            # With a task's id 62 bytes; names have 63.
            self._prefix = f"{mine}{uuid4().hex[:8]}_"
            drop_left_behind(connection, mine)
            _try_without_rows(connection, spec, f"{self._prefix}trial")
        self.writers = functools.partial(StagingWriter, url, self._prefix, spec)
        self.positions = PostgresPositions(url, spec.table)

    def commit(
        self,
        pieces: Sequence[str],
        transaction: Transaction,
        watermark_us: int,  # noqa: ARG002
    ) -> CommitResult | CommitRejection:
        """Moves the rows and records the positions, in one transaction.

        A transaction that failed for a reason that passes is tried again, six times in all. One
        whose outcome is not known, because the connection was lost, is looked for first. Where it
        fails for rows that the table does not take, those rows are found and left out.
        """
        import psycopg

        self._taken_out.begin(pieces)
        staged = [_STAGED.decode(piece) for piece in pieces]
        try:
            done = self._committed_at_last(staged, transaction)
            return replace(done, figures=self._taken_out.committed())
        except _KeysTakenError as error:
            return self._without_left_out(staged, error.remove)
        except SinkError as error:
            cause = error.__cause__
            if not (isinstance(cause, psycopg.Error) and may_be_of_row(cause)):
                raise
            with translated_errors(), connect(self._url) as connection:
                tables = [piece.table for piece in staged]
                rejected, counts = remove_rejected(connection, self._spec, tables)
            rejection = CommitRejection(rejected, _left(staged, counts))
            if rejection.rejected:
                return rejection
            # Each row can be inserted, such as where the table has changed meanwhile.
            if self._spec.mode != "upsert":
                raise
            done = self._committed_at_last(staged, transaction, in_parts=True)
            return replace(done, figures=self._taken_out.committed())

    def _without_left_out(
        self, staged: Sequence[StagedRows], remove: Callable[[Connection], LeftOutRows]
    ) -> CommitRejection:
        """Takes the rows out of a batch that have keys of others.

        Raises:
            SinkError: if there are none.
        """
        with translated_errors(), connect(self._url) as connection:
            left_out = remove(connection)
        if not left_out.counts:
            reason = "it has left out rows whose keys it does not have: does a trigger skip rows?"
            raise SinkError(f"table {self._spec.table}", reason)
        left = _left(staged, left_out.counts)
        self._taken_out.add(left_out.figures, left)
        return CommitRejection(left_out.rejected, left, left_out.repeats)

    def _committed_at_last(
        self,
        staged: Sequence[StagedRows],
        transaction: Transaction,
        *,
        in_parts: bool = False,
    ) -> CommitResult:
        attempts = itertools.count()

        def attempt() -> CommitResult:
            is_first = next(attempts) == 0
            return self._committed(staged, transaction, is_first=is_first, in_parts=in_parts)

        return retry(attempt, SinkUnavailableError, _DELAYS_SECONDS)

    def discard(self, pieces: Sequence[str]) -> None:
        """Drops the staging tables, if the server answers; else the next start does."""
        staged = [_STAGED.decode(piece) for piece in pieces]
        with suppress(SinkError), translated_errors(), connect(self._url) as connection:
            drop_tables(connection, [piece.table for piece in staged])

    def close(self, max_wait_seconds: float) -> None:
        """No connection is kept between batches."""

    def _committed(
        self,
        staged: Sequence[StagedRows],
        transaction: Transaction,
        *,
        is_first: bool,
        in_parts: bool,
    ) -> CommitResult:
        rows, versions = sum(piece.rows for piece in staged), transaction.versions
        with translated_errors(), connect(self._url) as connection, connection.transaction():
            # Positions are read before they are written: of two drivers of one pipeline, one waits
            # here and then finds those of the other. The lock ends with the transaction.
            connection.execute(LOCK, (f"{self._table.target} {min(versions)}",))
            known = recorded(connection, self._table, transaction.app_ids)
            if not transaction.follows(known, f"table {self._spec.table}"):
                # The attempt before may have committed although its answer was lost.
                return CommitResult(is_new=not is_first, rows=rows)
            # Another project may have taken the table for another declaration while it was empty.
            keep_declaration(connection, self._table, self._declaration)
            if self._beside is not None:
                self._beside(connection, self._table, transaction)
            if staged:
                self._move(connection, staged, in_parts=in_parts)
            record(connection, self._table, versions)
        return CommitResult(is_new=True, rows=rows)

    def _move(
        self, connection: Connection, staged: Sequence[StagedRows], *, in_parts: bool
    ) -> None:
        for piece in staged:
            [(count,)] = connection.execute(count_rows(piece.table)).fetchall()
            if count != piece.rows:
                # A crash of the server empties tables that are not logged.
                reason = f"staging table {piece.table} has {count} of {piece.rows} rows"
                raise SinkError(f"table {self._spec.table}", reason)
        tables = [piece.table for piece in staged]
        if in_parts:
            insert_in_parts(connection, self._spec, tables)
            self._settle_left_out(connection, tables)
        elif self._spec.distinct:
            insert_with_sketches(connection, self._spec, tables)
        else:
            inserted = connection.execute(insert_from(self._spec, tables)).rowcount
            if inserted != sum(piece.rows for piece in staged):
                self._settle_left_out(connection, tables)
        drop_tables(connection, tables)

    def _settle_left_out(self, connection: Connection, tables: Sequence[str]) -> None:
        """Settles rows that the INSERT left out and that are no older than the table's.

        Where pipelines write different columns of the table, they replace those of theirs.

        Raises:
            _KeysTakenError: if the table is unique, or some rows differ from others as new.
        """
        spec = self._spec
        # What COMMIT would refuse must be no row that others are left out for.
        connection.execute(CHECK_NOW)
        if spec.is_unique:
            raise _KeysTakenError(functools.partial(remove_known, spec=spec, staging=tables))
        # Of a row that several events have made, it is not known which columns are as new.
        if spec.refuses_ties and are_columns_shared(connection, self._table, self._declaration):
            connection.execute(insert_from(replace(spec, refuses_ties=False), tables))
        elif spec.refuses_ties and (rows := tied_rows(connection, spec, tables)):
            raise _KeysTakenError(functools.partial(remove_tied, spec=spec, rows=rows))


def _left(staged: Sequence[StagedRows], counts: Mapping[str, int]) -> list[str]:
    """Returns the pieces without some rows of each staging table."""
    left = [StagedRows(piece.table, piece.rows - counts.get(piece.table, 0)) for piece in staged]
    return [msgspec.json.encode(piece).decode() for piece in left]


def _try_without_rows(connection: Connection, spec: TargetSpec, staging: str) -> None:
    """Prepares and commits no rows, and rolls back: PostgreSQL itself says whether they fit.

    Raises:
        TableMismatchError: if a number is added to a text, or a view takes no rows.
    """
    import psycopg

    try:
        # DDL is transactional in PostgreSQL: nothing is left of the trial, or seen by others.
        with connection.transaction(force_rollback=True):
            create_staging_table(connection, spec, staging)
            connection.execute(insert_from(spec, [staging]))
            try_comparison(connection, spec, staging)
    except psycopg.Error as error:
        state = error.sqlstate or ""
        is_mismatch = state[:2] in _MISMATCHES or state in _MISMATCH_STATES
        if not is_mismatch or state == _NO_RIGHT:
            raise
        raise TableMismatchError(spec.table, ServerError.of(error).message) from error
