"""The broker dies under a running pipeline, and stays away for a minute."""

import threading
import time

import pytest
from tests.acceptance.project import Project, kill_session, wait_for


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_a_killed_broker_and_one_that_stays_away_lose_and_repeat_nothing(
    start_cluster, tmp_path, drill_run
):
    events, away_seconds = 60_000, drill_run.size(short=20, long=60)
    running = start_cluster()
    project = Project(tmp_path / "drill", running.bootstrap_servers, batch=2_000)
    project.call("apply")
    process = project.start("run")
    sender = threading.Thread(target=send_slowly, args=(project, events))
    try:
        sender.start()
        wait_for(lambda: landed(project) > 5_000, "the first rows")
        running.cluster.kill(1)
        running.cluster.start_broker(1)
        seen = landed(project)
        wait_for(lambda: landed(project) > seen, "rows after the restart")
        running.cluster.kill(1)
        time.sleep(away_seconds)
        assert process.poll() is None, project.output()
        running.cluster.start_broker(1)
        sender.join(300)
        assert not sender.is_alive()
        wait_for(lambda: landed(project) >= events, "the rest", 300)
        assert process.poll() is None, project.output()
        process.terminate()
        assert process.wait(120) == 0, project.output()
    finally:
        kill_session(process)
    expected = {f"e{n}": 1 for n in range(events)}
    assert project.ids("fused") == expected
    assert project.ids("stepped") == expected
    drill_run.report(events=events, kills=2, away_seconds=away_seconds)


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_run_once_waits_for_a_broker_that_stops_answering(start_cluster, tmp_path, drill_run):
    """What the topic held when the run began is its target: it never says finished before that."""
    events, silent_seconds = 20_000, drill_run.size(short=15, long=60)
    running = start_cluster()
    project = Project(tmp_path / "drill", running.bootstrap_servers, batch=1_000)
    project.call("apply")
    project.send(0, events)
    process = project.start("run", "--once")
    try:
        wait_for(lambda: landed(project) > 0, "the first rows")
        running.cluster.pause(1)
        try:
            time.sleep(silent_seconds)
            assert process.poll() is None, project.output()
        finally:
            running.cluster.resume(1)
        assert process.wait(300) == 0, project.output()
    finally:
        kill_session(process)
    expected = {f"e{n}": 1 for n in range(events)}
    assert project.ids("fused") == expected
    assert project.ids("stepped") == expected
    drill_run.report(events=events, silent_seconds=silent_seconds)


def send_slowly(project, events):
    for first in range(0, events, 2_000):
        project.send(first, 2_000)
        time.sleep(0.5)


def landed(project):
    """Rows in the table that has fewest."""
    found = [sum(map(len, project.offsets(table).values())) for table in ("fused", "stepped")]
    return min(found)
