"""`headrace reprocess` is killed at random beside a live run; nothing is lost or repeated."""

import time
from collections import Counter

import pytest
from deltalake import DeltaTable
from tests.acceptance.project import Project, kill_session, wait_for

from headrace.sinks.lake.table import read_table

RANGE = ("--from", "2020-01-01", "--to", "2100-01-01")


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_kills_of_a_reprocessing_beside_a_live_run_lose_and_repeat_nothing(
    start_cluster, tmp_path, drill_run
):
    events = drill_run.size(short=30_000, long=200_000)
    kills = drill_run.size(short=1, long=10)
    project = Project(tmp_path / "drill", start_cluster().bootstrap_servers, batch=5_000)
    flow = project.folder / "flow.py"
    flow.write_text(flow.read_text().replace("metadata=(", "metadata=(Metadata.TOPIC, "))
    project.call("apply")
    project.send(0, events, bad=b"not json")
    project.call("run", "--once")
    before = content(project)
    live = project.start("run")
    try:
        for number in range(kills):
            delete(project, f"n % 7 = {number % 7}")
            process = project.start("reprocess", "fused", *RANGE)
            try:
                time.sleep(drill_run.random.uniform(5.0, 25.0))
            finally:
                kill_session(process)
            project.send(events + 1000 * number + 1, 500)
            assert not (content(project, events) - before)
        project.call("reprocess", "fused", *RANGE)
        sent = events - events // 1000 + 500 * kills
        wait_for(lambda: sum(project.ids("fused").values()) >= sent, "the rows of the live run")
        assert live.poll() is None, project.output()
        live.terminate()
        assert live.wait(120) == 0, project.output()
    finally:
        kill_session(live)
    assert content(project, events) == before
    assert set(project.ids("fused").values()) == {1}
    dead = project.dead_offsets("fused")
    assert len(dead) == len(set(dead)) == events // 1000
    drill_run.report(events=events, kills=kills)


def content(project, events=None):
    rows = read_table(f"{project.lake}/fused").to_pylist()
    kept = (row for row in rows if events is None or row["n"] < events)
    return Counter(repr(sorted(row.items())) for row in kept)


def delete(project, predicate):
    """Deletes rows as another engine does; the live run commits beside it."""
    for _ in range(20):
        try:
            DeltaTable(f"{project.lake}/fused").delete(predicate)
        except Exception as error:  # noqa: BLE001  whichever conflict it is, it is tried again
            conflict = error
        else:
            return
    raise AssertionError(conflict)
