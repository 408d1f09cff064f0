"""The same project, unchanged, on a Spark standalone cluster and HDFS; an executor is killed."""

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

import pyspark
import pytest
from tests.acceptance.project import Project, kill_session, wait_for

EVENTS = 100_000


class StandaloneCluster:
    """One master, two workers of one core each, as processes of this machine."""

    def __init__(self, folder: Path, java) -> None:
        self._folder = folder
        folder.mkdir()
        self._environ = (
            os.environ
            | java.environ()
            | {
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_LOG_DIR": str(folder),
            }
        )
        master = "org.apache.spark.deploy.master.Master"
        worker = "org.apache.spark.deploy.worker.Worker"
        web = ("--webui-port", "0", "--host", "127.0.0.1")
        self._processes = [self._start("master", master, "--port", "0", *web)]
        self.url = self._address()
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder))
        for name in ("worker-1", "worker-2"):
            self._processes.append(self._start(name, worker, *size, *web, self.url))
        for name in ("worker-1", "worker-2"):
            wait_for(lambda log=name: "Successfully registered" in self._log(log), name)

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
        wait_for(lambda: pattern.search(self._log("master")) is not None, "Spark's master")
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


@pytest.fixture
def spark_cluster(java, tmp_path):
    cluster = StandaloneCluster(tmp_path / "spark", java)
    yield cluster
    cluster.stop()


@pytest.mark.timeout(900)
def test_a_killed_executor_changes_nothing_in_the_lake_on_hdfs(
    start_cluster, hdfs, spark_cluster, tmp_path
):
    lake = f"{hdfs.uri}/{tmp_path.name}/lake"
    bootstrap = start_cluster().bootstrap_servers
    project = Project(tmp_path / "drill", bootstrap, lake=lake, batch=10_000)
    project.call("apply")
    project.send(0, EVENTS)
    process = project.start("run", "--once", "--master", spark_cluster.url)
    try:
        wait_for(lambda: any(s["batches"] for s in project.statuses().values()), "a batch")
        victim = spark_cluster.executors()[0]
        os.kill(victim, signal.SIGKILL)
        assert process.wait(600) == 0, project.output()
    finally:
        kill_session(process)
    expected = {f"e{n}": 1 for n in range(EVENTS)}
    assert project.ids("fused") == expected
    assert project.ids("stepped") == expected
