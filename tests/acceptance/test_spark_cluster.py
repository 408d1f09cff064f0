"""Pipelines and workers, unchanged, on a Spark standalone cluster; processes of it are killed."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka
import pyspark
import pytest
from tests.acceptance.noted_worker import ONCE, WORKER, NotedWorker
from tests.acceptance.project import HEADRACE, Project, kill_session
from tests.quick_java import quick_spark
from tests.waiting import DRILL_LIMIT_SECONDS, FLUSH_SECONDS, wait_for_drill

from headrace.kafka.client.clients import connected_producer, consumer
from headrace.runtime.java.installation import Java
from headrace.runtime.servers.ports import free_ports


class StandaloneCluster:
    """One master and workers of one core each, as processes of this machine.

    Args:
        folder: of its logs, and of what executors work in.
        java: Java.
        host: where it listens; but for 127.0.0.1, headrace takes it for another machine.
        workers: how many, each with one executor.
        environ: of its processes; by default JVMs start sooner, and their code is slower.
    """

    def __init__(
        self,
        folder: Path,
        java: Java,
        host: str = "127.0.0.1",
        *,
        workers: int = 2,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        folder.mkdir()
        self._environ = (
            os.environ
            | java.environ()
            | (quick_spark(java) if environ is None else environ)
            | {
                "SPARK_LOCAL_IP": host,
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_LOG_DIR": str(folder),
            }
        )
        master = "org.apache.spark.deploy.master.Master"
        worker = "org.apache.spark.deploy.worker.Worker"
        web = ("--webui-port", "0", "--host", host)
        self._processes = [self._start("master", master, "--port", "0", *web)]
        self.url = self._address()
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
        names = [f"worker-{number + 1}" for number in range(workers)]
        for name in names:
            self._processes.append(self._start(name, worker, *size, *web, self.url))
        for name in names:
            wait_for_drill(lambda log=name: "Successfully registered" in self._log(log), name)

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen:
        script = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [script, main, *arguments],
                stdout=log,
                stderr=log,
                env=self._environ,
                start_new_session=True,
            )

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def _address(self) -> str:
        pattern = re.compile(r"Starting Spark master at (spark://\S+)")
        wait_for_drill(lambda: pattern.search(self._log("master")) is not None, "Spark's master")
        return pattern.search(self._log("master"))[1]

    def executors(self) -> list[int]:
        """Pids of the executors that the workers have started."""
        sessions = {process.pid for process in self._processes}
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                session = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
                command = (entry / "cmdline").read_bytes()
                if session in sessions and b"CoarseGrainedExecutorBackend" in command:
                    found.append(int(entry.name))
        return found

    def stop(self) -> None:
        for process in reversed(self._processes):
            kill_session(process)


@pytest.fixture(scope="module")
def spark_cluster(java, tmp_path_factory):
    cluster = StandaloneCluster(tmp_path_factory.mktemp("cluster") / "spark", java)
    yield cluster
    cluster.stop()


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_a_killed_executor_changes_nothing_in_the_lake_on_hdfs(
    start_cluster, hdfs, spark_cluster, tmp_path, drill_run
):
    events = drill_run.size(short=10_000, long=50_000)
    lake = f"{hdfs.uri}/{tmp_path.name}/lake"
    bootstrap = start_cluster().bootstrap_servers
    project = Project(tmp_path / "drill", bootstrap, lake=lake, batch=events // 5)
    project.call("apply")
    project.send(0, events)
    process = project.start("run", "--once", "--master", spark_cluster.url)
    try:
        wait_for_drill(lambda: any(s["batches"] for s in project.statuses().values()), "a batch")
        victim = spark_cluster.executors()[0]
        os.kill(victim, signal.SIGKILL)
        assert process.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
    finally:
        kill_session(process)
    expected = {f"e{n}": 1 for n in range(events)}
    assert project.ids("fused") == expected
    assert project.ids("stepped") == expected
    drill_run.report(events=events, kills=1)


@pytest.fixture
def other_machine(java, tmp_path):
    cluster = StandaloneCluster(tmp_path / "spark", java, "127.0.0.2")
    yield cluster
    cluster.stop()


SHIPPED = """
from __future__ import annotations

from shop.orders import Order, priced

from headrace import Kafka, Pipeline, Send, Source, Topic, worker

orders = Topic("{topic}", event=Order, event_id="order_id", event_time="at", partitions=2)
copies = Topic("{topic}-copies", event=Order, event_id="order_id", event_time="at")
receipts = Topic("{topic}-receipts")
copy = Pipeline("copy", Source(orders), Kafka(copies), steps=[priced])


@worker(topic=orders)
async def receipt(order: Order, send: Send) -> None:
    send(receipts.name, order.order_id.encode())
"""
ORDERS = """
from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Order:
    order_id: str
    at: datetime
    price: float


def priced(rows):
    return rows.mapInArrow(_doubled, rows.schema)


