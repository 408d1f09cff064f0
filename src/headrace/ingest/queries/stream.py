"""Streams the results of a query as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus

from confluent_kafka import KafkaException

from headrace.errors import HeadraceError
from headrace.ingest.http.body import Receive
from headrace.ingest.http.request import Header, Send
from headrace.ingest.queries.backend import ResultCursor, ResultPage

_LOG = logging.getLogger("headrace.ingest")
HEARTBEAT_SECONDS = 15.0  # proxies close what is silent, nginx by default after a minute
_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # Without this header, nginx holds events back until its buffer is full.
    (b"x-accel-buffering", b"no"),
)


@dataclass(frozen=True)
class StreamTiming:
    """How long a stream waits.

    Attributes:
        poll_seconds: at the end of the results, the next read begins after this time.
        send_seconds: the stream ends if a client does not accept data for this time.
        end_seconds: the time to send the final message.
    """

    poll_seconds: float = 1.0
    send_seconds: float = 30.0
    end_seconds: float = 1.0


@dataclass(frozen=True)
class StreamLife:
    """The parts of the service that a stream needs.

    Attributes:
        threads: threads that read results.
        draining: event that is set when the service shuts down.
        is_allowed: returns whether the client's request would be allowed now; called before each
            read, and before each piece that is sent.
        ended: called once, when the stream has ended.
        timing: how long the stream waits.
    """

    threads: ThreadPoolExecutor
    draining: asyncio.Event
    is_allowed: Callable[[], bool]
    ended: Callable[[], None]
    timing: StreamTiming = StreamTiming()


class ResultStream:
    """A response that ends with the connection, the service, the registration, or the right to it.

    Each result is an event whose id is its offset in the topic. The first message and each
    heartbeat have the id of the last record that was read, so that a client resumes without a gap
    and without reading a record twice.

    While Kafka does not answer, the stream waits. Results are read only after the client has
    accepted the results before them, so a slow client may lag behind without a limit.

    Attributes:
        status: the status of the response.
        piece_bytes: the size of a piece. While a client is slow, memory holds its page of results
            and a few pieces in the server's buffer.
    """

    status = HTTPStatus.OK
    piece_bytes = 65_536

    def __init__(self, cursor: ResultCursor, receive: Receive, life: StreamLife) -> None:
        self._cursor, self._receive, self._life = cursor, receive, life
        self._sent_id = cursor.position - 1
        self._beat_at = 0.0

    async def send(self, send: Send, *headers: Header) -> None:
        """Sends the whole stream.

        Raises:
            TimeoutError: if the client does not take the headers within 30 s.
        """
        try:
            start = {
                "type": "http.response.start",
                "status": self.status,
                "headers": [*_HEADERS, *headers],
            }
            async with asyncio.timeout(self._life.timing.send_seconds):
                await send(start)
            await self._send_until_ended(send)
        finally:
            self._life.ended()

    async def _send_until_ended(self, send: Send) -> None:
        tasks = [
            asyncio.create_task(self._write(send)),
            asyncio.create_task(self._disconnected()),
            asyncio.create_task(self._life.draining.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(outcomes[0], Exception):
            _LOG.warning("A stream of results ended: %r", outcomes[0])
        # A client that reads nothing must not hold up the drain.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._life.timing.end_seconds):
                await send({"type": "http.response.body", "body": b""})

    async def _write(self, send: Send) -> None:
        await self._beat(send)
        while self._life.is_allowed():
            page = await self._next_page(send)
            for piece in _pieces(page, self.piece_bytes):
                if not self._life.is_allowed():
                    return
                await self._piece(send, piece)
            self._sent_id = page.position - 1
            if page.is_over:
                return
            if page.is_end:
                await asyncio.sleep(self._life.timing.poll_seconds)

    async def _next_page(self, send: Send) -> ResultPage:
        """Returns the next results; sends heartbeats while it waits for them."""
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._life.threads, self._read)
        while True:
            left = self._beat_at - loop.time()
            if left <= 0:
                await self._beat(send)
            # asyncio.wait, not wait_for: a heartbeat that is due must not cancel the read.
            elif (await asyncio.wait({reading}, timeout=left))[0]:
                return reading.result()

    def _read(self) -> ResultPage:
        try:
            return self._cursor.read()
        except (HeadraceError, KafkaException) as error:
            _LOG.warning("Cannot read results of a query for a stream, retrying: %s", error)
            return ResultPage((), self._cursor.position, is_end=True)

    async def _beat(self, send: Send) -> None:
        self._beat_at = asyncio.get_running_loop().time() + HEARTBEAT_SECONDS
        # An id without data is not dispatched as an event; the client keeps it for Last-Event-ID.
        await self._piece(send, f": heartbeat\nid: {self._sent_id}\n\n".encode())

    async def _piece(self, send: Send, piece: bytes) -> None:
        async with asyncio.timeout(self._life.timing.send_seconds):
            await send({"type": "http.response.body", "body": piece, "more_body": True})

    async def _disconnected(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _pieces(page: ResultPage, size: int) -> Iterator[bytes]:
    """Yields the page's events in pieces of about ``size`` bytes; no event is divided."""
    piece = bytearray()
    for offset, result in page.results:
        piece += b"id: %d\ndata: %b\n\n" % (offset, result)
        if len(piece) >= size:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)
