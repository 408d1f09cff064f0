"""Real servers for any test that asks: started when first asked for, stopped at the end.

The processes of one ``pytest -n`` share brokers, HDFS and Cassandra: whichever asks first starts
them.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import random
import shutil
import signal
import tempfile
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from pyspark.sql import SparkSession
from tests import schedule, servers, skips
from tests.drills.parts import PARTS, parts_of
from tests.drills.run import DrillReports, DrillRun
from tests.durations import Durations
from tests.integration.bigquery_server import BigQueryServer
from tests.integration.cassandra_server import CREATE_KEYSPACE, KEYSPACE, CassandraServer
from tests.integration.opensearch_server import SCARCE, OpenSearchServer
from tests.integration.postgres_server import PostgresServer
from tests.integration.redis_server import RedisServer
from tests.integration.s3_server import S3Server
from tests.integration.seaweed_server import SeaweedServer
from tests.quick_java import QuickCluster, hasten_spark
from tests.quick_python import quick_python
from tests.servers import ServerGuard

from headrace.kafka.embedded.cluster import EmbeddedCluster
from headrace.runtime.files.cache import cache_folder
from headrace.runtime.files.file_locks import exclusive
from headrace.runtime.java.installation import Java, find_java
from headrace.runtime.java.jars import fetch
from headrace.runtime.logs import log_to
from headrace.runtime.servers.hdfs import EmbeddedHdfs
from headrace.settings.model import EmbeddedKafka, SparkSettings
from headrace.spark.session import start_session

pytest.register_assert_rewrite("tests.contracts")

BYTES_OF_A_PROCESS = 5_500_000_000  # a Spark, and clusters of its own
MEMORY = Path("/dev/shm")
BYTES_OF_A_RUN = 6_000_000_000  # files of all its tests and servers
_GUARD = pytest.StashKey[ServerGuard]()

# No test depends on how long something takes.
hypothesis.settings.register_profile(
    "headrace",
    deadline=None,
    # A contract's test runs for each class that is one, on a worker that has run another.
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.differing_executors,
    ],
)
hypothesis.settings.load_profile("headrace")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument: gzip writes the time into them, and ids must not differ."""
    return argname if isinstance(val, bytes) and not val.isascii() else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slowest",
        type=int,
        default=0,
        metavar="N",
        help="at the end, print the N slowest tests and files, with the CPU seconds of each",
    )
    group = parser.getgroup("drills")
    group.addoption(
        "--drills",
        choices=("short", "long"),
        default="short",
        help="short: as in CI; long: ten kills, a million events, minutes of load",
    )
    group.addoption(
        "--part",
        type=int,
        choices=range(1, len(PARTS) + 1),
        help="of the drills, only this part of those that CI runs in turns",
    )
    group.addoption(
        "--seed",
        type=int,
        help="chooses faults of drills and random input; by default a new one",
    )
    group.addoption("--drill-report", type=Path, help="JSON file: seed, versions and counts")


