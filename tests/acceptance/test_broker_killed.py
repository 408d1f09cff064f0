"""The broker of a running pipeline dies, stays away for a minute, and stops answering."""

import threading
import time

import pytest
from tests.acceptance.project import Project, kill_session
from tests.waiting import DRILL_LIMIT_SECONDS, wait_for_drill

PARTS = 30  # of what is sent while the broker is killed


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_a_broker_that_dies_stays_away_or_stops_answering_loses_and_repeats_nothing(
    start_cluster, tmp_path, drill_run
):
    events = drill_run.size(short=12_000, long=60_000)
    at_once = drill_run.size(short=8_000, long=20_000)
    batch = drill_run.size(short=500, long=2_000)
    away_seconds = drill_run.size(short=20, long=60)
    running = start_cluster()
    project = Project(tmp_path / "drill", running.bootstrap_servers, batch=batch)
    project.call("apply")
    a_run_goes_on_behind_kills(running, project, events, away_seconds)
    assert_landed_once(project, events)
    project.send(events, at_once)
    run_once_waits_for_a_broker_that_stops_answering(running, project, events, away_seconds)
    assert_landed_once(project, events + at_once)
    drill_run.report(events=events + at_once, kills=2, away_seconds=away_seconds)


def a_run_goes_on_behind_kills(running, project, events, away_seconds):
    sender = threading.Thread(target=send_slowly, args=(project, events))
    project.send(0, events // PARTS)
    process = project.start("run")
    try:
        wait_for_drill(lambda: landed(project) > 0, "the first rows")
        sender.start()
        running.cluster.kill(1)
        running.cluster.start_broker(1)
        seen = landed(project)
        wait_for_drill(lambda: landed(project) > seen, "rows after the restart")
        running.cluster.kill(1)
        time.sleep(away_seconds)
        assert process.poll() is None, project.output()
        running.cluster.start_broker(1)
        sender.join(DRILL_LIMIT_SECONDS)
        assert not sender.is_alive()
        wait_for_drill(lambda: landed(project) >= events, "the rest")
        assert process.poll() is None, project.output()
        process.terminate()
        assert process.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
    finally:
        kill_session(process)


def run_once_waits_for_a_broker_that_stops_answering(running, project, before, silent_seconds):
    """What the topic held when the run began is its target: it never says finished before that."""
    process = project.start("run", "--once")
    try:
        wait_for_drill(lambda: landed(project) > before, "the first rows")
        running.cluster.pause(1)
        try:
            time.sleep(silent_seconds)
            assert process.poll() is None, project.output()
        finally:
            running.cluster.resume(1)
        assert process.wait(DRILL_LIMIT_SECONDS) == 0, project.output()
    finally:
        kill_session(process)


def send_slowly(project, events):
    """All parts but the first one."""
    for first in range(events // PARTS, events, events // PARTS):
        project.send(first, events // PARTS)
        time.sleep(0.5)


def landed(project):
    """Rows in the table that has fewest."""
    found = [sum(map(len, project.offsets(table).values())) for table in ("fused", "stepped")]
    return min(found)


def assert_landed_once(project, events):
    expected = {f"e{n}": 1 for n in range(events)}
    assert project.ids("fused") == expected
    assert project.ids("stepped") == expected
