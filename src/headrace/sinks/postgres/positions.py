"""What a database records of the pipelines that write to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.settings import Secret
from headrace.sinks.postgres import statements
from headrace.sinks.postgres.connection import NAME, connect, translated_errors

if TYPE_CHECKING:
    from headrace.sinks.postgres.connection import Connection


class PostgresPositions:
    """The table ``headrace.positions``; it is made by the first start of a pipeline.

    Rows and positions are in one database, so a restored backup has both of one moment.
    """

    uri = f"{NAME}, {statements.SCHEMA}.positions"

    def __init__(self, url: Secret, table: str) -> None:
        self._url, self._table = url, table

    def versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """Returns the number recorded for each application id.

        Raises:
            SinkUnavailableError: the server does not answer.
        """
        with translated_errors(), connect(self._url) as connection:
            there = connection.execute(statements.POSITIONS_THERE).fetchone()
            return recorded(connection, self._table, app_ids) if there and there[0] else {}

    def restored(self, writer: Mapping[str, object]) -> None:  # noqa: ARG002
        """Returns None: rows can't go back without the positions."""
        return


def recorded(connection: Connection, table: str, app_ids: Iterable[str]) -> dict[str, int]:
    """Returns what is recorded of ``table`` by application id, in the caller's transaction."""
    return dict(connection.execute(statements.RECORDED, (table, list(app_ids))).fetchall())
