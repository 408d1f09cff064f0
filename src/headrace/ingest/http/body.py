"""Reads the body of a request, within limits as it streams in and as it is decoded."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import zstandard

from headrace.ingest.http.budget import BudgetShare
from headrace.ingest.http.deadlines import Deadlines
from headrace.ingest.http.problem import CLOSE, RefusedRequestError, refused

Receive = Callable[[], Awaitable[dict[str, Any]]]

_STEP_BYTES = 65_536  # below it the ratio does not count: a short text may compress very well
_MAX_ZSTD_WINDOW = 8 * 1024 * 1024  # memory that a frame may ask the decoder for
# A block of zstd takes 4 bytes at least and becomes 128 KiB at most, and there is no other bound.
_ZSTD_STEP_BYTES = 256
_FIRST_STEP_BYTES = 512
_MAX_PARTS = 1000
_OFF_LOOP_BYTES = 32_768  # below it, waking a thread takes longer than decoding
_SHOWN_CHARACTERS = 80


class ClientGoneError(Exception):
    """The client closed the connection before its body was there."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """What a body may cost.

    Attributes:
        sent_bytes: bytes as they are sent.
        decoded_bytes: bytes once they are decoded.
        ratio: decoded bytes for each byte that is sent.
        seconds: time for the whole body.
    """

    sent_bytes: int
    decoded_bytes: int
    ratio: int
    seconds: float


class BodyReader:
    """Reads bodies within their limits. The ratio counts beyond the first 64 KiB decoded."""

    def __init__(self, limits: BodyLimits, threads: ThreadPoolExecutor) -> None:
        """Large bodies are decoded by ``threads``."""
        self._limits, self._deadlines = limits, Deadlines()
        self._threads = threads

    async def read(self, receive: Receive, length: str, encoding: str, share: BudgetShare) -> bytes:
        """Returns the decoded body.

        Args:
            receive: ASGI's.
            length: the Content-Length header; empty without one.
            encoding: the Content-Encoding header; empty, ``identity``, ``gzip`` or ``zstd``.
            share: of the worker's memory; what the body takes of it is held until it is closed.

        Raises:
            RefusedRequestError: 408, 413, 415, 400, or 503 when the worker's memory is used up.
            ClientGoneError: if the client closed the connection.
        """
        decode = _decoder(encoding)
        expected = int(length) if length.isdigit() else None
        # Refused by its header, before anything is read.
        if expected is not None and expected > self._limits.sent_bytes:
            raise _too_large(self._limits)
        sent = await self._receive_in_time(receive, expected, share)
        if decode is None:
            return sent
        decoding = _Decoding(decode, self._limits, share)
        if len(sent) < _OFF_LOOP_BYTES:
            body = decoding(sent)
        else:
            loop = self._deadlines.loop
            body = await loop.run_in_executor(self._threads, decoding, sent)
        # The sent bytes are decoded, and no longer held.
        share.release(len(sent))
        return body

    async def _receive_in_time(
        self, receive: Receive, expected: int | None, share: BudgetShare
    ) -> bytes:
        reading = asyncio.current_task(self._deadlines.loop)
        if reading is None:
            raise RuntimeError("a body is read by a task")
        is_late = False

        def expire() -> None:
            nonlocal is_late
            is_late = reading.cancel()

        self._deadlines.begin(reading, self._limits.seconds, expire)
        try:
            return await _receive_all(receive, expected, self._limits, share)
        except asyncio.CancelledError:
            # A cancellation from outside, alone or beside the timeout, must not become an answer.
            if not is_late or reading.uncancel():
                raise
            detail = f"the body was not there after {self._limits.seconds:g} s"
            raise refused(HTTPStatus.REQUEST_TIMEOUT, "body-too-slow", detail, CLOSE) from None
        finally:
            self._deadlines.end(reading)


async def _receive_all(
    receive: Receive, expected: int | None, limits: BodyLimits, share: BudgetShare
) -> bytes:
    """Receives up to the last byte: a server may send an empty message after it."""
    message = await receive()
    first: bytes = message.get("body", b"")
    # Most bodies come in one message, and need no copy.
    if message["type"] == "http.request" and _is_last(message, len(first), expected):
        _check_size(len(first), limits)
        share.received(len(first))
        return first
    body = bytearray()
    while message["type"] != "http.disconnect":
        piece: bytes = message.get("body", b"")
        _check_size(len(body) + len(piece), limits)
        share.received(len(piece))
        body += piece
        if _is_last(message, len(body), expected):
            return bytes(body)
        message = await receive()
    raise ClientGoneError


def _is_last(message: Mapping[str, Any], size: int, expected: int | None) -> bool:
    return size == expected or not message.get("more_body")


def _check_size(size: int, limits: BodyLimits) -> None:
    if size > limits.sent_bytes:
        raise _too_large(limits)


def _too_large(limits: BodyLimits) -> RefusedRequestError:
    return refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body-too-large",
        f"the body is larger than {limits.sent_bytes} bytes (ingest.max_body_bytes); send fewer "
        "events in a request",
    )


Decode = Callable[[bytes], Iterator[bytes]]


def _decoder(encoding: str) -> Decode | None:
    known: dict[str, Decode | None] = {
        "": None,
        "identity": None,
        "gzip": _gunzip,
        "x-gzip": _gunzip,
        "zstd": _unzstd,
    }
    try:
        return known[encoding.strip().lower()]
    except KeyError:
        raise refused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unknown-encoding",
            f"Content-Encoding is {encoding[:_SHOWN_CHARACTERS]!r}, "
            "expected one of identity, gzip, zstd",
            (b"accept-encoding", b"identity, gzip, zstd"),
        ) from None


class _Decoding:
    """Decodes a body within the limits and the worker's memory, on any thread."""

    def __init__(self, decode: Decode, limits: BodyLimits, share: BudgetShare) -> None:
        self._decode, self._limits, self._share = decode, limits, share

    def __call__(self, sent: bytes) -> bytes:
        max_bytes = min(
            self._limits.decoded_bytes, max(_STEP_BYTES, self._limits.ratio * len(sent))
        )
        body = bytearray()
        try:
            for piece in self._decode(sent):
                if len(body) + len(piece) > max_bytes:
                    raise refused(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        "decoded-body-too-large",
                        f"the decoded body is larger than {self._limits.decoded_bytes} bytes "
                        f"(ingest.max_decoded_bytes), or than {self._limits.ratio} times what was "
                        "sent (ingest.max_ratio)",
                    )
                self._share.hold(len(piece))
                body += piece
        except (zlib.error, zstandard.ZstdError, EOFError) as error:
            raise refused(
                HTTPStatus.BAD_REQUEST,
                "undecodable-body",
                f"the body is not what Content-Encoding says: {error}",
            ) from error
        return bytes(body)


