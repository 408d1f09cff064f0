"""All pipelines that a run was asked to run are seen as starting, before Spark has started."""

from __future__ import annotations

import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from tests.unit.pipelines.run.test_runner import A_TO_B, B_TO_LAKE

from headrace.pipelines.run.announced import announced
from headrace.pipelines.run.last_status import pipeline_progress
from headrace.pipelines.run.pipeline_run import Deployment, PipelineRun
from headrace.pipelines.run.runner import Driver, run_pipelines
from headrace.pipelines.status import PipelineStatus
from headrace.service.status import State, StatusFolder
from headrace.settings.model import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(root=tmp_path, name="p", modules=(), lake=str(tmp_path / "lake"))


def states(settings: Settings) -> dict[str, tuple[State, str]]:
    return {status.name: (status.state, status.reason) for status in pipeline_progress(settings)}


def start(settings: Settings) -> None:
    run_pipelines(
        settings,
        [A_TO_B, B_TO_LAKE],
        deployment=Deployment("127.0.0.1:1", settings.lake, "local[1]", {}),
        once=True,
        observe=lambda _: None,
        stop=threading.Event(),
    )


def test_while_spark_starts_each_pipeline_is_starting_and_a_failed_start_ends_them(
    settings, monkeypatch
) -> None:
    seen = {}

    def fail(*_: object, **__: object) -> None:
        seen.update(states(settings))
        raise OSError("no Java")

    monkeypatch.setattr("headrace.pipelines.run.runner.start_session", fail)
    with pytest.raises(OSError, match="no Java"):
        start(settings)
    assert seen == {"a-to-b": (State.STARTING, ""), "b-to-lake": (State.STARTING, "")}
    after = states(settings)
    assert {state for state, _ in after.values()} == {State.FAILED}
    assert all("no Java" in reason for _, reason in after.values())
    assert set(after) == set(seen)


def test_an_interrupted_start_has_stopped_them(settings, monkeypatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headrace.pipelines.run.runner.start_session", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(settings)
    assert {state for state, _ in states(settings).values()} == {State.STOPPED}


def test_a_pipeline_that_another_run_holds_keeps_the_status_of_that_run(settings) -> None:
    folder = StatusFolder(settings.state, PipelineStatus)
    with announced(settings, [A_TO_B], settings.lake):
        folder.write(PipelineStatus("a-to-b", State.RUNNING, rows_in=7))
        with announced(settings, [A_TO_B, B_TO_LAKE], settings.lake) as locks:
            assert set(locks) == {"a-to-b", "b-to-lake"}
            assert {state for state, _ in states(settings).values()} == {
                State.RUNNING,
                State.STARTING,
            }
        assert states(settings)["a-to-b"] == (State.RUNNING, "")


def test_a_run_that_is_stopped_before_the_turn_of_a_pipeline_has_stopped_it(settings) -> None:
    stop = threading.Event()
    stop.set()
    deployment = Deployment("127.0.0.1:1", settings.lake, "local[1]", {})
    with announced(settings, [A_TO_B], settings.lake) as locks:
        driver = Driver(None, settings, deployment, locks)
        driver.run([A_TO_B], once=False, observe=lambda _: None, stop=stop)
    assert states(settings) == {"a-to-b": (State.STOPPED, "")}


def test_a_pipeline_is_run_with_the_lock_that_announced_it(settings) -> None:
    deployment = Deployment("127.0.0.1:1", settings.lake, "local[1]", {})
    with announced(settings, [A_TO_B], settings.lake) as locks:
        lock = locks[A_TO_B.name]
        run = PipelineRun(MagicMock(), settings, A_TO_B, deployment, once=True, lock=lock)
        assert run._claim.try_acquire()


def test_a_driver_that_may_become_a_standby_announces_nothing(settings, monkeypatch) -> None:
    """It would hold the lock of the active driver, without the lease."""
    seen = []

    def fail(*_: object, **__: object) -> None:
        seen.append(states(settings))
        raise OSError("no Java")

    monkeypatch.setattr("headrace.pipelines.run.runner.start_session", fail)
    deployment = Deployment("127.0.0.1:1", settings.lake, "local[1]", {}, standby=True)
    with pytest.raises(OSError, match="no Java"):
        run_pipelines(
            settings,
            [A_TO_B],
            deployment=deployment,
            once=False,
            observe=lambda _: None,
            stop=threading.Event(),
        )
    assert seen == [{}]
