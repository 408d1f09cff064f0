"""The driver is killed at random moments; the lake must hold every event exactly once."""

import pytest
from tests.acceptance.project import Project

TABLES = ("fused", "stepped")


@pytest.mark.drill(always=True)
@pytest.mark.timeout(1500)
def test_kills_of_the_driver_lose_and_repeat_nothing(broker, topic, tmp_path, drill_run):
    """Both paths at once. After each kill, committed offsets must not have passed what is there."""
    events = drill_run.size(short=12_000, long=200_000)
    kills = drill_run.size(short=1, long=10)
    batch = drill_run.size(short=2_000, long=5_000)
    folder = tmp_path / "drill"
    project = Project(folder, broker.bootstrap_servers, topic=topic(), batch=batch)
    project.call("apply")
    project.send(0, events, bad=b"not json")
    for _ in range(kills):
        project.kill_a_run(drill_run.random)
        for table in TABLES:
            nothing_is_committed_that_is_nowhere(project, table)
    project.call("run", "--once")
    good = {f"e{n}": 1 for n in range(events) if n % 1000}
    for table in TABLES:
        assert project.ids(table) == good
        dead = project.dead_offsets(table)
        assert len(dead) == len(set(dead)) == events // 1000
        nothing_is_committed_that_is_nowhere(project, table)
        assert project.committed(table) == project.ends()
    drill_run.report(events=events, kills=kills)


def nothing_is_committed_that_is_nowhere(project, table, *, drops=lambda n: False):
    """Each offset before those committed is in the table, a dead letter, or dropped by a step."""
    committed = project.committed(table)
    landed = project.offsets(table)
    for p, at in project.dead_offsets(table):
        landed[p].add(at)
    for p, upto in committed.items():
        missing = set(range(upto)) - landed[p]
        missing = {at for at in missing if not drops(project.numbers[p, at])}
        assert not missing, f"{table}[{p}]: committed {upto}, nowhere: {sorted(missing)[:5]}"
