"""One node of OpenSearch, by the runner that puts it into a JVM without an installation."""

from __future__ import annotations

import http.client
import json
import random
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from bench.peers.java_program import Program, peer_jars
from bench.peers.programs import check_running, end, started
from headrace.runtime.java.installation import Java
from headrace.runtime.servers.ports import LOOPBACK, is_free

_RUNNER = "org.codelibs.opensearch.runner.OpenSearchRunner"
OPTIONS = ("-XX:+UseG1GC",)  # as its own configuration has it
# The runner listens on the port after the one that it is told, and refuses those above.
_PORTS = range(9_201, 9_300)
_READY_SECONDS = 180.0
_LOOK_SECONDS = 0.1
_CALL_SECONDS = 300.0


def prepare(java: Java) -> Program:
    """Fetches OpenSearch."""
    return Program(java, tuple(peer_jars("opensearch", java)), _RUNNER, OPTIONS)


class Node:
    """A running node with empty disks, and its REST interface.

    Args:
        program: OpenSearch.
        home: its folder.
        heap_mb: its heap.
    """

    def __init__(self, program: Program, home: Path, heap_mb: int) -> None:
        free = (port for port in random.sample(_PORTS, len(_PORTS)) if is_free(port))
        self._port = next(free)
        told = {
            "-basePath": home / "node",
            "-numOfNode": 1,
            "-clusterName": "bench",
            "-baseHttpPort": self._port - 1,
        }
        arguments = (str(word) for pair in told.items() for word in pair)
        command = program.command(home, heap_mb, *arguments)
        self._process = started(command, log=home / "opensearch.log")
        self._await_ready()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def url(self) -> str:
        """Of its REST interface."""
        return f"http://{LOOPBACK}:{self._port}"

    def check(self) -> None:
        """Raises RuntimeError when it has ended."""
        check_running(self._process)

    def stop(self) -> None:
        """Ends it."""
        end(self._process)

    def client(self) -> Client:
        """A connection to it, for one thread."""
        return Client(self._port)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            self.check()
            with suppress(OSError):
                self.client().call("GET", "/_cluster/health?wait_for_status=yellow")
                return
            time.sleep(_LOOK_SECONDS)
        raise RuntimeError(f"OpenSearch was not ready in {_READY_SECONDS:g} s")


class Client:
    """A connection to a node."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_CALL_SECONDS)

    def call(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Returns the answer to a request with a body of JSON, or of JSON lines.

        Raises:
            RuntimeError: if it is an error; quotes it.
        """
        headers = {"Content-Type": "application/json"}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            quoted = content[:1000].decode(errors="replace")
            raise RuntimeError(f"{method} {path}: {answer.status}: {quoted}")
        return json.loads(content)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()
