"""Lines into tables of PostgreSQL: rows, dead letters and progress in one transaction."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from headrace.errors import LoaderRunningError, SinkError, SinkUnavailableError
from headrace.offline_files.destination import (
    UNKNOWN_TABLE,
    UnknownCommitStateError,
    require_known_table,
)
from headrace.offline_files.entry import BODY, Entry, RejectedEntry, digest
from headrace.offline_files.progress import LoadProgress
from headrace.settings import Secret
from headrace.sinks.postgres import connection as postgres
from headrace.sinks.postgres.rows.json_rows import insert_rows

if TYPE_CHECKING:
    from headrace.sinks.postgres.connection import Connection, PostgresTable

COUNTER = "counter"
_OWN = frozenset({"headrace_offline_files", "headrace_dead_letters"})
_SQL = dict(
    re.findall(
        r"^-- ([a-z-]+)\n(.*?)(?=^-- |\Z)",
        (files(__package__) / "tables.sql").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)
_LOCK_POLL_SECONDS = 0.1


class PostgresDestination:
    """See :class:`Destination`. Reasons of its own: those of ``RowFault``, and ``unknown-table``.

    A row goes into the table that ``tables`` names for what its line says, and nowhere else: a
    line must not choose among all tables that the user may write to, of which some are headrace's.
    ``counter`` is a column where the table has one that the row does not fill. A body is the
    JSON text in a column of type json, jsonb or text, and its bytes in one of type bytea.

    Progress and dead letters are tables ``headrace_offline_files`` and ``headrace_dead_letters``,
    which are created unless they exist. A loader holds an advisory lock of its source, and each
    of its transactions counts up what the one before it left, so no other can come between.

    Args:
        url: of the database.
        source: whose counters these are.
        tables: names of tables, by those that lines have, ``schema.table`` or alone; none of
            headrace's own.
        dry_run: roll back every transaction.
    """

    name = postgres.NAME

    # A loader that was killed holds its lock until the server notices.
    patience_seconds = 10.0

    def __init__(
        self, url: Secret, source: str, tables: Mapping[str, str], *, dry_run: bool = False
    ) -> None:
        self._url, self._source, self._names, self._dry_run = url, source, tables, dry_run
        self._connection: Connection | None = None
        self._tables: dict[str, PostgresTable | None] = {}
        self._batches = 0
        self._is_new = False
        self._was_open = False

    def open(self) -> LoadProgress:
        """Raises SinkError also when a table that ``tables`` names does not exist."""
        self.close()
        try:
            self._connection = postgres.connect(self._url)
            with postgres.translated_errors():
                progress = self._opened(self._connection)
        except SinkUnavailableError as error:
            raise UnknownCommitStateError(error.reason) from error
        self._is_new, self._was_open = not progress.ranges, True
        return progress

    def write(
        self, batch: Sequence[Entry | RejectedEntry], progress: LoadProgress
    ) -> list[RejectedEntry]:
        rejected: list[RejectedEntry] = []
        try:
            with postgres.translated_errors():
                self._write(batch, progress, rejected)
        except SinkUnavailableError as error:
            raise UnknownCommitStateError(error.reason, rejected) from error
        self._batches += not self._dry_run
        self._is_new = False
        return rejected

    def close(self) -> None:
        """Ends the connection, and with it the lock and what was not committed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self, connection: Connection) -> LoadProgress:
        if not self._dry_run:
            self._keep_others_out(connection)
        with connection.transaction(force_rollback=self._dry_run):
            # In PostgreSQL, one of two concurrent CREATE TABLE fails, even with IF NOT EXISTS.
            connection.execute(_SQL["one-at-a-time"])
            connection.execute(_SQL["create"])
            connection.execute(_SQL["begin-source"], (self._source,))
            row = connection.execute(_SQL["read-progress"], (self._source,)).fetchone()
            uncounted = connection.execute(_SQL["read-uncounted"], (self._source,)).fetchall()
        if row is None:
            raise LoaderRunningError(self._source)
        self._batches, counters = row
        self._tables = {
            theirs: postgres.find_table(connection, ours) for theirs, ours in self._names.items()
        }
        for theirs, table in self._tables.items():
            ours = self._names[theirs]
            if table is None:
                raise SinkError(self.name, f"there is no table {ours!r}")
            if ours.rpartition(".")[2] in _OWN:
                raise SinkError(self.name, f"table {ours!r} is headrace's own")
        return LoadProgress.from_json(self._source, counters, (digest for (digest,) in uncounted))

    def _keep_others_out(self, connection: Connection) -> None:
        # A host that vanished holds its lock until TCP times out, by default after two hours.
        connection.execute(_SQL["notice-dead-hosts"])
        deadline = time.monotonic() + self.patience_seconds
        while connection.execute(_SQL["keep-others-out"], (self._source,)).fetchone() != (True,):
            if time.monotonic() > deadline:
                raise self._held()
            time.sleep(_LOCK_POLL_SECONDS)

    def _held(self) -> Exception:
        """A loader that lost its connection may be blocked by its own lock on the server."""
        if self._was_open:
            return SinkUnavailableError(self.name, f"another loader of {self._source!r} is running")
        return LoaderRunningError(self._source)

    def _write(
        self,
        batch: Sequence[Entry | RejectedEntry],
        progress: LoadProgress,
        rejected: list[RejectedEntry],
    ) -> None:
        if self._connection is None:
            raise SinkUnavailableError(self.name, "the connection is closed")
        with self._connection.transaction(force_rollback=self._dry_run):
            # The progress goes first: it fails at once where another loader has advanced it.
            self._advance(self._connection, progress)
            rejected += self._insert(self._connection, batch)
            if self._is_new:
                require_known_table(self.name, batch, rejected)
            if rejected and not self._dry_run:
                with self._connection.cursor() as cursor:
                    cursor.executemany(_SQL["write-letter"], map(self._letter, rejected))

    def _advance(self, connection: Connection, progress: LoadProgress) -> None:
        if self._dry_run:
            return
        # Deferred constraints would fail at the commit, where no row could be named.
        connection.execute(_SQL["check-at-once"])
        mine = (progress.to_json(), self._source, self._batches)
        if connection.execute(_SQL["write-progress"], mine).rowcount != 1:
            raise LoaderRunningError(self._source)

    def _insert(
        self, connection: Connection, batch: Sequence[Entry | RejectedEntry]
    ) -> list[RejectedEntry]:
        """Keeps the order of the lines over all tables: a row may refer to an earlier one."""
        rejected = []
        run: list[Entry] = []
        for entry in batch:
            if isinstance(entry, RejectedEntry):
                rejected.append(entry)
                continue
            if self._tables.get(entry.table) is None:
                detail = f"no --into names table {entry.table!r}"
                rejected.append(_rejected(entry, UNKNOWN_TABLE, detail))
                continue
            if run and run[-1].table != entry.table:
                rejected += self._insert_run(connection, run)
                run = []
            run.append(entry)
        return rejected + self._insert_run(connection, run)

    def _insert_run(self, connection: Connection, run: Sequence[Entry]) -> list[RejectedEntry]:
        table = self._tables.get(run[0].table) if run else None
        if table is None:
            return []
        faults = insert_rows(connection, table, [_row(entry, table) for entry in run])
        return [_rejected(run[row.index], row.reason, row.detail) for row in faults]

    def _letter(self, entry: RejectedEntry) -> tuple[object, ...]:
        line = entry.line
        where = (self._source, line.file, line.number, entry.counter, entry.table)
        return *where, entry.reason, entry.detail, line.content, digest(line)


def _row(entry: Entry, table: PostgresTable) -> dict[str, bytes]:
    row = dict(entry.row)
    if COUNTER in table.columns:
        row.setdefault(COUNTER, str(entry.counter).encode())
    if row.get(BODY, b"null") != b"null" and table.columns.get(BODY) == "bytea":
        row[BODY] = b'"\\\\x' + row[BODY].hex().encode() + b'"'
    return row


def _rejected(entry: Entry, reason: str, detail: str) -> RejectedEntry:
    return RejectedEntry(entry.line, entry.counter, entry.table, reason, detail)