def pytest_configure(config: pytest.Config) -> None:
    """A cancelled run stops its servers too: SIGTERM ends it as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.pluginmanager.register(skips, "skips")
    if config.option.slowest:
        config.pluginmanager.register(Durations(config.option.slowest), "slowest")
    if _is_worker(config):
        return
    if config.option.drills == "short":
        hasten_spark()
        _keep_files_in_memory()
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(2**32)
    config.stash[_GUARD] = ServerGuard()
    config.pluginmanager.register(DrillReports(config), "drill-reports")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the drills of one part, but for those that ``make test`` has run, if one is asked for.

    Otherwise all tests stay, those of large files first.

    Raises:
        pytest.UsageError: if a drill is in no part: CI would never run it.
    """
    drills = [item for item in items if item.get_closest_marker("drill")]
    forgotten = {item.path.name for item in drills if not parts_of(item.path)}
    if forgotten:
        raise pytest.UsageError(f"tests/drills/parts.py has no part for {sorted(forgotten)}")
    if config.option.part is None:
        schedule.large_files_first(items)
        return
    chosen = [
        item
        for item in drills
        if config.option.part in parts_of(item.path)
        and not item.get_closest_marker("drill").kwargs.get("always")
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Garbage is not looked for in modules and thousands of tests, which stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if _is_worker(session.config):
        schedule.tell_files_with_spark(session.items, _folder_of_run(session.config))


def pytest_unconfigure(config: pytest.Config) -> None:
    if not _is_worker(config):
        config.stash[_GUARD].close()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a process of ``pytest -n`` which folder all of them share."""
    node.workerinput["server_folder"] = str(node.config.stash[_GUARD].folder)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> schedule.SchedulingByKind:
    return schedule.SchedulingByKind(config, log, _folder_of_run(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Twice as many as there are processors, if memory allows: half the time, tests wait."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(2 * (os.cpu_count() or 1), memory // BYTES_OF_A_PROCESS))


def pytest_report_header(config: pytest.Config) -> str:
    return f"drills: {config.option.drills}, seed {config.option.seed}"


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Names the seed also where the header is not shown."""
    if terminalreporter.stats.get("failed"):
        seed = config.option.seed
        terminalreporter.write_line(f"Faults and random input follow from --seed={seed}")


def _keep_files_in_memory() -> None:
    """Keeps temporary files in memory, where there is room: tests sync thousands of them."""
    if "TMPDIR" in os.environ or not MEMORY.is_dir():
        return
    may_run_programs = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    if may_run_programs and shutil.disk_usage(MEMORY).free >= BYTES_OF_A_RUN:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _folder_of_run(config: pytest.Config) -> Path:
    """What all processes of a run share."""
    if _is_worker(config):
        return Path(config.workerinput["server_folder"])
    return config.stash[_GUARD].folder


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
StartServer = Callable[[Any, Callable[[], object]], Any]


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
def server_folder(request: pytest.FixtureRequest) -> Path:
    """Where the servers of all processes keep their data; the guard removes it."""
    return _folder_of_run(request.config)


@pytest.fixture(scope="session")
def own_folder(server_folder: Path, worker_id: str) -> Path:
    """This process's part of it."""
    folder = server_folder / worker_id
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def stop_at_end(server_folder: Path) -> StopAtEnd:
    """``stop_at_end(state_folder)``: its servers won't outlive the session, even a killed one."""
    return partial(servers.stop_at_end, server_folder)


@pytest.fixture
def drill_run(request: pytest.FixtureRequest, record_property: Any) -> DrillRun:
    """How long this drill is, what chooses its faults, and where it reports."""
    options = request.config.option
    chosen = random.Random(f"{options.seed} {request.node.name}")
    return DrillRun(options.drills == "long", options.seed, chosen, record_property)


@pytest.fixture(scope="session")
def new_cluster(java: Java, jars: Jars, own_folder: Path, stop_at_end: StopAtEnd) -> StartCluster:
    """As ``start_cluster``, for a cluster that runs until the end of the session."""
    numbers = itertools.count(1)

    def start(
        *,
        brokers: int = 1,
        ports: tuple[int, ...] = (),
        config: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> RunningCluster:
        folder = folder or own_folder / f"cluster-{next(numbers)}"
        settings = EmbeddedKafka(brokers=brokers, ports=ports, heap_mb=512)
        cluster = QuickCluster(folder, settings, java, jars("kafka"), config=config)
        stop_at_end(folder)
        return RunningCluster(cluster, cluster.start(), folder)

    return start


@pytest.fixture(scope="module")
def start_cluster(new_cluster: StartCluster) -> Iterator[StartCluster]:
    """``start_cluster(brokers=1, config={...}, ports=())``: a cluster of one's own.

    For tests that stop, kill, pause or configure brokers; others share ``broker`` and
    ``second_broker``.

    Give ``folder`` to start one again on the same data. Whatever still runs is killed at the end of
    the module: an idle broker takes memory and time from the tests of others.
    """
    started: list[EmbeddedCluster] = []

    def start(**options: Any) -> RunningCluster:
        running = new_cluster(**options)
        started.append(running.cluster)
        return running

    yield start
    for cluster in started:
        for broker in cluster.status().brokers:
            cluster.kill(broker.node)


@pytest.fixture(scope="session")
def broker(new_cluster: StartCluster, server_folder: Path) -> RunningCluster:
    """One broker shared by all: ``.bootstrap_servers``. Use topics and groups of your own."""
    return new_cluster(folder=server_folder / "shared")


@pytest.fixture(scope="session")
def second_broker(new_cluster: StartCluster, server_folder: Path) -> RunningCluster:
    """The broker of a second site, shared by all as ``broker`` is."""
    return new_cluster(folder=server_folder / "second")


@pytest.fixture(scope="session")
def hdfs(java: Java, jars: Jars, server_folder: Path, stop_at_end: StopAtEnd) -> RunningHdfs:
    """HDFS shared by all: ``.uri``. Use folders of your own."""
    folder = server_folder / "shared"
    server = EmbeddedHdfs(folder, java, jars("hdfs"))
    stop_at_end(folder)
    return RunningHdfs(server, server.start(), folder)


@pytest.fixture(scope="session")
def start_server(stop_at_end: StopAtEnd) -> Iterator[StartServer]:
    """``start_server(server, server.kill)``: runs it until the end of the session."""
    with ExitStack() as ends:

        def start(server: Any, end: Callable[[], object]) -> Any:
            stop_at_end(server.folder)
            server.start()
            ends.callback(end)
            return server

        yield start


@pytest.fixture(scope="session")
def postgres(start_server: StartServer) -> PostgresServer:
    """A PostgreSQL shared by the session: ``.create_database(name)``. Use databases of your own."""
    server = PostgresServer()
    return start_server(server, server.remove)


@pytest.fixture(scope="session")
def redis_server(
    start_server: StartServer, tmp_path_factory: pytest.TempPathFactory
) -> RedisServer:
    """A Redis shared by the session: ``.url``. Use buckets of your own, and leave it as it was."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    return start_server(server, server.kill)


@pytest.fixture(scope="session")
def bigquery(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> BigQueryServer:
    """A stand-in for BigQuery shared by the session: ``.settings``. Use tables of your own."""
    server = BigQueryServer(tmp_path_factory.mktemp("bigquery"))
    return start_server(server, server.kill)


@pytest.fixture(scope="session")
def cassandra(server_folder: Path, stop_at_end: StopAtEnd) -> CassandraServer:
    """A Cassandra shared by all, with a keyspace: ``.url()``. Use stores of your own."""
    with exclusive(server_folder / "cassandra.lock"):
        server = CassandraServer(server_folder / "cassandra")
        stop_at_end(server.folder)
        server.run()
        server.query(CREATE_KEYSPACE.format(KEYSPACE))
    return server


@pytest.fixture(scope="session")
def opensearch(server_folder: Path, stop_at_end: StopAtEnd) -> OpenSearchServer:
    """An OpenSearch shared by all, which takes little at once: ``.url``. Use your own indices."""
    with exclusive(server_folder / "opensearch.lock"):
        server = OpenSearchServer(server_folder / "opensearch", settings=SCARCE)
        stop_at_end(server.folder)
        server.run()
    return server


@pytest.fixture(scope="session")
def s3(own_folder: Path, start_server: StartServer) -> S3Server:
    """An S3 server of this process: ``.settings``, ``.create_bucket(name)``. Use your own."""
    server = S3Server(own_folder / "s3")
    return start_server(server, server.stop)


@pytest.fixture(scope="session")
def seaweed(own_folder: Path, start_server: StartServer) -> SeaweedServer:
    """S3 and an Iceberg REST catalog of this process: ``.settings``, ``.sinks``, ``.catalog``."""
    server = SeaweedServer(own_folder / "seaweed")
    return start_server(server, server.stop)


@pytest.fixture(scope="session")
def spark(java: Java, jars: Jars, own_folder: Path) -> Iterator[SparkSession]:
    """The one Spark of this process, as the product itself would start it."""
    session = start_session(
        "headrace tests",
        SparkSettings(config={"spark.jars": ",".join(map(str, jars("spark-kafka")))}),
        master="local[2]",
        java=java.environ(),
        state=own_folder,
    )
    with quick_python(own_folder / "python") as python:
        session.sparkContext.pythonExec = python
        yield session
        session.stop()


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Removes the log handlers of commands that ran in this process, whose files may go."""
    yield
    if logging.getLogger("headrace").handlers:
        log_to(None, stderr=False)


@pytest.fixture
def topic() -> Callable[..., str]:
    """``topic("clicks")``: a topic name nobody else has; the topic is not created."""
    return lambda label="events": f"{label}-{uuid.uuid4().hex[:8]}"
