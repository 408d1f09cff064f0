"""Kafka Connect with Iceberg's sink: one standalone worker, one connector a run.

The table is made before each run (``java/connect``), in a catalog that is a folder; its snapshots
tell what is committed.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from bench.driver import OnCommit, WriteOnce
from bench.peers.java_program import LOG_JARS, Program, compiled, peer_jars, write_properties
from bench.peers.programs import BUILT, check_running, started
from bench.peers.progress import LOOK_SECONDS, follow
from bench.setup import Setup
from headrace.kafka.admin.topics import apply_changes, plan_topics
from headrace.kafka.client.clients import client_config
from headrace.model import Topic
from headrace.runtime.java.installation import Java
from headrace.runtime.java.spark_jars import spark_jar
from headrace.runtime.servers.ports import LOOPBACK, free_ports
from headrace.runtime.servers.process import child_environ
from headrace.settings.model import KafkaSettings

TABLE = "impressions"
FILES = "files.txt"
WORKER = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "consumer.auto.offset.reset": "earliest",
    "consumer.max.poll.records": "5000",
    "offset.flush.interval.ms": "1000",
    "plugin.discovery": "service_load",
}
SETTINGS = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "iceberg.catalog": "bench",
    "iceberg.catalog.type": "hadoop",
    # Else a task that comes to the control topic late lets the first commit wait for 30 s.
    "iceberg.kafka.auto.offset.reset": "earliest",
}
OPTIONS = ("-XX:+UseParallelGC",)
_HADOOP = ("hadoop-client-api", "hadoop-client-runtime", "jcl-over-slf4j")
_STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
_READY_SECONDS = 60.0


@dataclass(frozen=True)
class Connect:
    """The two programs, and the folder of the plugin's jars."""

    worker: Program
    table: Program
    plugins: Path


def prepare(java: Java) -> Connect:
    """Fetches Connect and the sink, compiles what creates the table.

    Raises:
        PeerMissingError: there is no compiler.
    """
    iceberg = [*peer_jars("iceberg", java), *map(spark_jar, _HADOOP)]
    classes = compiled("connect", iceberg, java)
    logging = [jar for jar in map(spark_jar, LOG_JARS) if "slf4j-api" not in jar.name]
    return Connect(
        worker_program(java),
        Program(java, (classes, *iceberg, *logging), "IcebergTable"),
        plugin_folder("iceberg", iceberg),
    )


def worker_program(java: Java) -> Program:
    """Kafka Connect's standalone worker, fetched."""
    return Program(java, tuple(peer_jars("connect", java)), _STANDALONE, OPTIONS)


def plugin_folder(name: str, jars: list[Path]) -> Path:
    """A worker's ``plugin.path`` with one plugin, of these jars."""
    plugins = BUILT / f"connect-plugins-{name}"
    shutil.rmtree(plugins, ignore_errors=True)
    sink = plugins / name
    sink.mkdir(parents=True)
    for jar in jars:
        (sink / jar.name).symlink_to(jar)
    return plugins


def open_kafka_connect(setup: Setup, *, connect: Connect) -> WriteOnce:
    """Starts the worker; the function returned runs one connector over the topic."""
    home = setup.logs / "kafka-connect"
    worker = Worker(setup, connect.worker, connect.plugins, home)

    def write_once(out: Path, on_commit: OnCommit) -> None:
        _told(connect.table, home, "create", out)
        control = Topic(f"control-{out.name}", partitions=1)
        apply_changes(client_config(KafkaSettings(), setup.bootstrap), plan_topics([control], {}))
        worker.add(out.name, connector(setup, out, control.name))
        follow(Snapshots(out).rows, setup.messages, on_commit, worker.check)
        worker.remove(out.name)
        (out / FILES).write_text(_told(connect.table, home, "files", out))

    return write_once


