"""What a task stages beside the sums of its events: the keys of each, and the events themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.sinks.postgres.identifiers import own_identifier
from headrace.sinks.postgres.rows.copying import csv_of
from headrace.sinks.postgres.rows.staging import drop_tables
from headrace.sinks.unique.compared_rows import RowHashes

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg.sql import Composed

    from headrace.sinks.postgres.connection import Connection

Places = NDArray[np.int64]

_CREATE = """
CREATE UNLOGGED TABLE {keys} (
    place bigint, key_hash bigint, values_hash bigint, event_time timestamptz
);
CREATE UNLOGGED TABLE {events} (first_place bigint PRIMARY KEY, content bytea NOT NULL)
"""
_COPY_KEYS = "COPY {keys} FROM STDIN (FORMAT csv)"
_STAGE_EVENTS = "INSERT INTO {events} VALUES (%s, %s)"
_FIRST_PLACES = "SELECT first_place FROM {events} ORDER BY 1"
_CONTENT = "SELECT content FROM {events} WHERE first_place = %s"
_PLACES = "SELECT place FROM {keys}"
_REMOVE = "DELETE FROM {keys} USING unnest(%s::bigint[]) AS removed (number) WHERE place = number"
_MAX_CONTENT_BYTES = 1 << 24


class StagedEvents:
    """Two tables of one task, in the order in which it has read.

    Events are staged in Arrow's format, compressed: they are read again only where some of them
    are not counted.

    Args:
        name: that the names of the task's staging tables start with.
    """

    def __init__(self, name: str) -> None:
        self.keys, self._events = f"{name}k", f"{name}e"

    def create(self, connection: Connection) -> None:
        """Makes the tables."""
        connection.execute(self._sql(_CREATE))

    def add(
        self, connection: Connection, rows: pa.Table, hashes: RowHashes, time: str, first: int
    ) -> None:
        """Stages events, whose first one has the place ``first``; ``time`` is their column."""
        import pyarrow as pa

        keys = pa.table(
            {
                "place": pa.array(np.arange(first, first + rows.num_rows)),
                "key_hash": pa.array(hashes.keys.view(np.int64)),
                "values_hash": pa.array(hashes.values.view(np.int64)),
                # Without a zone, times are those of UTC.
                "event_time": rows[time].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            }
        )
        with connection.cursor() as cursor, cursor.copy(self._sql(_COPY_KEYS)) as copy:
            copy.write(csv_of(keys))
        parts = 1 + rows.nbytes // _MAX_CONTENT_BYTES
        length = max(1, -(-rows.num_rows // parts))
        for begin in range(0, rows.num_rows, length):
            content = _content(rows.slice(begin, length))
            connection.execute(self._sql(_STAGE_EVENTS), (first + begin, content))

    def events(self, connection: Connection) -> Iterator[tuple[Places, pa.Table]]:
        """Yields the events, a part of them at a time, with their places."""
        import pyarrow as pa

        for (first,) in connection.execute(self._sql(_FIRST_PLACES)).fetchall():
            [(content,)] = connection.execute(self._sql(_CONTENT), (first,), binary=True).fetchall()
            rows = pa.ipc.open_stream(content).read_all()
            yield np.arange(first, first + rows.num_rows), rows

    def places(self, connection: Connection) -> Places:
        """Returns the places of events whose keys are staged."""
        places = connection.execute(self._sql(_PLACES), binary=True).fetchall()
        return np.array([place for (place,) in places], np.int64)

    def remove(self, connection: Connection, places: Sequence[int]) -> None:
        """Removes the keys of events."""
        connection.execute(self._sql(_REMOVE), (list(places),))

    def drop(self, connection: Connection) -> None:
        """Drops the tables, if they are there."""
        drop_tables(connection, [self.keys, self._events])

    def _sql(self, statement: str) -> Composed:
        from psycopg import sql

        names: dict[str, Any] = {
            "keys": own_identifier(self.keys),
            "events": own_identifier(self._events),
        }
        return sql.SQL(statement).format(**names)


def _content(rows: pa.Table) -> bytes:
    import pyarrow as pa

    stream = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(stream, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(stream.getvalue())
