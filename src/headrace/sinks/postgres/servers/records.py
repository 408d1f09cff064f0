"""Reads and writes at servers what they record of a pipeline."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.errors import SinkError, TableMismatchError
from headrace.settings import Secret
from headrace.sinks.postgres.connection import connect, translated_errors
from headrace.sinks.postgres.positions import (
    LOCK,
    POSITIONS_ARE_THERE,
    SETUP_LOCK,
    PostgresPositions,
    record,
    recorded,
)
from headrace.sinks.postgres.recorded_table import RecordedTable, find_recorded
from headrace.sinks.postgres.servers.address import url_of
from headrace.sinks.postgres.servers.names import same_server, server_names
from headrace.sinks.postgres.servers.standing import RecordIds, ServerRecord

if TYPE_CHECKING:
    from headrace.sinks.postgres.connection import Connection

_OF_PIPELINE = """
SELECT DISTINCT ON (app_id) app_id, version FROM headrace.positions
WHERE target = ANY(%(targets)s) AND (app_id = %(pipeline)s OR starts_with(app_id, %(prefix)s))
ORDER BY app_id, array_position(%(targets)s, target)
"""
_LOCKED = "SELECT pg_try_advisory_xact_lock(%s)"
_FORGET = """
DELETE FROM headrace.positions
WHERE target = ANY(%(targets)s) AND (app_id = %(pipeline)s OR starts_with(app_id, %(prefix)s))
"""


_ANOTHER = "another driver has written to it meanwhile, or shards its rows in another way"


def refuse_other_sharding(
    connection: Connection, table: RecordedTable, pipeline: str, sharding: int
) -> None:
    """Ends the transaction of a batch whose rows are sharded in another way than the server says.

    Raises:
        SinkError: if they are.
    """
    name = RecordIds(pipeline).sharding
    if recorded(connection, table, [name]).get(name, 0) != sharding:
        raise SinkError(f"table {table.name}", _ANOTHER)


class ServerRecords:
    """What servers record of one pipeline and its table.

    Args:
        settings: of ``[sinks.postgres]``.
        table: its name, the same at all servers.
        pipeline: its name.

    Raises:
        SinkUnavailableError: by each method that asks a server, if it does not answer.
    """

    def __init__(self, settings: Mapping[str, Secret], table: str, pipeline: str) -> None:
        self._settings = settings
        self.table, self.pipeline = table, pipeline
        self._ids = RecordIds(pipeline)

    @property
    def names(self) -> tuple[str, ...]:
        """The servers that the project names."""
        return server_names(self._settings)

    def address_of(self, server: str | None) -> str | None:
        """Returns the name by which a server is compared: names of one address are one server."""
        return same_server(self._settings, server)

    def check_apart(self, servers: Sequence[str]) -> None:
        """Checks that servers are different databases, whatever their addresses are.

        In one that has two names, the rows of the second would be taken for repeated ones.

        Raises:
            TableMismatchError: if two are one database.
        """
        lock = secrets.randbits(62)  # held by one transaction of a database
        with contextlib.ExitStack() as held:
            for server in servers:
                url = self._url(server)
                with translated_errors():
                    connection = held.enter_context(connect(url))
                    held.enter_context(connection.transaction())
                    [(is_first,)] = connection.execute(_LOCKED, (lock,)).fetchall()
                if not is_first:
                    raise TableMismatchError(
                        self.table,
                        f"server {server} is the database of another one of "
                        f"{', '.join(servers)}: each needs a database of its own",
                    )

    def read(self, server: str | None) -> ServerRecord:
        """Returns what a server records of the batches of the pipeline."""
        with translated_errors(), connect(self._url(server)) as connection:
            return self._ids.record(self._versions(connection, self._ids.of_batches))

    def versions(self, server: str, app_ids: Iterable[str]) -> Mapping[str, int]:
        """Returns the number that a server records for each application id.

        Raises:
            TableMismatchError: if the table was recreated since.
        """
        return PostgresPositions(self._url(server), self.table).versions(app_ids)

    def record(
        self,
        server: str | None,
        before: ServerRecord,
        batch: int,
        servers: Sequence[str],
        sharding: int = 0,
    ) -> None:
        """Records at a server which ones have the batches of the pipeline from now on.

        Args:
            server: where.
            before: what it must have recorded.
            batch: a number above those of the batches before.
            servers: names of all of them.
            sharding: how rows are sharded; 0: they are at one server.

        Raises:
            SinkError: if it has recorded something else.
        """
        url = self._url(server)
        with translated_errors(), connect(url) as connection, connection.transaction():
            table = find_recorded(connection, self.table)
            self._require(connection, table, before)
            record(connection, table, self._ids.versions(batch, servers, sharding))

    def copy(self, source: str, target: str, before: ServerRecord) -> None:
        """Records at one server what another one records of the pipeline, in place of its own.

        Args:
            source: what is read.
            target: where it is recorded.
            before: what that must have recorded.

        Raises:
            SinkError: if it has recorded something else: a batch may have been committed there.
        """
        with translated_errors(), connect(self._url(source)) as connection:
            versions = self._versions(connection, self._ids.prefix)
        url = self._url(target)
        with translated_errors(), connect(url) as connection, connection.transaction():
            connection.execute(LOCK, (SETUP_LOCK,))
            table = find_recorded(connection, self.table)
            self._require(connection, table, before)
            connection.execute(_FORGET, self._parameters(table, self._ids.prefix))
            record(connection, table, versions)

    def _require(self, connection: Connection, table: RecordedTable, before: ServerRecord) -> None:
        """Lets no batch be committed in this transaction's time; refuses if one was, meanwhile."""
        # The lock of a batch: its driver, if it was frozen, commits before or is refused.
        connection.execute(LOCK, (f"{table.target} {self._ids.pipeline}",))
        if self._ids.record(self._versions(connection, self._ids.of_batches)) != before:
            raise SinkError(f"table {self.table}", _ANOTHER)

    def _url(self, server: str | None) -> Secret:
        return url_of(self._settings, server)

    def _versions(self, connection: Connection, prefix: str) -> dict[str, int]:
        [(is_there,)] = connection.execute(POSITIONS_ARE_THERE).fetchall()
        if not is_there:
            return {}
        parameters = self._parameters(find_recorded(connection, self.table), prefix)
        return dict(connection.execute(_OF_PIPELINE, parameters).fetchall())

    def _parameters(self, table: RecordedTable, prefix: str) -> dict[str, object]:
        targets = list(table.targets)
        return {"targets": targets, "pipeline": self._ids.pipeline, "prefix": prefix}
