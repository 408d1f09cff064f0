"""What instances leave in their status: one that runs, one that fails, one that is refused."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.unit.queries.registry.flow import write_project

from headrace.control import load_project
from headrace.control.matched_events_run import matched_events_run
from headrace.control.status_folders import matched_events_folder
from headrace.control.transfer_run import TransferRun, TransferRunOptions
from headrace.errors import HeadraceError, MatchedEventsRunningError, TopicMissingError
from headrace.pipelines.lock import CheckpointLock
from headrace.queries.matched_events.status import EmitterStatus
from headrace.settings import load_settings
from headrace.transfer.status import TransferState

RUNNING = EmitterStatus("ads.clicks", instance="another-1", records=3, updated_ms=1_800_000_000_000)


class StandInInstance:
    """An instance that is seen, or is not, and then fails."""

    def __init__(self, failure, *, is_seen):
        self._failure, self._is_seen = failure, is_seen

    def stop(self):
        pass

    def status(self):
        return EmitterStatus("ads.clicks", instance="own-2")

    def run(self, observe):
        if self._is_seen:
            observe(None)
        raise self._failure


@pytest.fixture(autouse=True)
def moment(monkeypatch):
    """Statuses are read in the moment in which this one was written, however slow the host is."""
    monkeypatch.setattr(time, "time", lambda: RUNNING.updated_ms / 1000)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    write_project(tmp_path, bootstrap="127.0.0.1:1")
    return load_project(load_settings(tmp_path, {}))


@pytest.fixture
def folder(project):
    folder = matched_events_folder(project.settings)
    folder.write(RUNNING)
    return folder


@pytest.mark.parametrize("silent_seconds", [0, 60])
def test_a_process_that_is_refused_leaves_the_status_of_the_running_one_alone(
    project, folder, silent_seconds
):
    """Also where it has written none for a while, as while Spark starts."""
    folder.write(replace(RUNNING, updated_ms=RUNNING.updated_ms - silent_seconds * 1000))
    [before] = folder.read()
    lock = CheckpointLock(project.settings.state / "locks", "matched-events.ads.clicks")
    lock.acquire()
    queries = project.standing_queries["ads"]
    run = matched_events_run(project, queries, "clicks", TransferRunOptions())
    with pytest.raises(MatchedEventsRunningError):
        run.run(lambda _: None)
    lock.release()
    assert folder.read() == [before]


@pytest.mark.parametrize(
    ("failure", "is_seen"),
    [
        (MatchedEventsRunningError("ads.clicks", "another-1"), True),
        (TopicMissingError("clicks"), False),
    ],
)
def test_an_instance_that_fails_says_so_beside_the_running_one(folder, failure, is_seen):
    instance = StandInInstance(failure, is_seen=is_seen)
    with pytest.raises(HeadraceError):
        TransferRun("ads.clicks", instance, folder, TransferRunOptions()).run(lambda _: None)
    running, failed = folder.read()
    assert running == RUNNING
    expected = replace(instance.status(), state=TransferState.FAILED, reason=str(failure))
    assert replace(failed, updated_ms=expected.updated_ms) == expected


@pytest.mark.parametrize("is_seen", [True, False])
def test_the_first_status_replaces_those_of_ended_instances(folder, is_seen):
    folder.write(replace(RUNNING, instance="ended-3", state=TransferState.STOPPED))
    instance = StandInInstance(TopicMissingError("clicks"), is_seen=is_seen)
    with pytest.raises(HeadraceError):
        TransferRun("ads.clicks", instance, folder, TransferRunOptions()).run(lambda _: None)
    assert [status.instance for status in folder.read()] == ["another-1", "own-2"]
