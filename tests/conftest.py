"""Real servers for any test that asks: started when first asked for, stopped at the end."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.postgres_server import PostgresServer
from tests.integration.redis_server import RedisServer

from headrace.kafka.embedded import EmbeddedCluster
from headrace.pipelines.session import start_session
from headrace.runtime.cache import cache_folder
from headrace.runtime.hdfs import EmbeddedHdfs
from headrace.runtime.jars import fetch
from headrace.runtime.java import Java, find_java
from headrace.settings.model import EmbeddedKafka, SparkSettings


def pytest_configure() -> None:
    """A cancelled run stops its servers too: SIGTERM ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@dataclass(frozen=True)
class RunningCluster:
    """A cluster that answers."""

    cluster: EmbeddedCluster
    bootstrap_servers: str
    folder: Path


@dataclass(frozen=True)
class RunningHdfs:
    """A NameNode and a DataNode that answer; ``uri`` is ``hdfs://host:port``."""

    server: EmbeddedHdfs
    uri: str
    folder: Path


Jars = Callable[[str], list[Path]]
StartCluster = Callable[..., RunningCluster]
StopAtEnd = Callable[[Path], None]


@pytest.fixture(scope="session")
def java() -> Java:
    """The Java that the product itself would take."""
    return find_java(os.environ)


@pytest.fixture(scope="session")
def jars(java: Java) -> Jars:
    """``jars("kafka")``: paths of a locked group, from the per-user cache."""

    def group(name: str) -> list[Path]:
        return fetch(name, java, cache=cache_folder(os.environ), on_progress=lambda *_: None)

    return group


@pytest.fixture(scope="session")
def server_folder() -> Path:
    """Where this session's servers keep their data; the guard removes it."""
    return Path(tempfile.mkdtemp(prefix="headrace-tests-"))


@pytest.fixture(scope="session")
def stop_at_end(server_folder: Path) -> Iterator[StopAtEnd]:
    """``stop_at_end(state_folder)``: its servers won't outlive the session, even a killed one."""
    command = [sys.executable, Path(__file__).with_name("server_guard.py"), server_folder]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
    with guard:
        pipe = guard.stdin
        assert pipe is not None
        yield lambda folder: print(folder, file=pipe, flush=True)


@pytest.fixture(scope="session")
def start_cluster(
    java: Java, jars: Jars, server_folder: Path, stop_at_end: StopAtEnd
) -> StartCluster:
    """``start_cluster(brokers=1, config={...}, ports=())``: a cluster of one's own.

    Give ``folder`` to start one again on the same data. Whatever still runs is stopped at the end.
    """
    numbers = itertools.count(1)

    def start(
        *,
        brokers: int = 1,
        ports: tuple[int, ...] = (),
        config: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> RunningCluster:
        folder = folder or server_folder / f"cluster-{next(numbers)}"
        settings = EmbeddedKafka(brokers=brokers, ports=ports, heap_mb=512)
        cluster = EmbeddedCluster(folder, settings, java, jars("kafka"), config=config)
        stop_at_end(folder)
        return RunningCluster(cluster, cluster.start(), folder)

    return start


@pytest.fixture(scope="session")
def broker(start_cluster: StartCluster) -> RunningCluster:
    """One broker shared by the session: ``.bootstrap_servers``. Use topics of your own."""
    return start_cluster()


@pytest.fixture(scope="session")
def hdfs(java: Java, jars: Jars, server_folder: Path, stop_at_end: StopAtEnd) -> RunningHdfs:
    """HDFS shared by the session: ``.uri``. Use folders of your own."""
    server = EmbeddedHdfs(server_folder, java, jars("hdfs"))
    stop_at_end(server_folder)
    return RunningHdfs(server, server.start(), server_folder)


@pytest.fixture(scope="session")
def postgres(stop_at_end: StopAtEnd) -> Iterator[PostgresServer]:
    """A PostgreSQL shared by the session: ``.create_database(name)``. Use databases of your own."""
    server = PostgresServer()
    stop_at_end(server.folder)
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def redis_server(
    stop_at_end: StopAtEnd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    """A Redis shared by the session: ``.url``. Use buckets of your own, and leave it as it was."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    stop_at_end(server.folder)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def spark(java: Java, server_folder: Path) -> Iterator[SparkSession]:
    """The session's one Spark, as the product itself would start it."""
    session = start_session(
        "headrace tests",
        SparkSettings(),
        master="local[2]",
        java=java.environ(),
        state=server_folder,
    )
    yield session
    session.stop()


@pytest.fixture
def topic() -> Callable[..., str]:
    """``topic("clicks")``: a topic name nobody else has; the topic is not created."""
    return lambda label="events": f"{label}-{uuid.uuid4().hex[:8]}"
