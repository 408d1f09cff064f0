"""Drivers are killed at random moments; the ledger accounts for every event all the while."""

import json
import shutil
import subprocess
import time
import uuid
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from tests.acceptance.project import HEADRACE, Project, kill_session, wait_for
from tests.acceptance.test_driver_killed import moved

FLOW = """
from datetime import timedelta
from headrace import BatchLimits, Count, EpochMillis, Lake, Pipeline, Stats, Topic
from headrace import classify, filter_rows


class Event:
    event_id: str
    event_time: EpochMillis
    category: str
    n: int


events = Topic("events", event=Event, key="event_id", event_id="event_id",
               event_time="event_time", partitions=4)
limits = BatchLimits(max_records=2_000, max_wait=timedelta(milliseconds=200))
steps = [
    classify("kind", {"fives": "n % 5 = 0"}),
    filter_rows({"sevens": "n % 7 = 0"}),
    lambda rows: rows.select("event_id", "event_time", "category", "n"),
    filter_rows({"elevens": "n % 11 = 0"}),
]


def pipeline(name, sink, **settings):
    return Pipeline(name, events, sink, limits=limits, **settings)


fused = pipeline("fused", Lake("fused", ("day", "hour")))
stepped = pipeline("stepped", Lake("stepped", ("day", "hour")), steps=steps)
counted = pipeline(
    "counted",
    Stats("counted", by=("category",), every=timedelta(seconds=10), measures={"n": Count()}),
    steps=steps,
)
"""
WINDOWS = "\n[ledger]\nwindow_seconds = 60\n"
UNBALANCED = 6


def reconciled(project):
    """What the command says of each pipeline, by name; it must find no difference."""
    answer = reconcile(project)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return {each["pipeline"]: each for each in json.loads(answer.stdout)["pipelines"]}


def reconcile(project):
    command = [HEADRACE, "reconcile", "--recount", "--json", "--project", project.folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def fates(balance):
    total = Counter(read=sum(window["read"] for window in balance["windows"]))
    for window in balance["windows"]:
        total.update(window["fates"])
    return dict(total)


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_kills_of_the_driver_leave_nothing_unaccounted_for(
    start_cluster, tmp_path, postgres, drill_run
):
    """With and without steps, into lake and PostgreSQL; a checkpoint is lost in between."""
    events = drill_run.size(short=20_000, long=100_000)
    kills = drill_run.size(short=1, long=10)
    url = postgres.create_database(f"ledger_{uuid.uuid4().hex[:8]}")
    project = Project(tmp_path / "drill", start_cluster().bootstrap_servers)
    (project.folder / "flow.py").write_text(FLOW)
    with (project.folder / "headrace.toml").open("a") as settings:
        settings.write(f'{WINDOWS}\n[sinks.postgres]\nurl = "{url}"\n')
    project.call("apply")
    project.send(0, events, bad=b"not json")
    for kill in range(kills):
        before = {name: one["updated_ms"] for name, one in project.statuses().items()}
        process = project.start("run", "--once")
        try:
            wait_for(lambda seen=before: moved(project, seen), "a batch of the restarted run")
            reconciled(project)
            time.sleep(drill_run.random.uniform(0.0, 2.5))
        finally:
            kill_session(process)
        reconciled(project)
        if kill == kills // 2:
            shutil.rmtree(Path(project.lake) / "_headrace" / "checkpoints" / "stepped")
    project.call("run", "--once")
    balances = reconciled(project)
    bad = {n for n in range(events) if n % 1000 == 0}
    dropped = {n for n in range(events) if n % 7 == 0 or n % 11 == 0} - bad
    assert fates(balances["fused"]) == {
        "read": events,
        "out": events - len(bad),
        "dead": len(bad),
    }
    for name in ("stepped", "counted"):
        assert fates(balances[name]) == {
            "read": events,
            "out": events - len(bad) - len(dropped),
            "filtered": len(dropped),
            "dead": len(bad),
        }
        assert {window["state"] for window in balances[name]["windows"]} <= {
            "balanced",
            "closing",
            "open",
        }
    the_ledger_would_have_seen_it(project, url)
    drill_run.report(events=events, kills=kills)


def the_ledger_would_have_seen_it(project, url):
    DeltaTable(f"{project.lake}/stepped").delete("event_id = 'e8'")
    with psycopg.connect(url) as connection:
        changed = connection.execute(
            "UPDATE counted SET n = n + 1 WHERE ctid = (SELECT min(ctid) FROM counted)"
        )
        assert changed.rowcount == 1
    answer = reconcile(project)
    assert answer.returncode == UNBALANCED, answer.stdout + answer.stderr
    found = {
        each["pipeline"]: [
            (difference["hop"], difference["number"])
            for window in each["windows"]
            for difference in window["differences"]
        ]
        for each in json.loads(answer.stdout)["pipelines"]
    }
    assert found == {"fused": [], "stepped": [("table", 1)], "counted": [("table", -1)]}
