"""The way of all clients to the brokers, which can be cut off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

from headrace.runtime.servers.ports import LOOPBACK

_CHUNK_BYTES = 64 * 1024
_START_SECONDS = 10.0


class ClientLink:
    """Passes connections to ports of this machine on to other ones, on a thread of its own.

    While it is cut, open connections are reset, and so is each new one.

    Args:
        ports: by the port that clients connect to, that of the broker.
    """

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = ports
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="drill-link")
        self._transports: set[asyncio.WriteTransport] = set()
        self._servers: list[asyncio.Server] = []
        self._is_cut = False

    def start(self) -> None:
        """Returns once it listens."""
        self._thread.start()
        self._call(self._listen())

    def stop(self) -> None:
        """Ends all connections, and the thread."""
        if self._thread.is_alive():
            with suppress(TimeoutError):
                self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def cut(self) -> int:
        """Cuts all clients off, and returns how many connections they had."""
        connections: int = self._call(self._cut())
        return connections

    def restore(self) -> None:
        """Lets clients connect again."""
        self._is_cut = False

    def _call(self, action: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(_START_SECONDS)

    async def _listen(self) -> None:
        for port in self._ports:
            self._servers.append(await asyncio.start_server(self._connected, LOOPBACK, port))

    async def _cut(self) -> int:
        self._is_cut = True
        count = len(self._transports) // 2
        for transport in self._transports:
            transport.abort()
        return count

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, port = writer.get_extra_info("sockname")
        try:
            if self._is_cut:
                raise ConnectionRefusedError
            to_reader, to_writer = await asyncio.open_connection(LOOPBACK, self._ports[port])
        except OSError:
            writer.transport.abort()
            return
        transports = {writer.transport, to_writer.transport}
        self._transports |= transports
        ways = [
            asyncio.ensure_future(_pass_on(reader, to_writer)),
            asyncio.ensure_future(_pass_on(to_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for transport in transports:
                transport.abort()
            self._transports -= transports
        await asyncio.wait(ways)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError, asyncio.CancelledError):
        while content := await reader.read(_CHUNK_BYTES):
            writer.write(content)
            await writer.drain()
