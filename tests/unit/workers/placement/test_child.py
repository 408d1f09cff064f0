"""An instance in a process of its own: what it tells its parent when it ends."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace

import pytest

from headrace import Topic, Worker, WorkerTask
from headrace.errors import BrokerUnreachableError
from headrace.workers.placement import child as worker_child
from headrace.workers.run import WorkerRunOptions


class Idle(WorkerTask):
    async def process(self, record):
        """Nothing comes."""


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What an instance that fails tells."""
    monkeypatch.setattr(worker_child.signal, "signal", lambda *_: None)
    monkeypatch.setattr(worker_child, "log_to", lambda *_, **__: None)
    (tmp_path / "headrace.toml").write_text('[project]\nname = "p"\nmodules = ["broken_flow"]\n')
    (tmp_path / "broken_flow.py").write_text("import no_such_module_of_mine\n")

    def failing():
        here, there = multiprocessing.Pipe()
        with pytest.raises(Exception, match=r"."):
            worker_child.run_child(
                tmp_path, "enrich", WorkerRunOptions(instance_id="i-1"), None, there
            )
        assert here.poll(0)
        return here.recv()

    return failing


def test_an_error_of_the_project_is_told_and_another_start_would_meet_it(told):
    failure = told()
    assert failure.is_permanent
    assert failure.reason.startswith("i-1: ")
    assert "no_such_module_of_mine" in failure.reason


def test_a_broker_that_is_down_at_the_start_is_told_and_may_be_up_at_the_next(told, monkeypatch):
    worker = Worker("enrich", Topic("clicks"), Idle)
    project = SimpleNamespace(declared=lambda _: {"enrich": worker}, topics={})

    def down(*_):
        raise BrokerUnreachableError("b:1", "it is down")

    monkeypatch.setattr(worker_child, "load_project", lambda _: project)
    monkeypatch.setattr(worker_child, "worker_run", down)
    failure = told()
    assert not failure.is_permanent
    assert "it is down" in failure.reason
