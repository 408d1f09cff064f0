"""Writes queries to a registry beside other clients that write the same queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.errors import HeadraceError
from headrace.kafka.client.clients import ClientConfig
from headrace.queries.declaration import StandingQueries
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.registry.settled import settled_query
from headrace.queries.registry.topic import ensure_registry_topic, query_records, write_registry

# Clients that keep changing one id would otherwise answer each other's records without end.
_MAX_WRITES = 5


class RegistryWriter:
    """Writes queries, and corrects what other clients have written at the same moment.

    Args:
        config: librdkafka's settings of the cluster.
        queries: the standing queries of the registry.
    """

    def __init__(self, config: ClientConfig, queries: StandingQueries) -> None:
        self._config, self._queries = config, queries

    def write(
        self,
        change: Callable[[RegisteredQuery | None], RegisteredQuery],
        live: RegisteredQuery | None,
        next_offset: int,
    ) -> RegisteredQuery:
        """Writes a changed query, and returns it with the offset of its record.

        Other clients may write records between the read and the write. Then the change is applied
        to the query that their records leave, and written again if the result differs. If the
        change is refused for that query, the other clients' query, or tombstone, is written again;
        also if they had seen a record of this client before they cancelled the query or changed its
        text. Of two clients, the one that writes later sees the other's record. After five writes,
        the last record stays as it is.

        Args:
            change: returns the query to write, given the live query, or raises.
            live: the live query that was read; ``None`` if the id is free.
            next_offset: offset after the last record that was read.

        Raises:
            HeadraceError: if the change is refused for the query that was read or for a later one.
        """
        query, revision = change(live), None
        ensure_registry_topic(self._config, self._queries)
        for _ in range(_MAX_WRITES):
            written = replace(query, offset=self.write_record(query.id, query))
            records = self._records(query.id, range(next_offset, written.offset))
            if not records:
                break
            live, next_offset = settled_query(live, records), written.offset + 1
            try:
                query = change(live)
            except HeadraceError:
                self._write_back(query.id, live, next_offset)
                raise
            # A greater revision, or a tombstone, answers a record of this client: who wrote it knew
            # this change, and came later.
            has_been_seen = revision is not None and any(
                record is None or record.revision > revision for record in records
            )
            if has_been_seen and (live is None or live.text != query.text):
                self._write_back(query.id, live, next_offset)
                break
            if query == written:
                break
            revision = written.revision
        return written

    def write_record(self, query_id: str, query: RegisteredQuery | None) -> int:
        """Writes a query, or a tombstone if it is ``None``, and returns the record's offset."""
        value = None if query is None else encode_query(query)[1]
        return write_registry(self._config, self._queries.queries_topic, query_id.encode(), value)

    def _write_back(self, query_id: str, live: RegisteredQuery | None, next_offset: int) -> None:
        """Writes a query, or a tombstone, after a record of this client that must not count."""
        for _ in range(_MAX_WRITES):
            written, offset = live, self.write_record(query_id, live)
            live = settled_query(live, self._records(query_id, range(next_offset, offset)))
            if live == written:
                break
            next_offset = offset + 1

    def _records(self, query_id: str, offsets: range) -> list[RegisteredQuery | None]:
        return query_records(self._config, self._queries.queries_topic, query_id, offsets)
