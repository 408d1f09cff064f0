"""The rows of a table at one moment, and what the database records of pipelines at that moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.settings import Secret
from headrace.sinks.postgres.connection import (
    connect,
    find_table,
    translated_errors,
)
from headrace.sinks.postgres.identifiers import listed, table_identifier
from headrace.sinks.postgres.positions import POSITIONS_ARE_THERE, recorded
from headrace.sinks.postgres.recorded_table import find_recorded

if TYPE_CHECKING:
    import pyarrow as pa
    from psycopg import sql

    from headrace.sinks.postgres.connection import Connection

ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_APPLICATIONS = "SELECT app_id FROM headrace.positions WHERE target = ANY(%s)"
# Rows that the client holds at a time; a server-side cursor has the rest.
_BATCH_ROWS = 50_000
_TIMES = ("timestamp with time zone", "timestamp without time zone")
_TEXTS = ("text", "character varying")
_INTEGERS = ("smallint", "integer", "bigint")
# A timestamp without a zone holds what the sink has sent, which is UTC. A comparison of windows
# needs microseconds, not the form in which a session shows times.
_MICROSECONDS = (
    "CASE WHEN isfinite({column}) THEN (extract(epoch FROM {column}) * 1000000)::bigint END"
)


@dataclass(frozen=True)
class ReadableColumns:
    """Columns that hold times, texts and integers as they were sent, with their types.

    Others are left out: a ``uuid`` or a ``char(n)`` shows a text in another form than was sent.
    """

    kinds: Mapping[str, str]

    @classmethod
    def among(cls, kinds: Mapping[str, str]) -> ReadableColumns:
        """Returns those of some columns, whose types are given by name."""
        readable = (*_TIMES, *_TEXTS, *_INTEGERS)
        return cls({name: kind for name, kind in kinds.items() if kind in readable})

    def selected(self) -> sql.Composed:
        """Returns what to select: of a time, microseconds since 1970."""
        from psycopg import sql

        return listed(
            sql.SQL(_MICROSECONDS if kind in _TIMES else "{column}").format(
                column=sql.Identifier(name)
            )
            for name, kind in self.kinds.items()
        )

    def batch(self, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        """Returns rows of what was selected: times as timestamps in UTC."""
        import pyarrow as pa

        schema = pa.schema([(name, _arrow_type(kind)) for name, kind in self.kinds.items()])
        columns = zip(*rows, strict=True) if rows else [()] * len(schema)
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)
        ]
        return pa.record_batch(arrays, schema=schema)


class PostgresSnapshot:
    """The rows that one transaction sees, which is open until :meth:`close`.

    Other writers continue meanwhile; the server keeps rows that they delete until it ends.

    Args:
        connection: in a transaction of ``ONE_MOMENT``.
        table: its name.
        columns: types of its columns by name.
        recorded_versions: by application id, the number recorded.
    """

    def __init__(
        self,
        connection: Connection,
        table: str,
        columns: Mapping[str, str],
        recorded_versions: Mapping[str, int],
    ) -> None:
        self._connection, self._table = connection, table
        self._kinds = ReadableColumns.among(columns).kinds
        self._recorded = recorded_versions

    @property
    def column_names(self) -> Sequence[str]:
        """Returns the names of the columns that hold times, texts and integers as they came."""
        return list(self._kinds)

    def versions(self, app_ids: Iterable[str]) -> Mapping[str, int]:
        """Returns what the database recorded of applications at that moment."""
        return {name: self._recorded[name] for name in app_ids if name in self._recorded}

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the rows by a cursor of the server: times as timestamps in UTC."""
        from psycopg import sql

        chosen = ReadableColumns({name: self._kinds[name] for name in columns})
        statement = sql.SQL("SELECT {columns} FROM {table}").format(
            columns=chosen.selected(), table=table_identifier(self._table)
        )
        with translated_errors(), self._connection.cursor("headrace_rows") as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(_BATCH_ROWS):
                yield chosen.batch(rows)

    def close(self) -> None:
        """Ends the transaction."""
        self._connection.close()


def _arrow_type(kind: str) -> pa.DataType:
    import pyarrow as pa

    if kind in _TIMES:
        return pa.timestamp("us", "UTC")
    return pa.string() if kind in _TEXTS else pa.int64()


def postgres_snapshot(url: Secret, table: str) -> PostgresSnapshot | None:
    """Returns a table as it is now; None when there is no table, or no pipeline has written to it.

    Raises:
        SinkUnavailableError: if the server does not answer.
        TableMismatchError: if the table was recreated since a pipeline wrote to it.
    """
    with ExitStack() as opened, translated_errors():
        connection = connect(url)
        opened.callback(connection.close)
        connection.autocommit = False
        connection.execute(ONE_MOMENT)
        [(has_positions,)] = connection.execute(POSITIONS_ARE_THERE).fetchall()
        known = find_table(connection, table) if has_positions else None
        if known is None:
            return None
        versions = recorded_by_all(connection, table)
        opened.pop_all()
        return PostgresSnapshot(connection, table, known.columns, versions)


def recorded_by_all(connection: Connection, name: str) -> dict[str, int]:
    """Returns what is recorded of a table by every application id, in the caller's transaction."""
    table = find_recorded(connection, name)
    applications = connection.execute(_APPLICATIONS, (list(table.targets),)).fetchall()
    return recorded(connection, table, [app_id for (app_id,) in applications])
