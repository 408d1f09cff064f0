"""A proxy before PostgreSQL that loses the answer to a commit which has happened."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from functools import partial
from typing import Self

from headrace.runtime.servers.ports import LOOPBACK, free_ports

_CHUNK_BYTES = 64 * 1024
_UPDATE = b"UPDATE iceberg_tables"


class LosingProxy:
    """Forwards connections; use it as a context.

    A commit of Iceberg's Java library is one UPDATE, as it commits by itself; one of pyiceberg is
    an UPDATE and a COMMIT.

    Args:
        server_port: of PostgreSQL.

    Attributes:
        port: of the proxy.
        lost: how many answers were lost.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        (self.port,) = free_ports(1)
        self.lost = 0
        self._to_lose = 0

    def __enter__(self) -> Self:
        is_ready = threading.Event()
        serving = self._serve(is_ready)
        self._thread = threading.Thread(target=asyncio.run, args=(serving,), name="losing-proxy")
        self._thread.start()
        is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._thread.join()

    def lose_next(self) -> None:
        """Loses the answer to the next commit, and cuts its connection."""
        self._to_lose = 1

    def has_lost(self, count: int) -> bool:
        """Returns whether so many answers were lost."""
        return self.lost >= count

    async def _serve(self, is_ready: threading.Event) -> None:
        ending = asyncio.Event()
        self._end = partial(asyncio.get_running_loop().call_soon_threadsafe, ending.set)
        async with await asyncio.start_server(self._connect, LOOPBACK, self.port):
            is_ready.set()
            await ending.wait()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(LOOPBACK, self._server_port)
        connection = _Connection()
        sending = asyncio.ensure_future(self._send(reader, back, connection))
        try:
            with contextlib.suppress(ConnectionError):
                while chunk := await there.read(_CHUNK_BYTES):
                    if connection.is_committing and self._to_lose:
                        self._to_lose, self.lost = 0, self.lost + 1
                        break
                    writer.write(chunk)
                    await writer.drain()
        finally:
            sending.cancel()
            writer.transport.abort()
            back.transport.abort()

    async def _send(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, connection: _Connection
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(_CHUNK_BYTES):
                connection.see(chunk)
                back.write(chunk)
                await back.drain()
        back.close()


class _Connection:
    """What a client has sent on one connection.

    Attributes:
        is_committing: the newest message commits a table.
    """

    def __init__(self) -> None:
        self.is_committing = False
        self._is_in_transaction = self._has_updated = False

    def see(self, chunk: bytes) -> None:
        if b"BEGIN" in chunk:
            self._is_in_transaction = True
        self._has_updated |= _UPDATE in chunk
        ends = b"COMMIT" in chunk or b"ROLLBACK" in chunk
        self.is_committing = self._has_updated and (
            b"COMMIT" in chunk or not self._is_in_transaction
        )
        if ends or not self._is_in_transaction:
            self._is_in_transaction = self._has_updated = False
