"""An HTTP request and its answer, in ASGI's terms."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Protocol

import msgspec

from headrace.ingest.http.body import Receive
from headrace.ingest.http.problem import CLOSE, PROBLEM_JSON, RefusedRequestError, refused
from headrace.ingest.tokens.token import Token

Scope = Mapping[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

_ONLY_ONCE = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"origin",
        b"transfer-encoding",
    }
)
_SHOWN_CHARACTERS = 80
_JSON: Header = (b"content-type", b"application/json")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_REQUEST_ID_BITS = 64
_encode = msgspec.json.encode


class Request:
    """One HTTP request.

    Attributes:
        receive: ASGI's, for the body.
        method: its method, in capital letters.
        path: without the query.
        headers: values by lower-case name; of a header that is repeated, the last value.
        id: the client's X-Request-Id if it is short and plain, otherwise a new one.
        origin: of the web page that sent it; ``None`` where no browser did.
        token: who sends it, once that is known.
        topic: where its events go, once that is known.
        received_bytes: of its body.
        accepted: events that are in Kafka or in the spool.
        rejected: events that are not taken.
    """

    # Defaults of the class, so that a request only pays for what it sets.
    token: Token | None = None
    topic = ""
    received_bytes = accepted = rejected = 0

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._scope, self.receive = scope, receive
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.id = _request_id(self.headers.get(b"x-request-id"))
        self.origin = self.headers.get(b"origin")

    @property
    def query(self) -> bytes:
        """The query of the address, as it was sent."""
        query: bytes = self._scope["query_string"]
        return query

    @property
    def peer(self) -> str:
        """The address of the other end of the connection; that of the proxy where there is one."""
        client = self._scope.get("client")
        return str(client[0]) if client else ""

    @property
    def uri(self) -> str:
        """The URI that names this request in problems."""
        return f"urn:headrace:request:{self.id}"

    def header(self, name: bytes) -> str:
        """Returns the value of a header by its lower-case name; "" without one."""
        return self.headers.get(name, b"").decode("latin-1")

    def check_headers(self, max_bytes: int) -> None:
        """Refuses headers that are too large, or ambiguous.

        Raises:
            RefusedRequestError: 431 beyond ``max_bytes``; 400 when one that counts is repeated, or
                when the transfer coding of the body is not chunked.
        """
        pairs = self._scope["headers"]
        # The dictionary is summed up faster than the pairs, and lacks only repeated headers.
        size = sum(map(len, self.headers)) + sum(map(len, self.headers.values())) + 4 * len(pairs)
        if len(self.headers) < len(pairs):
            _check_repeated(pairs)
            size = sum(len(name) + len(value) + 4 for name, value in pairs)
        if size > max_bytes:
            raise refused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                "headers-too-large",
                f"the headers are {size} bytes, expected at most {max_bytes}",
            )
        encoding = self.headers.get(b"transfer-encoding")
        # A proxy might decode what the server passes on as it came: two readings of one request.
        if encoding is not None and encoding.strip().lower() != b"chunked":
            shown = encoding[:_SHOWN_CHARACTERS].decode("latin-1")
            raise refused(
                HTTPStatus.BAD_REQUEST,
                "unknown-transfer-encoding",
                f"Transfer-Encoding is {shown!r}, expected chunked",
            )


def _check_repeated(pairs: Iterable[Header]) -> None:
    counts = Counter(name for name, _ in pairs)
    for name in _ONLY_ONCE:
        if counts[name] > 1:
            raise refused(
                HTTPStatus.BAD_REQUEST,
                "repeated-header",
                f"header {name.decode('latin-1')} is there more than once",
            )


def _request_id(from_client: bytes | None) -> str:
    if from_client is not None and _REQUEST_ID.fullmatch(from_client):
        return str(from_client, "ascii")
    return f"{random.getrandbits(_REQUEST_ID_BITS):016x}"


def require_method(request: Request, *methods: str) -> None:
    """Refuses a request whose method is not one of these.

    Raises:
        RefusedRequestError: 405.
    """
    if request.method not in methods:
        raise refused(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "method-not-allowed",
            f"the method is {request.method[:_SHOWN_CHARACTERS]}, expected {' or '.join(methods)}",
            (b"allow", ", ".join(methods).encode()),
        )


class Sendable(Protocol):
    """What answers a request."""

    @property
    def status(self) -> int:
        """Returns the status, which is known before anything is sent."""
        ...

    async def send(self, send: Send, *headers: Header) -> None:
        """Gives the answer to the server, with ``headers`` beside its own."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is sent as a whole."""

    status: int
    body: bytes
    headers: tuple[Header, ...] = (_JSON,)

    def closing(self) -> Answer:
        """Returns the answer with the header after which the connection is closed."""
        return replace(self, headers=(*self.headers, CLOSE))

    async def send(self, send: Send, *headers: Header) -> None:
        """Gives the answer to the server, with ``headers`` beside its own."""
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
    """Returns an answer in JSON."""
    return Answer(status, _encode(document), (_JSON, *headers))


def problem_answer(error: RefusedRequestError, **members: Any) -> Answer:
    """Returns a problem document, with the problems of single events under ``rejected``.

    ``members`` are further ones, such as ``instance``, the URI of this very occurrence.
    """
    document = {**error.problem.document(), **error.members, **members}
    if error.rejected:
        document["rejected"] = [problem.document() for problem in error.rejected]
    return Answer(
        error.problem.status,
        _encode(document),
        ((b"content-type", PROBLEM_JSON), *error.headers),
    )


def text_answer(lines: Iterable[str]) -> Answer:
    """Returns plain text in Prometheus' exposition format."""
    text = "".join(line + "\n" for line in lines)
    return Answer(HTTPStatus.OK, text.encode(), ((b"content-type", b"text/plain; version=0.0.4"),))
