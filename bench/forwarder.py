"""A link between two sites that can be cut: a process that forwards TCP connections.

While it is cut, the process is frozen: connections stay open and nothing comes through, in either
direction, as where a router loses all packets. What was under way comes through afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.driver import SystemFailedError
from bench.peers.programs import check_running, end, started
from headrace.runtime.servers.ports import LOOPBACK, is_open

_CHUNK_BYTES = 256 * 1024
_START_SECONDS = 30.0


class Link:
    """The link of a running forwarder."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def cut(self) -> None:
        """Nothing comes through from now on."""
        self._process.send_signal(signal.SIGSTOP)

    def mend(self) -> None:
        """The end of :meth:`cut`; no-op where the link is not cut."""
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def linked(port: int, target_port: int) -> Iterator[Link]:
    """A link from one port of loopback to another one; gone when the block ends."""
    command = (sys.executable, "-m", "bench.forwarder", str(port), str(target_port))
    process = started(command)
    link = Link(process)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not is_open(port):
            check_running(process)
            if time.monotonic() > deadline:
                raise SystemFailedError(f"the forwarder is not ready after {_START_SECONDS:g} s")
            time.sleep(0.05)
        yield link
    finally:
        link.mend()  # a frozen process would not end
        end(process)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()


async def _serve(port: int, target_port: int) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(LOOPBACK, target_port)
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(_forward(reader, back), _forward(there, writer))

    server = await asyncio.start_server(connect, LOOPBACK, port)
    await server.serve_forever()


def main(given: Sequence[str]) -> None:
    """Forwards connections to the first port to the second one, until it is ended."""
    port, target_port = map(int, given)
    asyncio.run(_serve(port, target_port))


if __name__ == "__main__":
    main(sys.argv[1:])
