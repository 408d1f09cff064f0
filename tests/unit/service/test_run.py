"""What a service that runs here leaves in its status: it stops, it fails, or it is refused."""

from __future__ import annotations

import urllib.request
from dataclasses import replace

import pytest
from tests.unit.queries.registry.flow import write_project
from tests.unit.service.samples import EMITTER, NOW_MS, QUERIES

from headrace import StandingQueries
from headrace.errors import HeadraceError, MatchedEventsRunningError, TopicMissingError
from headrace.project.check import load_project
from headrace.queries.emit.run import matched_events_run
from headrace.queries.emit.status import EmitterStatus
from headrace.queries.windows.instance.status import QueryInstanceStatus
from headrace.runtime.servers.ports import free_ports
from headrace.service.metrics import exposition
from headrace.service.run import RunOptions, ServiceRun
from headrace.service.status import State, StatusFolder
from headrace.settings import load_settings
from headrace.spark.lock import CheckpointLock

RUNNING = replace(EMITTER, instance="another-1")
NO_METRICS = RunOptions()
OWN = replace(EMITTER, instance="own-2")


class StandInService:
    """A service that is seen with some statuses, and then ends or fails."""

    def __init__(self, *seen, first=OWN, failure=None):
        self._seen, self._status, self._failure = seen, first, failure

    def stop(self):
        pass

    def status(self):
        return self._status

    def run(self, observe):
        for status in self._seen:
            self._status = status
            observe(status)
        if self._failure is not None:
            raise self._failure


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    write_project(tmp_path, bootstrap="127.0.0.1:1")
    return load_project(load_settings(tmp_path, {}))


@pytest.fixture
def folder(tmp_path):
    folder = StatusFolder(tmp_path / ".headrace", EmitterStatus)
    folder.write(RUNNING)
    return folder


def run(service, folder, observe=lambda _: None, options=NO_METRICS):
    ServiceRun(service, folder, options).run(observe)


@pytest.mark.parametrize("silent_seconds", [0, 60])
def test_a_process_that_is_refused_leaves_the_status_of_the_running_one_alone(
    project, folder, silent_seconds
):
    """Also where it has written none for a while, as while Spark starts."""
    folder.write(replace(RUNNING, updated_ms=NOW_MS - silent_seconds * 1000))
    [before] = folder.read()
    lock = CheckpointLock(project.settings.state / "locks", "matched-events.ads.clicks")
    lock.acquire()
    queries = project.declared(StandingQueries)["ads"]
    refused = matched_events_run(project, queries, "clicks", NO_METRICS)
    with pytest.raises(MatchedEventsRunningError):
        refused.run(lambda _: None)
    lock.release()
    assert folder.read() == [before]


@pytest.mark.parametrize(
    ("failure", "seen"),
    [
        (MatchedEventsRunningError("ads.clicks", "another-1"), [OWN]),
        (TopicMissingError("clicks"), []),
    ],
)
def test_an_instance_that_fails_says_so_beside_the_running_one(folder, failure, seen):
    with pytest.raises(HeadraceError):
        run(StandInService(*seen, failure=failure), folder)
    running, failed = folder.read()
    assert running == RUNNING
    expected = replace(OWN, state=State.FAILED, reason=str(failure), updated_ms=failed.updated_ms)
    assert failed == expected


@pytest.mark.parametrize("seen", [[OWN], []], ids=["seen", "not seen"])
def test_the_first_status_replaces_those_of_ended_instances(folder, seen):
    folder.write(replace(RUNNING, instance="ended-3", state=State.STOPPED))
    with pytest.raises(HeadraceError):
        run(StandInService(*seen, failure=TopicMissingError("clicks")), folder)
    assert [status.instance for status in folder.read()] == ["another-1", "own-2"]


def test_an_error_without_a_text_is_named_by_its_type(folder):
    with pytest.raises(KeyboardInterrupt):
        run(StandInService(failure=KeyboardInterrupt()), folder)
    assert [status.reason for status in folder.read()] == ["", "KeyboardInterrupt"]


def test_a_run_ends_with_the_figures_of_its_instance_and_without_partitions(tmp_path):
    folder = StatusFolder(tmp_path, QueryInstanceStatus)
    seen = []
    run(StandInService(QUERIES, first=replace(QUERIES, results=0)), folder, seen.append)
    assert [(status.state, status.results) for status in seen] == [
        (State.RUNNING, 7), (State.STOPPED, 7),
    ]  # fmt: skip
    assert (seen[-1].owned, folder.read()) == ((), [seen[-1]])


def test_how_a_service_says_that_it_has_ended_is_published_at_once_and_stays(folder):
    seen = []
    closed = replace(OWN, state=State.CLOSED)
    run(StandInService(OWN, closed), folder, seen.append)
    assert seen == [OWN, closed]
    failed = replace(OWN, state=State.FAILED, reason="in its own words")
    with pytest.raises(HeadraceError):
        run(StandInService(failed, failure=TopicMissingError("clicks")), folder, seen.append)
    assert seen[2:] == [failed]
    assert folder.read() == [RUNNING, failed]


def test_metrics_are_those_of_the_last_status(folder):
    [port] = free_ports(1)
    answers = []

    def observe(_):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            answers.append(answer.read().decode())

    run(StandInService(OWN), folder, observe, RunOptions(metrics_port=port))
    assert answers[0] == exposition(EmitterStatus, [OWN])
    assert 'state="stopped"} 1' in answers[1]


def test_a_service_of_no_project_has_metrics_and_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    run(StandInService(OWN), None, seen.append)
    assert [status.state for status in seen] == [State.RUNNING, State.STOPPED]
    with pytest.raises(TopicMissingError):
        run(StandInService(failure=TopicMissingError("clicks")), None)
    assert not list(tmp_path.iterdir())
