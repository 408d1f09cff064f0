"""The driver of joins is killed at random moments; each event must end in one fate, once."""

import json
import shutil
import time
from collections import Counter

import pytest
from tests.acceptance.project import Project, kill_session, wait_for
from tests.acceptance.test_driver_killed import moved
from tests.acceptance.test_ledger_killed import fates, reconciled

from headrace.kafka.client import producer
from headrace.kafka.dead_letters import scan
from headrace.sinks.lake.table import read_table

FLOW = """
from datetime import timedelta
from headrace import BatchLimits, EpochMillis, Join, Lake, Match, Pipeline, Topic


class Impression:
    id: str
    user: str
    at: EpochMillis


class Click:
    id: str
    user: str
    at: EpochMillis
    impression_id: str


def topic(name, event):
    return Topic(
        name, event=event, key="user", event_id="id", event_time="at", partitions=4
    )


impressions, clicks = topic("impressions", Impression), topic("clicks", Click)
limits = BatchLimits(max_records=3_000, max_wait=timedelta(milliseconds=200))
times = {"within": timedelta(hours=1), "wait": timedelta(seconds=4)}


def joined(name, on, match, **options):
    join = Join(
        clicks, impressions, on, "impression", match=match, unmatched=Lake(f"un{name}"), **times
    )
    return Pipeline(name, join, Lake(name), limits=limits, **options)


by_id = joined("by_id", ("impression_id", "id"), Match.ID)
stepped = joined(
    "stepped", ("impression_id", "id"), Match.ID, steps=[lambda rows: rows.where("id != ''")]
)
last = joined("last", ("user", "user"), Match.LAST)
"""


class Site:
    """What is sent, and what must become of it."""

    def __init__(self, rng, count):
        begin = int(time.time() * 1000) - 10 * count - 60_000
        self.impressions, self.clicks = [], []
        self.by_id, self.last = {}, {}
        self.conflicting = 0
        newest = {}
        for n in range(count):
            user = f"u{rng.randrange(20) if n % 2 else 0}"  # one user with half of all
            seen = {"id": f"i{n}", "user": user, "at": begin + n * 10}
            self.impressions.append(seen)
            if n % 100 == 1:
                self.impressions.append(seen)
            if n % 1000 == 2:
                self.impressions.append(seen | {"at": seen["at"] + 1})
                self.conflicting += 1
            newest[user] = seen["id"]
            if n % 20 == 0:
                named = rng.choice([seen["id"], seen["id"], seen["id"], "none"])
                click = {"id": f"c{n}", "user": user, "at": seen["at"] + 5, "impression_id": named}
                # Some come before their impression: topics are sent side by side.
                self.clicks.insert(len(self.clicks) - rng.choice([0, 0, 0, 3]), click)
                self.by_id[click["id"]] = None if named == "none" else named
                self.last[click["id"]] = newest[user]

    def send(self, client, part, parts):
        sender = producer(client)
        for topic, events in (("clicks", self.clicks), ("impressions", self.impressions)):
            size = -(-len(events) // parts)
            for event in events[part * size : (part + 1) * size]:
                sender.produce(topic, json.dumps(event).encode(), key=event["user"])
                sender.poll(0)
        assert sender.flush(60) == 0


def table(project, name):
    """Id of each click, with that of its impression."""
    rows = read_table(f"{project.lake}/{name}").to_pylist()
    ids = Counter(row["id"] for row in rows)
    assert set(ids.values()) <= {1}, ids.most_common(3)
    return {row["id"]: (row.get("impression") or {}).get("id") for row in rows}


@pytest.mark.drill
@pytest.mark.timeout(1500)
def test_kills_of_the_driver_lose_and_repeat_no_click(
    start_cluster, tmp_path, drill_run, monkeypatch
):
    """By id fused and behind a step, and the last of a user; a machine loses its indexes, too."""
    count = drill_run.size(short=20_000, long=200_000)
    kills = drill_run.size(short=1, long=10)
    indexes = tmp_path / "indexes"
    indexes.mkdir()
    monkeypatch.setenv("TMPDIR", str(indexes))
    project = Project(tmp_path / "drill", start_cluster().bootstrap_servers)
    (project.folder / "flow.py").write_text(FLOW)
    project.call("apply")
    site = Site(drill_run.random, count)
    parts = kills + 1
    for part in range(kills):
        site.send(project.client, part, parts)
        before = {name: one["updated_ms"] for name, one in project.statuses().items()}
        process = project.start("run", "--once")
        try:
            wait_for(lambda seen=before: moved(project, seen), "a batch of the restarted run")
            time.sleep(drill_run.random.uniform(0.0, 2.5))
        finally:
            kill_session(process)
        reconciled(project)
        if not drill_run.long or drill_run.random.random() < 0.5:
            for folder in indexes.glob("headrace-join-*"):
                shutil.rmtree(folder)
    site.send(project.client, kills, parts)
    for _ in range(3):  # what waits at the end comes out when time alone has passed
        project.call("run", "--once")
        time.sleep(5)
    for name, expected in (("by_id", site.by_id), ("stepped", site.by_id), ("last", site.last)):
        matched = {id_: other for id_, other in expected.items() if other is not None}
        assert table(project, name) == matched
        if name != "last":
            assert table(project, f"un{name}").keys() == expected.keys() - matched.keys()
    letters = Counter(letter.pipeline for letter in scan(project.client, "impressions"))
    assert letters == {"by_id": site.conflicting, "stepped": site.conflicting}
    balances = reconciled(project)
    views, clicks = len(site.impressions), len(site.clicks)
    matched = sum(other is not None for other in site.by_id.values())
    for name in ("by_id", "stepped"):
        assert fates(balances[name]) == {
            "read": views + clicks,
            "kept": count,
            "deduplicated": views - count - site.conflicting,
            "dead": site.conflicting,
            "out": matched,
            "unmatched": clicks - matched,
        }
    assert fates(balances["last"]) == {"read": views + clicks, "kept": views, "out": clicks}
    drill_run.report(events=len(site.impressions) + len(site.clicks), kills=kills)
