"""What services tell others on their machine: a file each, which says when they are gone."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
from tests.unit.service.samples import (
    DISPATCHER,
    INSTANCES,
    MERGER,
    MIRROR,
    NOW_MS,
    PIPELINE,
    QUERIES,
    STATUSES,
)

from headrace.links.dispatcher.status import DispatcherStatus
from headrace.links.mirror.status import MirrorStatus
from headrace.links.status import refused_now
from headrace.queries.windows.instance.status import QueryInstanceStatus
from headrace.runtime.servers.process import ProcessIdentity, SeenProcess
from headrace.service.status import STALE_AFTER_SECONDS, State, StatusFolder

STALE_MS = int(STALE_AFTER_SECONDS * 1000)
of_each_kind = pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.kind)
of_instances = pytest.mark.parametrize("status", INSTANCES, ids=lambda status: status.kind)


def plain(status):
    return json.loads(json.dumps(status.to_json()))


@of_each_kind
def test_a_status_is_read_as_it_was_written(tmp_path, status):
    folder = StatusFolder(tmp_path, type(status))
    assert folder.read() == []
    folder.write(replace(status, reason="it has just started"))
    folder.write(status)
    [shown] = folder.read()
    assert (type(shown), plain(shown)) == (type(status), plain(status))


@of_each_kind
def test_the_state_of_a_service_is_one_that_its_kind_has(status):
    assert status.state in status.states


@of_each_kind
def test_a_file_without_a_figure_that_is_newer_than_it_is_read(tmp_path, status):
    folder = StatusFolder(tmp_path, type(status))
    folder.write(status)
    [path] = tmp_path.rglob("*.json")
    values = json.loads(path.read_text())
    del values[status.metrics[0].name]
    path.write_text(json.dumps(values))
    [shown] = folder.read()
    assert shown.figure(status.metrics[0].name) == 0


@of_each_kind
def test_a_torn_status_is_left_out_and_keeps_no_instance_from_starting(tmp_path, status):
    folder = StatusFolder(tmp_path, type(status))
    folder.write(status)
    [path] = tmp_path.rglob("*.json")
    path.with_name("torn.json").write_bytes(b"")
    path.with_name("folder.json").mkdir()  # as a file of another user, it can't be opened
    folder.forget(status.name)
    assert [plain(shown) for shown in folder.read()] == [plain(status)]


def test_a_status_that_is_left_out_is_logged_once_until_it_was_read(tmp_path, caplog):
    """A command that shows statuses reads them each second."""
    status = STATUSES[0]
    folder = StatusFolder(tmp_path, type(status))
    folder.write(status)
    [path] = tmp_path.rglob("*.json")
    for warnings in (1, 2):
        content = path.read_bytes()
        path.unlink()
        path.mkdir()  # as a file of another user, it can't be opened
        assert [folder.read() for _ in range(3)] == [[]] * 3
        assert caplog.text.count("leaving it out") == warnings
        path.rmdir()
        path.write_bytes(content)
        assert len(folder.read()) == 1


@of_instances
def test_an_instance_that_is_silent_has_failed(tmp_path, status):
    folder = StatusFolder(tmp_path, type(status))
    folder.write(replace(status, updated_ms=NOW_MS - STALE_MS))
    [shown] = folder.read()
    assert shown.state is State.FAILED
    assert "no heartbeat for 30 s" in shown.reason
    assert shown.figure(status.metrics[0].name) == status.figure(status.metrics[0].name)


def written_by(folder, status, process):
    """Writes a status as ``process`` would."""
    folder.write(status)
    [path] = folder._folder.glob("*.json")
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"writer": asdict(process)}))


@pytest.fixture
def ended_process():
    """A process of this machine that was killed, as others see it."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    seen = SeenProcess(ProcessIdentity.of(child.pid), SeenProcess.current().namespace)
    assert not seen.has_ended()
    child.kill()
    child.communicate()
    return seen


@of_instances
def test_an_instance_whose_process_was_killed_has_failed_at_once(tmp_path, status, ended_process):
    folder = StatusFolder(tmp_path, type(status))
    written_by(folder, status, ended_process)
    [shown] = folder.read()
    assert shown.state is State.FAILED
    assert f"process {ended_process.process.pid} has died" in shown.reason
    assert shown.figure(status.metrics[0].name) == status.figure(status.metrics[0].name)
    folder.forget(status.name)
    assert folder.read() == []


@of_instances
def test_an_instance_whose_process_is_another_now_has_failed(tmp_path, status):
    """Process ids come again."""
    folder, here = StatusFolder(tmp_path, type(status)), SeenProcess.current()
    earlier = replace(here.process, started=f"{here.process.boot}:1")
    written_by(folder, status, replace(here, process=earlier))
    [shown] = folder.read()
    assert shown.state is State.FAILED


