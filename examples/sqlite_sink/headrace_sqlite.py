"""A sink for SQLite: exactly once, rows and positions in one transaction of one file."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass

from headrace import CommitResult, Fault, Guarantee, Sink, SinkDriver

POSITIONS = "CREATE TABLE IF NOT EXISTS headrace_positions (app_id PRIMARY KEY, version)"


@dataclass(frozen=True)
class Sqlite(Sink):
    """Sink: a table in the file that ``[sinks.sqlite] file = "..."`` names."""

    table: str

    kind = "sqlite"
    guarantee = Guarantee.EXACTLY_ONCE
    required_settings = ("file",)

    @property
    def target(self):
        return self.table

    def faults(self, rows):
        if not str(self.table).isidentifier():
            yield Fault(f"Sqlite.table is {self.table!r}", "letters, digits and '_'")

    def position_store(self, context):
        return SqlitePositions(context.settings["file"].reveal())

    def open(self, context, schema):
        return SqliteDriver(context.settings["file"].reveal(), self.table, schema.names)


class SqlitePositions:
    """What the file records of pipelines."""

    def __init__(self, file):
        self.uri = file

    def versions(self, app_ids):
        with sqlite3.connect(self.uri) as database:
            known = recorded(database)
        return {app_id: known[app_id] for app_id in app_ids if app_id in known}

    def restored(self, writer):
        return None


def recorded(database):
    database.execute(POSITIONS)
    return dict(database.execute("SELECT app_id, version FROM headrace_positions"))


class RowsWriter:
    """Hands the rows to the driver as JSON: for small batches, but leaves nothing to clear away."""

    def __init__(self, task_id):
        self.rows = []

    def write(self, rows):
        self.rows += [json.dumps(list(row.values()), default=str) for row in rows.to_pylist()]
        return []

    def close(self):
        return self.rows

    def abort(self):
        self.rows = []


class SqliteDriver(SinkDriver):
    """Writes a batch and its positions in one transaction."""

    def __init__(self, file, table, columns):
        self.file, self.table, self.columns = file, table, columns
        self.writers = RowsWriter
        self.positions = SqlitePositions(file)

    def commit(self, pieces, transaction, watermark_us):
        with sqlite3.connect(self.file, isolation_level=None) as database:
            database.execute("BEGIN IMMEDIATE")
            if not transaction.follows(recorded(database), self.file):
                return CommitResult(is_new=False, rows=len(pieces))
            places = ", ".join("?" * len(self.columns))
            rows, versions = map(json.loads, pieces), transaction.versions.items()
            database.executemany(f"INSERT INTO {self.table} VALUES ({places})", rows)
            database.executemany("REPLACE INTO headrace_positions VALUES (?, ?)", versions)
        return CommitResult(is_new=True, rows=len(pieces))

    def discard(self, pieces):
        """Nothing was written."""

    def close(self, max_wait_seconds):
        """Nothing is open."""
