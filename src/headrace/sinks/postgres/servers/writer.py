"""The task's half of several servers: each row goes to the writer of its server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from headrace.errors import TableMismatchError
from headrace.sinks.api import RejectedRow, TaskWriter, WriterFactory
from headrace.sinks.arrow_types import is_text
from headrace.sinks.postgres.servers.address import at_server
from headrace.sinks.postgres.servers.by_server import ByServer

if TYPE_CHECKING:
    import pyarrow as pa

NO_SERVER = "no-server"
_SHOWN = 100  # characters of a value


class ServerPiece(msgspec.Struct, frozen=True):
    """A piece of the writer of one server."""

    server: str
    piece: str


# Made at import: msgspec crashes where several threads are the first to decode a class.
_PIECE = msgspec.json.Decoder(ServerPiece)


def pieces_at(server: str, pieces: Sequence[str]) -> list[str]:
    """Returns the pieces of a server as those of all."""
    return [msgspec.json.encode(ServerPiece(server, piece)).decode() for piece in pieces]


def pieces_by_server(pieces: Sequence[str]) -> dict[str, list[str]]:
    """Returns the pieces of each server that has some."""
    by_server: dict[str, list[str]] = {}
    for text in pieces:
        piece = _PIECE.decode(text)
        by_server.setdefault(piece.server, []).append(piece.piece)
    return by_server


class ServersWriter:
    """Writes the rows of one task.

    Args:
        writers: of the servers, by name.
        sharding: which server has a row.
        task_id: of each of the writers.
    """

    def __init__(
        self, writers: Mapping[str, WriterFactory], sharding: ByServer, task_id: str
    ) -> None:
        self._writers, self._sharding, self._task_id = writers, sharding, task_id
        self._open: dict[str, TaskWriter] = {}

    def write(self, rows: pa.Table) -> list[RejectedRow]:
        """Writes each row at its server; rows without one are rejected, as those that it rejects.

        Raises:
            SinkUnavailableError: if a server does not answer.
            SinkError: if a server refuses all of them.
        """
        rejected = []
        for server, places in _divided(rows, self._sharding):
            if server is None:
                rejected += [self._without_server(rows, place) for place in places]
                continue
            own = rows if len(places) == rows.num_rows else _without_views(rows).take(places)
            with at_server(server):
                not_taken = self._writer(server).write(own)
            rejected += [replace(row, index=places[row.index]) for row in not_taken]
        return sorted(rejected, key=lambda row: row.index)

    def close(self) -> list[str]:
        """Returns the pieces of all servers."""
        return [
            piece
            for server, writer in self._open.items()
            for piece in pieces_at(server, writer.close())
        ]

    def abort(self) -> None:
        """Deletes what was written at each server."""
        for writer in self._open.values():
            writer.abort()

    def _writer(self, server: str) -> TaskWriter:
        if server not in self._open:
            self._open[server] = self._writers[server](self._task_id)
        return self._open[server]

    def _without_server(self, rows: pa.Table, place: int) -> RejectedRow:
        field = self._sharding.field
        value = repr(rows[field][place].as_py())[:_SHOWN]
        detail = f"column {field!r}: ByServer names no server for {value}"
        return RejectedRow(place, NO_SERVER, detail)


def check_rows(table: str, sharding: ByServer, schema: pa.Schema) -> None:
    """Looks at the column that rows are divided by, which steps may have made.

    Raises:
        TableMismatchError: if there is none, or its type is not that of the values.
    """
    import pyarrow as pa

    field = sharding.field
    if field not in schema.names:
        raise TableMismatchError(table, f"its rows have no column {field!r}, which ByServer names")
    kind, value = schema.field(field).type, next(iter(sharding.servers))
    if not (is_text(kind) if isinstance(value, str) else pa.types.is_integer(kind)):
        reason = (
            f"column {field!r} of its rows is {kind}, and ByServer has values such as {value!r}"
        )
        raise TableMismatchError(table, reason)


def _without_views(rows: pa.Table) -> pa.Table:
    """Returns rows of which some can be taken: Arrow takes no views."""
    import pyarrow as pa

    plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    fields = [field.with_type(plain.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


def _divided(rows: pa.Table, sharding: ByServer) -> Iterator[tuple[str | None, list[int]]]:
    """Yields each server that has rows, and their places; None: those without a server."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = list(sharding.servers)
    # No view has the function.
    kind = pa.large_string() if isinstance(values[0], str) else pa.int64()
    positions = pc.index_in(rows[sharding.field].cast(kind), value_set=pa.array(values, kind))
    names = sharding.names
    numbers = pa.array([names.index(sharding.servers[value]) for value in values], pa.int32())
    others = -1 if sharding.otherwise is None else names.index(sharding.otherwise)
    servers = pc.fill_null(numbers.take(positions.combine_chunks()), others)
    for number in range(-1, len(names)):
        places = pc.indices_nonzero(pc.equal(servers, number)).to_pylist()
        if places:
            yield (None if number < 0 else names[number]), places