def _doubled(batches):
    for batch in batches:
        price = batch.column("price").to_pylist()
        yield batch.set_column(
            batch.schema.get_field_index("price"),
            "price",
            [2 * number for number in price],
        )
"""
ELSEWHERE = """
[spark.config]
"spark.driver.host" = "127.0.0.1"
"spark.driver.bindAddress" = "127.0.0.1"
"spark.cores.max" = "1"
"""


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_executors_elsewhere_are_sent_the_modules_of_a_project(
    start_cluster, other_machine, tmp_path
):
    """Also a class with postponed annotations, of a package without an ``__init__``."""
    flow, bootstrap = SHIPPED.replace("{topic}", "orders"), start_cluster().bootstrap_servers
    project = Project(tmp_path / "shop", bootstrap, flow=flow, settings=ELSEWHERE, topic="orders")
    (project.folder / "shop").mkdir()
    (project.folder / "shop" / "orders.py").write_text(ORDERS)
    project.call("apply")
    sender = connected_producer(project.client)
    for number in range(10):
        order = {"order_id": f"o{number}", "at": datetime.now(UTC).isoformat(), "price": number}
        sender.produce("orders", json.dumps(order))
    assert sender.flush(FLUSH_SECONDS) == 0
    project.call("run", "--once", "--master", other_machine.url)
    copies = [json.loads(value) for value in values(project, "orders-copies", 10)]
    assert {copy["order_id"]: copy["price"] for copy in copies} == {
        f"o{number}": 2.0 * number for number in range(10)
    }
    command = ("workers", "run", "receipt", "--on", "spark", "--instances", "1")
    process = project.start(*command, "--master", other_machine.url)
    try:
        assert set(values(project, "orders-receipts", 10)) == {b"o%d" % n for n in range(10)}
    finally:
        kill_session(process)


def values(project: Project, topic: str, count: int) -> list[bytes]:
    """The first records of a topic, once that many are there."""
    reader = consumer(project.client, tuning={"auto.offset.reset": "earliest"})
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read: list[bytes] = []

    def all_read() -> bool:
        read.extend(r.value() for r in reader.consume(count, 0.2) if r.error() is None)
        return len(read) >= count

    try:
        wait_for_drill(all_read, project.output)
    finally:
        reader.close()
    return read


ON_SPARK = ("--on", "spark", "--instances", "2")


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_instances_of_a_worker_on_spark_are_placed_restarted_and_stopped(
    start_cluster, spark_cluster, tmp_path
):
    """Its environment is in the project's folder, where most people have it."""
    project = Project(tmp_path / "drill", start_cluster().bootstrap_servers)
    worker = NotedWorker(project, WORKER)
    environment = project.folder / ".venv"
    environment.symlink_to(sys.prefix)
    [port] = free_ports(1)
    options = (*ON_SPARK, "--master", spark_cluster.url, "--metrics-port", str(port))
    python = environment / "bin" / "python"
    with worker.running(*options, stop=subprocess.Popen.terminate, python=python):
        wait_for_drill(lambda: processed(port).keys() == {"note-0", "note-1"}, "metrics of both")
        wait_for_drill(lambda: all(processed(port).values()), "records of both in the metrics")
        wait_for_drill(lambda: running(project) == worker.instances(), "the status of both")
        killed = worker.kill_one()
        wait_for_drill(
            lambda: running(project) == worker.instances() - {killed}, "the status of another"
        )
        wait_for_drill(lambda: all(processed(port).values()), "its metrics")
        wait_for_drill(lambda: len(worker.noted()) == worker.total, "all records")
    assert sum(project.committed("note").values()) == worker.total
    assert {one["state"] for one in status(project)} == {"closed"}


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_instances_on_spark_that_are_exactly_once_and_look_up_references_write_each_record_once(
    start_cluster, spark_cluster, tmp_path
):
    project = Project(tmp_path / "drill", start_cluster().bootstrap_servers)
    worker = NotedWorker(project, ONCE)
    options = (*ON_SPARK, "--master", spark_cluster.url)
    with worker.running(*options, stop=subprocess.Popen.terminate):
        worker.kill_one()
        wait_for_drill(lambda: len(worker.copied()) == worker.total, "all records")
    assert worker.copied() == worker.copies_of_noted()


def processed(port: int) -> dict[str, int]:
    """Records by instance, as the driver's metrics have them; none before it serves them."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    pattern = r'headrace_worker_processed_total{worker="note",instance="(\S+)"} (\d+)'
    return {name: int(count) for name, count in re.findall(pattern, text)}


def status(project: Project) -> list[dict]:
    """Instances that `headrace status` lists."""
    command = [HEADRACE, "status", "--json", "--project", project.folder]
    return json.loads(subprocess.check_output(command))["workers"]


def running(project: Project) -> set[int]:
    """Pids of those that run by their status."""
    found = [one for one in status(project) if one["state"] == "running"]
    return {int(one["process"].rpartition("-")[2]) for one in found}