def _told(program: Program, home: Path, what: str, out: Path) -> str:
    """What the program says about the table of a run."""
    command = program.command(home / "table", 128, what, out.as_uri(), f"bench.{TABLE}")
    done = subprocess.run(
        command, env=child_environ(), stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def connector(setup: Setup, out: Path, control: str) -> dict[str, str]:
    """The configuration of one that writes into ``out``."""
    return SETTINGS | {
        "topics": setup.topic,
        "tasks.max": str(setup.threads),
        "iceberg.tables": f"bench.{TABLE}",
        "iceberg.catalog.warehouse": out.as_uri(),
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": str(setup.commit_every_ms),
    }


class Worker:
    """The running worker and its REST interface.

    Args:
        setup: its broker and its heap.
        program: the worker's.
        plugins: its ``plugin.path``.
        home: folder for its files.
        config: its own settings; ``None``: those of a standalone worker, :data:`WORKER`.
    """

    def __init__(
        self,
        setup: Setup,
        program: Program,
        plugins: Path,
        home: Path,
        config: Mapping[str, str] | None = None,
    ) -> None:
        home.mkdir(parents=True)
        port = free_ports(1)[0]
        self._call = partial(call, port)
        own = {
            "bootstrap.servers": setup.bootstrap,
            "listeners": f"http://{LOOPBACK}:{port}",
            "plugin.path": str(plugins),
        }
        standalone = WORKER | {"offset.storage.file.filename": str(home / "offsets")}
        file = write_properties(home / "worker.properties", config or standalone, own)
        command = program.command(home, setup.heap_mb, str(file))
        self._process = started(command)
        self._await(lambda: self._call("GET", "/connectors")[0] == HTTPStatus.OK)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def add(self, name: str, config: dict[str, str]) -> None:
        """Starts a connector. Raises RuntimeError when the worker refuses."""
        self._await(lambda: self._is_created(name, config))
        self._name = name

    def remove(self, name: str) -> None:
        """Ends a connector; returns when the worker no longer knows it."""
        self._await(lambda: self._is_gone(name))

    def check(self) -> None:
        """Raises RuntimeError when the worker has ended or one of the connector's tasks failed."""
        check_running(self._process)
        _, answer = self._call("GET", f"/connectors/{self._name}/status")
        for task in answer.get("tasks", ()):
            if task["state"] == "FAILED":
                raise RuntimeError(task["trace"])

    def _is_created(self, name: str, config: dict[str, str]) -> bool:
        status, answer = self._call("POST", "/connectors", {"name": name, "config": config})
        # A distributed worker takes nothing while its group rebalances.
        if status not in {HTTPStatus.CREATED, HTTPStatus.CONFLICT}:
            raise RuntimeError(f"the connector was refused: {answer}")
        return status == HTTPStatus.CREATED

    def _is_gone(self, name: str) -> bool:
        self._call("DELETE", f"/connectors/{name}")
        return self._call("GET", f"/connectors/{name}/status")[0] == HTTPStatus.NOT_FOUND

    def _await(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            check_running(self._process)
            with suppress(OSError, http.client.HTTPException, ValueError):
                if ready():
                    return
            time.sleep(LOOK_SECONDS)
        raise RuntimeError(f"Kafka Connect was not ready in {_READY_SECONDS:g} s")


def call(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Calls the REST interface of a worker; returns the status, and the JSON of the answer.

    Raises:
        OSError: if it does not answer within 30 s.
        http.client.HTTPException: if it ends meanwhile.
        ValueError: if the answer is no JSON.
    """
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=30)
    headers = {"Content-Type": "application/json"}
    try:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(content) if content else {}


class Snapshots:
    """The table of a run, whose newest metadata is read once."""

    def __init__(self, out: Path) -> None:
        self._folder = out / "bench" / TABLE / "metadata"
        self._version = ""
        self._rows = 0

    def rows(self) -> int:
        """The rows of its current snapshot."""
        newest = ""
        # A catalog that is a folder deletes this file before it puts the next one there.
        with suppress(FileNotFoundError):
            newest = (self._folder / "version-hint.text").read_text().strip()
        if newest not in ("", self._version):
            self._version, self._rows = newest, rows_of(self._folder / f"v{newest}.metadata.json")
        return self._rows


def rows_of(metadata: Path) -> int:
    """The rows of a table's current snapshot."""
    document = json.loads(metadata.read_text())
    current = document.get("current-snapshot-id")
    for snapshot in document.get("snapshots", ()):
        if snapshot["snapshot-id"] == current:
            return int(snapshot["summary"]["total-records"])
    return 0


def table_files(out: Path) -> list[Path]:
    """The files of the table's last snapshot; a rebalance leaves others that no snapshot has."""
    uris = (out / FILES).read_text().split()
    return [Path(urlparse(uri).path) for uri in uris]
