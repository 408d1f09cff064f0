"""The driver's half of a PostgreSQL table: one transaction a batch, rows and positions together."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from headrace.errors import SinkError, SinkUnavailableError, TableMismatchError
from headrace.settings import Secret
from headrace.sinks.api import CommitResult, SinkDriver, Transaction
from headrace.sinks.postgres import statements
from headrace.sinks.postgres.connection import connect, find_table, translated_errors
from headrace.sinks.postgres.positions import PostgresPositions, recorded
from headrace.sinks.postgres.statements import TargetSpec
from headrace.sinks.postgres.writer import StagedRows, StagingWriter, drop_tables

if TYPE_CHECKING:
    from headrace.sinks.postgres.connection import Connection

_DELAYS_SECONDS = (0.2, 0.4, 0.8, 1.6, 3.2)
_SETUP_LOCK = "headrace.setup"


class PostgresDriver(SinkDriver):
    """An open table.

    Raises:
        TableMismatchError: there is no such table, it lacks a column, or has no unique key.
        SinkUnavailableError: the server does not answer.
    """

    def __init__(self, url: Secret, pipeline: str, spec: TargetSpec) -> None:
        self._url, self._spec = url, spec
        owner = hashlib.blake2b(f"{pipeline} {spec.table}".encode(), digest_size=6).hexdigest()
        mine = f"{statements.STAGING}{owner}_"
        with translated_errors(), connect(url) as connection:
            _check(connection, spec)
            _set_up(connection)
            _drop_left_behind(connection, mine)
        prefix = f"{mine}{uuid4().hex[:8]}_"  # with a task's id 62 bytes; names have 63
        self.writers = functools.partial(StagingWriter, url, prefix, spec)
        self.positions = PostgresPositions(url, spec.table)

    def commit(
        self,
        pieces: Sequence[str],
        transaction: Transaction,
        watermark_us: int,  # noqa: ARG002
    ) -> CommitResult:
        """Moves the rows and records the positions, in one transaction.

        A transaction that failed for a reason that passes is tried again, six times in all. One
        whose outcome is not known, because the connection was lost, is looked for first.
        """
        staged = [msgspec.json.decode(piece, type=StagedRows) for piece in pieces]
        for attempt, delay in enumerate(_DELAYS_SECONDS):
            try:
                return self._committed(staged, transaction, is_first=not attempt)
            except SinkUnavailableError:
                time.sleep(delay)
        return self._committed(staged, transaction, is_first=False)

    def discard(self, pieces: Sequence[str]) -> None:
        """Drops the staging tables, if the server answers; else the next start does."""
        staged = [msgspec.json.decode(piece, type=StagedRows) for piece in pieces]
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
    ) -> CommitResult:
        rows, versions = sum(piece.rows for piece in staged), transaction.versions
        with translated_errors(), connect(self._url) as connection, connection.transaction():
            connection.execute(statements.LOCK, (f"{self._spec.table} {min(versions)}",))
            if not self._follows(connection, transaction):
                # The attempt before may have gone through although its answer was lost.
                return CommitResult(is_new=not is_first, rows=rows)
            if staged:
                self._move(connection, staged)
            recording = (self._spec.table, list(versions), list(versions.values()))
            connection.execute(statements.RECORD, recording)
        return CommitResult(is_new=True, rows=rows)

    def _follows(self, connection: Connection, transaction: Transaction) -> bool:
        """Whether what is expected is recorded; False: the transaction itself is.

        Raises:
            SinkError: neither is.
        """
        names = {*transaction.expected, *transaction.versions}
        known = recorded(connection, self._spec.table, names)
        if all(known.get(name) == at for name, at in transaction.expected.items()):
            return True
        if all(known.get(name) == at for name, at in transaction.versions.items()):
            return False
        reason = "another writer has recorded other positions of its pipeline meanwhile"
        raise SinkError(f"table {self._spec.table}", reason)

    def _move(self, connection: Connection, staged: Sequence[StagedRows]) -> None:
        for piece in staged:
            [(count,)] = connection.execute(statements.count_rows(piece.table)).fetchall()
            if count != piece.rows:
                # A crash of the server empties tables that are not logged.
                reason = f"staging table {piece.table} has {count} of {piece.rows} rows"
                raise SinkError(f"table {self._spec.table}", reason)
        tables = [piece.table for piece in staged]
        connection.execute(statements.insert_from(self._spec, tables))
        drop_tables(connection, tables)


def _check(connection: Connection, spec: TargetSpec) -> None:
    table = find_table(connection, spec.table)
    if table is None:
        reason = "there is no such table: create it, with a column for each of the rows'"
        raise TableMismatchError(spec.table, f"{reason}: {', '.join(spec.columns)}")
    missing = [name for name in spec.columns if name not in table.columns]
    if missing:
        reason = f"it has no column {missing[0]!r} that can be written"
        raise TableMismatchError(spec.table, reason)
    if spec.key:
        name = table.quoted(connection)
        [(has_key,)] = connection.execute(statements.UNIQUE_KEY, (name, list(spec.key))).fetchall()
        if not has_key:
            key = ", ".join(spec.key)
            raise TableMismatchError(spec.table, f"it has no unique index on ({key})")


def _set_up(connection: Connection) -> None:
    """Creates the schema; of several starts at once, only one does."""
    with connection.transaction():
        connection.execute(statements.LOCK, (_SETUP_LOCK,))
        connection.execute(statements.SETUP)


def _drop_left_behind(connection: Connection, prefix: str) -> None:
    left = connection.execute(statements.LEFT_BEHIND, (statements.SCHEMA, prefix))
    drop_tables(connection, [name for (name,) in left])
