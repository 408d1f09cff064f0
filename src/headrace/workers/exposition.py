"""Metrics of instances over HTTP, as Prometheus reads them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from headrace.metrics import PARTITION_METRICS, WORKER_METRICS, Metric
from headrace.runtime.ports import require_free
from headrace.workers.flow import PauseReason
from headrace.workers.progress import PartitionProgress, Seen, WorkerProgress
from headrace.workers.states import InstanceState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATE = "headrace_worker_state"
_PREFIX, _PARTITION_PREFIX = "headrace_worker_", "headrace_worker_partition_"

Sample = tuple[Mapping[str, str], float]


def exposition(instances: Sequence[Seen]) -> str:
    """The text: every metric, each of the instances, and of their partitions with their labels."""
    lines: list[str] = []
    for metric in WORKER_METRICS:
        whole = [(_who(one), getattr(one, metric.name)) for one, _ in instances]
        lines += _lines(_PREFIX, metric, whole)
    for metric in PARTITION_METRICS:
        samples = (
            sample
            for one, partitions in instances
            for partition in partitions
            for sample in _samples(metric, partition, _who(one))
        )
        lines += _lines(_PARTITION_PREFIX, metric, samples)
    lines += [f"# HELP {STATE} the state of the instance: 1 for it", f"# TYPE {STATE} gauge"]
    for one, _ in instances:
        for state in InstanceState:
            labels = {**_who(one), "state": str(state)}
            lines.append(f"{STATE}{_labels(labels)} {int(state is one.state)}")
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def serving(host: str, port: int | None) -> Iterator[MetricsServer | None]:
    """A server for as long as the context lasts; none without a port.

    Raises:
        ServerStartError: the port is taken.
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
    """Answers ``GET /metrics`` with the newest of what it is told, on threads of its own.

    Args:
        host: to listen on.
        port: to listen on; 0: one that is free.
    """

    def __init__(self, host: str, port: int) -> None:
        self._text = b""
        self._server = ThreadingHTTPServer((host, port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """It listens on this one."""
        return int(self._server.server_address[1])

    def observe(self, instances: Sequence[Seen]) -> None:
        """What is answered from now on."""
        self._text = exposition(instances).encode()

    def close(self) -> None:
        """Answers no longer."""
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
                text = server._text
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Requests are no news."""

        return Handler


def _who(one: WorkerProgress) -> dict[str, str]:
    return {"worker": one.worker, "instance": one.instance}


def _samples(metric: Metric, part: PartitionProgress, who: Mapping[str, str]) -> Iterator[Sample]:
    labels = {**who, "topic": part.topic, "partition": str(part.partition)}
    if metric.name == "paused":
        for reason in PauseReason:
            yield labels | {"reason": str(reason)}, reason in part.paused
    elif metric.name == "processing_timestamp_seconds":
        yield labels, part.processing_timestamp_ms / 1000
    else:
        yield labels, getattr(part, metric.name)


def _lines(prefix: str, metric: Metric, samples: Iterable[Sample]) -> Iterator[str]:
    name = f"{prefix}{metric.name}{'_total' if metric.grows else ''}"
    yield f"# HELP {name} {metric.meaning}"
    yield f"# TYPE {name} {'counter' if metric.grows else 'gauge'}"
    for labels, value in samples:
        yield f"{name}{_labels(labels)} {_number(value)}"


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if int(value) == value else f"{value:.3f}"