@of_instances
@pytest.mark.parametrize("elsewhere", ["container", "machine"])
def test_of_a_process_that_can_not_be_seen_only_its_silence_counts(
    tmp_path, status, elsewhere, ended_process
):
    folder = StatusFolder(tmp_path, type(status))
    if elsewhere == "container":
        process = replace(ended_process, namespace="pid:[1]")
    else:
        process = replace(
            ended_process, process=replace(ended_process.process, started="another boot:1")
        )
    written_by(folder, status, process)
    [shown] = folder.read()
    assert shown.state is status.state


def test_what_has_ended_stays_as_it_ended(tmp_path, ended_process):
    folder = StatusFolder(tmp_path, type(MIRROR))
    written_by(folder, MIRROR.ended(State.STOPPED), ended_process)
    [shown] = folder.read()
    assert shown.state is State.STOPPED


@of_instances
def test_statuses_of_ended_instances_go_with_the_next_start(tmp_path, status):
    folder = StatusFolder(tmp_path, type(status))
    stopped = replace(status, state=State.STOPPED)
    for other in (
        stopped,
        replace(stopped, name="another"),
        replace(status, instance="host-2"),
        replace(status, instance="killed", updated_ms=NOW_MS - STALE_MS),
    ):
        folder.write(other)
    folder.forget(status.name)
    names = {(shown.name, shown.instance) for shown in folder.read()}
    assert names == {("another", "host-1"), (status.name, "host-2")}


def test_a_pipeline_that_is_silent_is_as_it_was(tmp_path):
    """The lock of its checkpoint says whether its driver is gone."""
    folder = StatusFolder(tmp_path, type(PIPELINE))
    silent = replace(PIPELINE, updated_ms=NOW_MS - STALE_MS)
    folder.write(silent)
    assert folder.read() == [silent]


@pytest.mark.parametrize("state", State)
def test_no_state_follows_some(state):
    final = {"finished", "stopped", "closed", "failed", "refused"}
    assert replace(PIPELINE, state=state).has_ended == (state in final)


def test_what_an_instance_knew_goes_with_its_partitions_to_another(tmp_path):
    folder = StatusFolder(tmp_path, QueryInstanceStatus)
    folder.write(replace(QUERIES, instance="killed", updated_ms=NOW_MS - STALE_MS))
    folder.write(replace(QUERIES, instance="next", owned=(1, 2)))
    killed, following = folder.read()
    assert (killed.state, killed.records, killed.results) == (State.FAILED, 100, 7)
    assert (killed.partitions, killed.late_events, killed.unbalanced_events) == (0, 0, 0)
    assert (following.partitions, following.late_events) == (2, 5)


def test_what_a_killed_instance_knew_does_not_come_back_when_its_successor_stops(tmp_path):
    folder = StatusFolder(tmp_path, QueryInstanceStatus)
    folder.write(replace(QUERIES, instance="killed", updated_ms=NOW_MS - STALE_MS))
    folder.write(replace(QUERIES, instance="next").ended(State.STOPPED))
    killed, stopped = folder.read()
    assert (killed.partitions, killed.windows, killed.late_events) == (0, 0, 0)
    assert (stopped.owned, stopped.late_events) == ((), 5)


def test_only_what_running_instances_of_a_mirror_refuse_is_refused_now(tmp_path):
    folder = StatusFolder(tmp_path, MirrorStatus)
    for instance, name, state, refused in (
        ("a", "warsaw", State.RUNNING, {"clicks/0": "too large"}),
        ("b", "warsaw", State.WAITING, {"clicks/1": "a time ahead"}),
        ("c", "warsaw", State.STOPPED, {"clicks/2": "too large"}),
        ("d", "gdansk", State.RUNNING, {"clicks/3": "too large"}),
    ):
        status = replace(MIRROR, name=name, state=state, instance=instance, refused=refused)
        folder.write(status)
    assert refused_now(folder, "warsaw") == {"clicks/0": "too large", "clicks/1": "a time ahead"}


def test_counts_of_a_dispatcher_are_those_of_all_targets():
    routes = DISPATCHER.sites
    assert DispatcherStatus.of("d", routes) == replace(
        DISPATCHER,
        instance=DispatcherStatus.of("d", {}).instance,
        updated_ms=DispatcherStatus.of("d", {}).updated_ms,
    )
    assert (DISPATCHER.lag_records, DISPATCHER.waiting_sites) == (7, 1)


def test_a_merger_that_waits_for_an_unknown_time_has_no_age():
    assert MERGER.sorted_to_age_seconds == 2.5
    assert replace(MERGER, waits_for={"clicks/1": ["par.clicks/1"]}).sorted_to_age_seconds is None
    assert replace(MERGER, waits_for={"clicks/0": [], "clicks/1": []}).sorted_to_age_seconds == 0
