"""Metrics over HTTP, in the text format that Prometheus reads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headrace.metrics import Metric
from headrace.runtime.servers.ports import require_free

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float]


def metric_lines(prefix: str, metric: Metric, samples: Iterable[Sample]) -> Iterator[str]:
    """The lines of a metric named ``prefix`` and its name; counts end in ``_total``."""
    name = f"{prefix}{metric.name}{'_total' if metric.is_counter else ''}"
    yield _help(name, metric.meaning)
    yield f"# TYPE {name} {'counter' if metric.is_counter else 'gauge'}"
    for labels, value in samples:
        number = str(int(value)) if int(value) == value else f"{value:.3f}"
        yield f"{name}{_labels(labels)} {number}"


def state_lines(
    name: str,
    meaning: str,
    states: Iterable[str],
    samples: Sequence[tuple[Mapping[str, str], str]],
) -> Iterator[str]:
    """The lines of a gauge that is 1 for the state that each sample is in, and 0 for others."""
    every = list(states)
    yield _help(name, meaning)
    yield f"# TYPE {name} gauge"
    for labels, current in samples:
        for state in every:
            yield f"{name}{_labels({**labels, 'state': state})} {int(state == current)}"


def _help(name: str, meaning: str) -> str:
    escaped_meaning = meaning.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {escaped_meaning}"


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def escaped(text: str) -> str:
    """Returns the value of a label as it stands between its quotes."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@contextlib.contextmanager
def serving(host: str, port: int | None) -> Iterator[MetricsServer | None]:
    """A server for as long as the context lasts; none without a port.

    Raises:
        ServerStartError: if the port is taken.
    """
    if port is None:
        yield None
        return
    require_free("metrics", [port])
    server = MetricsServer(host, port)
    try:
        yield server
    finally:
        server.close()


class MetricsServer:
    """Answers ``GET /metrics`` with the text published last, on threads of its own.

    Args:
        host: to listen on.
        port: to listen on; 0: one that is free.
    """

    def __init__(self, host: str, port: int) -> None:
        self._text = b""
        self._server = ThreadingHTTPServer((host, port), self._handler())
        # A scraper that holds its connection must not keep the process from ending.
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.server_address[1])

    def publish(self, text: str) -> None:
        """Sets the text that is answered from now on."""
        self._text = text.encode()

    def close(self) -> None:
        """Stops answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(HTTPStatus.NOT_FOUND)
                    return
                # Read once: another text may be published between the header and the body.
                text = server._text
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Logs nothing: scrapes are routine."""

        return Handler
