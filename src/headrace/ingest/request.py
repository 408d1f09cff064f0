"""One HTTP request's headers, and answers, in ASGI's terms."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import msgspec

from headrace.ingest.problem import CLOSE, PROBLEM_JSON, RefusedRequestError, refused

Scope = Mapping[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

_ONLY_ONCE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"transfer-encoding",
    }
)
_SHOWN_CHARACTERS = 80
_JSON: Header = (b"content-type", b"application/json")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_REQUEST_ID_BITS = 64
_encode = msgspec.json.encode


def headers_of(scope: Scope, most_bytes: int) -> dict[bytes, str]:
    """The headers by lower-case name.

    Raises:
        RefusedRequestError: 431 beyond ``most_bytes``; 400 when one that counts is repeated, or
            when the body is coded on its way in another manner than in chunks.
    """
    found: dict[bytes, str] = {}
    size = 0
    for name, value in scope["headers"]:
        size += len(name) + len(value) + 4
        if name in found and name in _ONLY_ONCE:
            raise refused(
                HTTPStatus.BAD_REQUEST,
                "repeated-header",
                f"header {name.decode('latin-1')} is there more than once",
            )
        found[name] = value.decode("latin-1")
    if size > most_bytes:
        raise refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers-too-large",
            f"the headers are {size} bytes, expected at most {most_bytes}",
        )
    _check_transfer(found.get(b"transfer-encoding", "chunked"))
    return found


def _check_transfer(encoding: str) -> None:
    # A proxy might decode what the server passes on as it came: two readings of one request.
    if encoding.strip().lower() != "chunked":
        raise refused(
            HTTPStatus.BAD_REQUEST,
            "unknown-transfer-encoding",
            f"Transfer-Encoding is {encoding[:_SHOWN_CHARACTERS]!r}, expected chunked",
        )


def request_id_of(scope: Scope) -> str:
    """The client's X-Request-Id if it is short and plain, otherwise a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return f"{random.getrandbits(_REQUEST_ID_BITS):016x}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets."""

    status: int
    body: bytes
    headers: tuple[Header, ...] = (_JSON,)

    def closing(self) -> Answer:
        """The answer, after which the connection is closed."""
        return replace(self, headers=(*self.headers, CLOSE))

    async def send(self, send: Send, *headers: Header) -> None:
        """Give it to the server, with ``headers`` beside its own."""
        length = (b"content-length", str(len(self.body)).encode())
        await send(
            {
                "type": "http.response.start",
                "status": self.status,
                "headers": [*self.headers, *headers, length],
            }
        )
        await send({"type": "http.response.body", "body": self.body})


def json_answer(status: int, document: Any, *headers: Header) -> Answer:
    """An answer in JSON."""
    return Answer(status, _encode(document), (_JSON, *headers))


def problem_answer(error: RefusedRequestError, **members: Any) -> Answer:
    """A problem document; with the problems of single events under ``refused``.

    ``members`` are further ones, such as ``instance``, the URI of this very occurrence.
    """
    document = error.problem.document() | members
    if error.refused:
        document["refused"] = [one.document() for one in error.refused]
    return Answer(
        error.problem.status,
        _encode(document),
        ((b"content-type", PROBLEM_JSON), *error.headers),
    )


def text_answer(lines: Iterable[str]) -> Answer:
    """Plain text in Prometheus' exposition format."""
    text = "".join(line + "\n" for line in lines)
    return Answer(HTTPStatus.OK, text.encode(), ((b"content-type", b"text/plain; version=0.0.4"),))