def _gunzip(sent: bytes) -> Iterator[bytes]:
    """Decodes gzip members in a row.

    Each member is handed little input at first, which doubles: what is after its end is handed
    to the next one, so that at most three bytes are copied for each that is sent.
    """
    view, place = memoryview(sent), 0
    for _ in _numbered("gzip members"):
        member, step = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), _FIRST_STEP_BYTES
        while not member.eof:
            piece = view[place : place + step]
            if not piece:
                raise EOFError("it is cut off")
            place += len(piece)
            yield member.decompress(piece, _STEP_BYTES)
            while member.unconsumed_tail:
                yield member.decompress(member.unconsumed_tail, _STEP_BYTES)
            step = min(2 * step, _STEP_BYTES)
        # What follows the member is handed to the next one.
        place -= len(member.unused_data)
        if place == len(view):
            return


def _unzstd(sent: bytes) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_ZSTD_WINDOW)
    view, place = memoryview(sent), 0
    for _ in _numbered("zstd frames"):
        frame = decompressor.decompressobj()
        while not frame.eof:
            piece = view[place : place + _ZSTD_STEP_BYTES]
            if not piece:
                raise EOFError("it is cut off")
            place += len(piece)
            yield frame.decompress(piece)
        place -= len(frame.unused_data)
        if place == len(view):
            return


def _numbered(parts: str) -> Iterator[int]:
    """Counts the parts of a body up to a limit: each costs a decoder, however few bytes it has."""
    yield from range(_MAX_PARTS)
    raise EOFError(f"it has more than {_MAX_PARTS} {parts}; compress it as one")
