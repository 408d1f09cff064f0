"""The driver is killed at random moments; the lake must hold every event exactly once."""

import time

import pytest
from tests.acceptance.project import Project, kill_session, wait_for

TABLES = ("fused", "stepped")


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_kills_of_the_driver_lose_and_repeat_nothing(start_cluster, tmp_path, drill_run):
    """Both paths at once. After each kill, committed offsets must not have passed what is there."""
    events = drill_run.size(short=60_000, long=200_000)
    kills = drill_run.size(short=1, long=10)
    project = Project(tmp_path / "drill", start_cluster().bootstrap_servers, batch=5_000)
    project.call("apply")
    project.send(0, events, bad=b"not json")
    for _ in range(kills):
        before = {name: one["updated_ms"] for name, one in project.statuses().items()}
        process = project.start("run", "--once")
        try:
            wait_for(lambda seen=before: moved(project, seen), "a batch of the restarted run")
            time.sleep(drill_run.random.uniform(0.0, 2.5))
        finally:
            kill_session(process)
        nothing_is_committed_that_is_nowhere(project)
    project.call("run", "--once")
    good = {f"e{n}": 1 for n in range(events) if n % 1000}
    for table in TABLES:
        assert project.ids(table) == good
        dead = project.dead_offsets(table)
        assert len(dead) == len(set(dead)) == events // 1000
    nothing_is_committed_that_is_nowhere(project)
    drill_run.report(events=events, kills=kills)


def moved(project, before):
    """A batch of this run has ended, or all have."""
    return any(
        one["updated_ms"] != before.get(name) and (one["batches"] or one["state"] == "finished")
        for name, one in project.statuses().items()
    )


def nothing_is_committed_that_is_nowhere(project):
    for table in TABLES:
        committed = project.committed(table)
        landed = project.offsets(table)
        for p, at in project.dead_offsets(table):
            landed[p].add(at)
        for p, upto in committed.items():
            missing = set(range(upto)) - landed[p]
            assert not missing, f"{table}[{p}]: committed {upto}, nowhere: {sorted(missing)[:5]}"
