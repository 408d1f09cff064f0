"""What a database records of the pipelines that write to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.errors import TableMismatchError
from headrace.settings import Secret
from headrace.sinks.postgres import statements
from headrace.sinks.postgres.connection import NAME, connect, quoted, translated_errors

if TYPE_CHECKING:
    from headrace.sinks.postgres.connection import Connection

_WAYS_ON = (
    "Restore it, or say which rows to write: `UPDATE headrace.positions SET target_oid = NULL` for"
    " those to come, or `DELETE` its rows of headrace.positions and reset the checkpoint for all"
)


class PostgresPositions:
    """The table ``headrace.positions``; it is made by the first start of a pipeline.

    Rows and positions are in one database, so a restored backup has both of one moment. A table
    that was dropped and made again is known by its oid; one that was emptied is not.
    """

    uri = f"{NAME}, {statements.SCHEMA}.positions"

    def __init__(self, url: Secret, table: str) -> None:
        self._url, self._table = url, table

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """Returns the number recorded for each application id.

        Raises:
            SinkUnavailableError: if the server does not answer.
            TableMismatchError: if the table was made again since.
        """
        with translated_errors(), connect(self._url) as connection:
            # Also asked before the first start, when there is no such table.
            there = connection.execute(statements.POSITIONS_ARE_THERE).fetchone()
            return recorded(connection, self._table, app_ids) if there and there[0] else {}

    def restored(self, writer: Mapping[str, object]) -> None:  # noqa: ARG002
        """Returns None: rows can't go back without the positions."""
        return


def recorded(connection: Connection, table: str, app_ids: Iterable[str]) -> dict[str, int]:
    """Returns what is recorded of ``table`` by application id, in the caller's transaction.

    Raises:
        TableMismatchError: if the table was made again since, without the rows.
    """
    names = {"target": table, "quoted": quoted(connection, table), "app_ids": list(app_ids)}
    rows = connection.execute(statements.RECORDED, names).fetchall()
    if any(is_another for _, _, is_another in rows):
        reason = "the table was made again since the pipeline wrote to it; its rows are not in it"
        raise TableMismatchError(table, f"{reason}. {_WAYS_ON}")
    return {app_id: version for app_id, version, _ in rows}
