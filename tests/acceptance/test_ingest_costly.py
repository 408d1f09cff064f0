"""One request of each costly kind against a live service, and what its neighbours notice."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Self

import httpx
import pytest
import zstandard
from tests.integration.service import Service, bearer
from tests.waiting import wait_for

pytestmark = pytest.mark.drill

DECODED_BYTES = 9_500_000
SETTINGS = "max_connections = 200"


@dataclass(frozen=True)
class Costly:
    """A body, how it is sent, and what it gets."""

    body: bytes
    status: int
    headers: dict[str, str] = field(default_factory=dict)


def packed(text: bytes) -> bytes:
    """Gzip that stays below the ratio: a flush for each kilobyte keeps it from being small."""
    packer = zlib.compressobj(9, wbits=31)
    pieces = []
    for start in range(0, len(text), 1000):
        pieces += [packer.compress(text[start : start + 1000]), packer.flush(zlib.Z_SYNC_FLUSH)]
    return b"".join([*pieces, packer.flush()])


def repeated(text: bytes, between: bytes = b"") -> bytes:
    return between.join([text] * (DECODED_BYTES // len(text + between)))


def wide(key: bytes) -> bytes:
    """A legal structure: a key over an array of many elements; its message is of a wrong type."""
    return b'{"message":1,"' + key + b'":[' + b"1," * 400_000 + b"1]}"


GZIP, ZSTD = {"content_encoding": "gzip"}, {"content_encoding": "zstd"}
LINES = GZIP | {"content_type": "application/x-ndjson"}


def kinds() -> dict[str, Costly]:
    return {
        "key-over-array": Costly(
            packed(b"[" + repeated(wide(b"k" * 60_000), b",") + b"]"), 400, GZIP
        ),
        "longer-key-over-array": Costly(
            packed(b"[" + repeated(wide(b"k" * 400_000), b",") + b"]"), 400, GZIP
        ),
        "repeated-long-key": Costly(
            packed(
                b"["
                + repeated(b'{"' + b"\x7f" * 400_000 + b'":1,"' + b"\x7f" * 400_000 + b'":2}', b",")
                + b"]"
            ),
            400,
            GZIP,
        ),
        "numbers": Costly(packed(b"[" + repeated(b"11", b",") + b"]"), 413, GZIP),
        "texts": Costly(packed(b"[" + repeated(b'""', b",") + b"]"), 413, GZIP),
        "wrong-end": Costly(packed(b"[" + repeated(b"[]", b",") + b",x]"), 413, GZIP),
        "not-json-at-the-end": Costly(packed(b"[[" + repeated(b"[]", b",") + b"],x]"), 400, GZIP),
        "lines": Costly(packed(repeated(b"1\n")), 413, LINES),
        "blank-lines": Costly(packed(repeated(b"\n")), 400, LINES),
        "one-large-event": Costly(
            packed(b'{"message":"' + repeated(b"x" * 100) + b'"}'), 413, GZIP
        ),
        "gzip-members": Costly(gzip.compress(b"") * 45_000, 400, GZIP),
        "zstd-frames": Costly(zstandard.compress(b"") * 100_000, 400, ZSTD),
        "skippable-frames": Costly(b"\x50\x2a\x4d\x18\0\0\0\0" * 120_000, 400, ZSTD),
        "bomb": Costly(gzip.compress(bytes(1 << 25)), 413, GZIP),
    }


def text() -> str:
    now = datetime.now(UTC).isoformat()
    return json.dumps({"event_id": uuid.uuid4().hex, "at": now, "message": "hello"})


class Neighbour:
    """Sends one event after the other over one connection, and remembers the answers."""

    def __init__(self, service: Service, token: str) -> None:
        self._url = f"{service.url}/v1/topics/occurrences{service.suffix}/events"
        self._headers = bearer(token) | {"content-type": "application/json"}
        self.statuses: list[int] = []
        self.seconds: list[float] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(headers=self._headers, timeout=60) as client:
            while not self._ending.is_set():
                began = time.monotonic()
                self.statuses.append(client.post(self._url, content=text()).status_code)
                self.seconds.append(time.monotonic() - began)

    def wait_for(self, more: int) -> None:
        wanted = len(self.statuses) + more

        def are_there() -> bool:
            assert self._thread.is_alive()
            return len(self.statuses) >= wanted

        wait_for(are_there)

    def p99_ms(self, since: int) -> float:
        times = sorted(self.seconds[since:])
        return round(1000 * times[int(0.99 * (len(times) - 1))], 1)


@pytest.fixture(scope="module")
def service(tmp_path_factory, broker) -> Iterator[Service]:
    """A service with one worker: costly requests and their neighbours share its event loop."""
    folder, suffix = tmp_path_factory.mktemp("costly"), f"-{uuid.uuid4().hex[:6]}"
    made = Service(folder, broker.bootstrap_servers, suffix, SETTINGS)
    file = folder / "headrace.toml"
    file.write_text(file.read_text().replace("workers = 2", "workers = 1"))
    made.command("apply")
    with made.running():
        yield made


def test_neighbours_of_costly_requests_are_answered(service, drill_run):
    """Each kind gets its own answer, and every neighbour's event is accepted meanwhile.

    A neighbour that waited longer than the service's deadline would get a 503.
    """
    token, rounds, costly_ones = service.token(), drill_run.size(short=2, long=20), kinds()
    figures: dict[str, float] = {}
    with Neighbour(service, token) as neighbour:
        neighbour.wait_for(20)
        figures["alone"] = neighbour.p99_ms(0)
        for kind, costly in costly_ones.items():
            since = len(neighbour.statuses)
            for _ in range(rounds):
                answer = service.post("occurrences", token, costly.body, **costly.headers)
                assert answer.status_code == costly.status, (kind, answer.text[:500])
                assert len(answer.content) < 100_000, kind
                neighbour.wait_for(2)
            figures[kind] = neighbour.p99_ms(since)
        with silent_readers(service, drill_run.size(short=50, long=150)):
            since = len(neighbour.statuses)
            neighbour.wait_for(drill_run.size(short=20, long=500))
            figures["silent-readers"] = neighbour.p99_ms(since)
    assert set(neighbour.statuses) == {202}
    drill_run.report(requests=rounds * len(costly_ones), p99_ms_of_neighbours=figures)


@contextlib.contextmanager
def silent_readers(service: Service, count: int) -> Iterator[None]:
    """Connections that ask for many answers without a token, and never read one.

    The service closes each after its first answer.
    """
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", service.port)))
            for _ in range(count)
        ]
        for one in clients:
            one.sendall(b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n" * 50)
        yield
        for one in clients:
            assert _answers(one) == 1


def _answers(client: socket.socket) -> int:
    client.settimeout(60)
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(65_536):
            found += piece
    return found.count(b"HTTP/1.1 200 ")
