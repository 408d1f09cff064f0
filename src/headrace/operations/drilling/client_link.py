"""The way of all clients to the brokers, which can be cut off."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any

from headrace.runtime.servers.ports import LOOPBACK

_CHUNK_BYTES = 64 * 1024
_START_SECONDS = 10.0
_WITHOUT_GOODBYE = struct.pack("ii", 1, 0)
"""A socket that is closed so is reset, as if the other machine had failed."""


class ClientLink:
    """Passes connections to ports of this machine on to other ones, on a thread of its own.

    While it is cut, either open connections are reset, and so is each new one; or all of them stay
    open, and nothing comes through until it is restored, as where a router loses all packets.

    Args:
        ports: by the port that clients connect to, that of the broker.
    """

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = ports
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="drill-link", daemon=True
        )
        self._transports: set[asyncio.WriteTransport] = set()
        self._servers: list[asyncio.Server] = []
        self._resets, self._is_open = False, asyncio.Event()
        self._is_open.set()

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

    def cut(self, *, resets: bool) -> int:
        """Cuts all clients off, and returns how many connections they had."""
        connections: int = self._call(self._reset() if resets else self._hold())
        return connections

    def restore(self) -> None:
        """Lets clients reach the brokers again."""
        self._call(self._restore())

    def _call(self, action: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(_START_SECONDS)

    async def _listen(self) -> None:
        for port in self._ports:
            self._servers.append(await asyncio.start_server(self._connected, LOOPBACK, port))

    async def _reset(self) -> int:
        self._resets = True
        count = len(self._transports) // 2
        for transport in self._transports:
            _reset(transport)
        return count

    async def _hold(self) -> int:
        self._is_open.clear()
        return len(self._transports) // 2

    async def _restore(self) -> None:
        self._resets = False
        self._is_open.set()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        await self._reset()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, port = writer.get_extra_info("sockname")
        try:
            if self._resets:
                raise ConnectionRefusedError
            to_reader, to_writer = await asyncio.open_connection(LOOPBACK, self._ports[port])
        except OSError:
            _reset(writer.transport)
            return
        transports = {writer.transport, to_writer.transport}
        self._transports |= transports
        ways = [
            asyncio.ensure_future(self._pass_on(reader, to_writer)),
            asyncio.ensure_future(self._pass_on(to_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for transport in transports:
                _reset(transport)
            self._transports -= transports
        await asyncio.wait(ways)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while content := await reader.read(_CHUNK_BYTES):
                await self._is_open.wait()
                writer.write(content)
                await writer.drain()


def _reset(transport: asyncio.WriteTransport) -> None:
    if (connection := transport.get_extra_info("socket")) is not None:
        with suppress(OSError):  # it is closed
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _WITHOUT_GOODBYE)
    transport.abort()
