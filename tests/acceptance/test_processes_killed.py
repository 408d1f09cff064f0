"""`workers run --processes`: one is killed, Ctrl-C drains all; also of one that is exactly once."""

import os
import signal
import subprocess

import pytest
from tests.acceptance.noted_worker import ONCE, WORKER, NotedWorker
from tests.acceptance.project import Project
from tests.waiting import wait_for_drill


def ctrl_c(process: subprocess.Popen) -> None:
    """As a terminal does: to every process."""
    os.killpg(process.pid, signal.SIGINT)


@pytest.mark.timeout(600)
def test_a_process_that_is_killed_is_replaced_and_ctrl_c_drains_all(broker, topic, tmp_path):
    project = Project(tmp_path / "drill", broker.bootstrap_servers, topic=topic())
    worker = NotedWorker(project, WORKER)
    with worker.running("--processes", "2", stop=ctrl_c):
        worker.kill_one()
        wait_for_drill(lambda: len(worker.noted()) == worker.total, "all records")
    assert sum(project.committed("note").values()) == worker.total


@pytest.mark.timeout(600)
def test_processes_that_are_exactly_once_and_look_up_references_write_each_record_once(
    broker, topic, tmp_path
):
    project = Project(tmp_path / "drill", broker.bootstrap_servers, topic=topic())
    worker = NotedWorker(project, ONCE)
    with worker.running("--processes", "2", stop=ctrl_c):
        worker.kill_one()
        wait_for_drill(lambda: len(worker.copied()) == worker.total, "all records")
    assert worker.copied() == worker.copies_of_noted()
    assert sum(project.committed("note").values()) == worker.total
