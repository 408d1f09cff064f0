"""What several servers record of a pipeline, as one: what the last of them has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.sinks.postgres.identifiers import SCHEMA
from headrace.sinks.postgres.servers.address import PRODUCT, at_server
from headrace.sinks.postgres.servers.standing import ServersStanding

if TYPE_CHECKING:
    from headrace.sinks.postgres.servers.records import ServerRecords


class ServersPositions:
    """The positions of the server that has the fewest batches.

    Args:
        records: of the pipeline.
        servers: names of those that are declared.
    """

    def __init__(self, records: ServerRecords, servers: Sequence[str]) -> None:
        self._records, self._servers = records, tuple(servers)

    @property
    def uri(self) -> str:
        """Returns the servers, for messages."""
        return f"{PRODUCT} {', '.join(self._servers)}, {SCHEMA}.positions"

    def standing(self) -> ServersStanding:
        """Returns where the servers stand.

        Raises:
            SinkUnavailableError: if one does not answer.
        """
        return ServersStanding.of({server: self._records.read(server) for server in self._servers})

    def versions(self, app_ids: Iterable[str]) -> Mapping[str, int]:
        """Returns the numbers that the last server records.

        Raises:
            SinkUnavailableError: if a server does not answer.
            TableMismatchError: if the table of one was recreated since.
        """
        ids, standing = list(app_ids), self.standing()
        versions: Mapping[str, int] = {}
        for server in self._servers:
            if server in standing.joining:
                continue
            with at_server(server):
                recorded = self._records.versions(server, ids)
            if server == standing.last:
                versions = recorded
        return versions

    def restored(self, writer: Mapping[str, object]) -> None:  # noqa: ARG002
        """Returns None: rows can't go back without the positions."""
        return
