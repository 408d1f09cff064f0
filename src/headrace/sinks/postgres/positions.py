"""What a database records of the pipelines that write to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.errors import TableMismatchError
from headrace.settings import Secret
from headrace.sinks.postgres.connection import connect, quoted, translated_errors
from headrace.sinks.postgres.identifiers import SCHEMA
from headrace.sinks.postgres.recorded_table import RecordedTable, create_tables, find_recorded
from headrace.sinks.postgres.servers.address import product_at

if TYPE_CHECKING:
    from headrace.sinks.postgres.connection import Connection

# Each is made only where it is missing: `CREATE SCHEMA IF NOT EXISTS` needs the right to make one
# even where there is one.
_SCHEMA_IS_THERE = "SELECT to_regnamespace('headrace') IS NOT NULL"
_CREATE_SCHEMA = "CREATE SCHEMA headrace"
POSITIONS_ARE_THERE = "SELECT to_regclass('headrace.positions') IS NOT NULL"
_CREATE_POSITIONS = """
CREATE TABLE headrace.positions (
    target text,
    app_id text,
    version bigint NOT NULL,
    target_oid oid,
    positions_oid oid,
    PRIMARY KEY (target, app_id)
)
"""
# A restore of the whole database gives both tables new oids. Where only the target has another
# one, it was recreated, without the rows that these positions speak of.
_RECORDED = """
SELECT DISTINCT ON (app_id) app_id, version,
    positions_oid = 'headrace.positions'::regclass AND target_oid <> to_regclass(%(quoted)s)
FROM headrace.positions WHERE target = ANY(%(targets)s) AND app_id = ANY(%(app_ids)s)
ORDER BY app_id, array_position(%(targets)s, target)
"""
_RECORD = """
INSERT INTO headrace.positions (target, app_id, version, target_oid, positions_oid)
SELECT %(target)s, *, to_regclass(%(quoted)s), 'headrace.positions'::regclass
FROM unnest(%(app_ids)s::text[], %(versions)s::bigint[])
ON CONFLICT (target, app_id) DO UPDATE SET version = excluded.version,
    target_oid = excluded.target_oid, positions_oid = excluded.positions_oid
"""
# Shared by all pipelines that write to a database, unlike the lock of a batch.
SETUP_LOCK = "headrace.setup"
LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
_WAYS_ON = (
    "Restore it, or say which rows to write: `UPDATE headrace.positions SET target_oid = NULL` for"
    " those to come, or `DELETE` its rows of headrace.positions and reset the checkpoint for all"
)


class PostgresPositions:
    """The table ``headrace.positions``; it is made by the first start of a pipeline.

    Rows and positions are in one database, so a restored backup has both of one moment. A table
    that was dropped and recreated is known by its oid; one that was emptied is not.
    """

    def __init__(self, url: Secret, table: str) -> None:
        self._url, self._table = url, table

    @property
    def uri(self) -> str:
        """Returns the server and the table, for messages."""
        return f"{product_at(self._url)}, {SCHEMA}.positions"

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """Returns the number recorded for each application id.

        Raises:
            SinkUnavailableError: if the server does not answer.
            TableMismatchError: if the table was recreated since.
        """
        with translated_errors(), connect(self._url) as connection:
            # Also asked before the first start, when there is no such table.
            row = connection.execute(POSITIONS_ARE_THERE).fetchone()
            if not (row and row[0]):
                return {}
            return recorded(connection, find_recorded(connection, self._table), app_ids)

    def restored(self, writer: Mapping[str, object]) -> None:  # noqa: ARG002
        """Returns None: rows can't go back without the positions."""
        return


def recorded(
    connection: Connection, table: RecordedTable, app_ids: Iterable[str]
) -> dict[str, int]:
    """Returns what is recorded of ``table`` by application id, in the caller's transaction.

    Raises:
        TableMismatchError: if the table was recreated since, without the rows.
    """
    parameters = {
        "targets": list(table.targets),
        "quoted": quoted(connection, table.name),
        "app_ids": list(app_ids),
    }
    rows = connection.execute(_RECORDED, parameters).fetchall()
    if any(is_another for _, _, is_another in rows):
        reason = "the table was recreated since the pipeline wrote to it; its rows are not in it"
        raise TableMismatchError(table.name, f"{reason}. {_WAYS_ON}")
    return {app_id: version for app_id, version, _ in rows}


def record(connection: Connection, table: RecordedTable, versions: Mapping[str, int]) -> None:
    """Records a number for each application id, in the caller's transaction."""
    parameters = {
        "target": table.target,
        "quoted": quoted(connection, table.name),
        "app_ids": list(versions),
        "versions": list(versions.values()),
    }
    connection.execute(_RECORD, parameters)


def set_up(connection: Connection, *more: tuple[str, str]) -> None:
    """Creates the schema and the tables of what is recorded; of several starts, only one does.

    Args:
        connection: of the database.
        more: pairs of a query whether something exists, and the statement that creates it.
    """
    with connection.transaction():
        # Even `IF NOT EXISTS` fails for one of two that create a schema or table at the same time.
        connection.execute(LOCK, (SETUP_LOCK,))
        for question, statement in (
            (_SCHEMA_IS_THERE, _CREATE_SCHEMA),
            (POSITIONS_ARE_THERE, _CREATE_POSITIONS),
            *more,
        ):
            [(is_there,)] = connection.execute(question).fetchall()
            if not is_there:
                connection.execute(statement)
        create_tables(connection)
