"""Clicks with their impressions, on the real broker and Spark."""

import json
import uuid
from collections import Counter
from datetime import timedelta

import pytest
from deltalake import DeltaTable
from tests.integration.flow import NOW_MS, Flow
from tests.integration.test_sinks import records

from headrace import EpochMillis, Join, Kafka, Lake, Match, Topic
from headrace.errors import SinkUnavailableError
from headrace.service.status import State
from headrace.sinks.lake.driver import LakeDriver

PARTITIONS = 2
MINUTE_MS = 60_000
BEGIN_MS = NOW_MS - 10_000 * MINUTE_MS


class Impression:
    id: str
    user: str
    at: EpochMillis
    price: float


class Click:
    id: str
    user: str
    at: EpochMillis
    impression_id: str


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path, partitions=PARTITIONS)


class Site:
    """Topics of clicks and impressions, keyed by user."""

    def __init__(self, flow, **declared):
        self.flow, suffix = flow, uuid.uuid4().hex[:8]
        settings = {"key": "user", "event_time": "at", "partitions": PARTITIONS}
        self.clicks, self.impressions = (
            Topic(f"{name}-{suffix}", event=event, **(settings | declared))
            for name, event in (("clicks", Click), ("impressions", Impression))
        )
        for topic in (self.clicks, self.impressions):
            flow.create(topic.name, PARTITIONS)
            flow.create(topic.dead_letters, 1)

    def pipeline(
        self,
        name="joined",
        unmatched=None,
        match=Match.ID,
        wait=timedelta(minutes=10),
        partition_by=(),
        **changes,
    ):
        join = Join(
            self.clicks,
            self.impressions,
            on=("impression_id", "id") if match is Match.ID else ("user", "user"),
            column="impression",
            within=timedelta(hours=1),
            wait=wait,
            match=match,
            unmatched=unmatched,
        )
        sink = Lake("joined", partition_by=partition_by)
        return self.flow.pipeline(name, source=join, sink=sink, **changes)

    def impression(self, n, minute=None, **changes):
        at = BEGIN_MS + (n if minute is None else minute) * MINUTE_MS
        return {"id": f"i{n}", "user": f"u{n % 7}", "at": at, "price": n / 2} | changes

    def click(self, n, minute=None, **changes):
        at = BEGIN_MS + (n if minute is None else minute) * MINUTE_MS + 1000
        user = f"u{n % 7}"
        return {"id": f"c{n}", "user": user, "at": at, "impression_id": f"i{n}"} | changes

    def send(self, topic, events):
        events = list(events)
        keys = [event["user"].encode() for event in events]
        self.flow.send([json.dumps(e).encode() for e in events], topic=topic.name, keys=keys)

    def run(self, pipeline=None, **options):
        pipeline = pipeline or self.pipeline()
        outcome = self.flow.run(pipeline, **options)[pipeline.name]
        assert outcome.state is State.FINISHED, outcome.reason
        return outcome

    def joined(self):
        """Id of each click, with that of its impression."""
        rows = self.flow.rows("joined")
        found = {row["id"]: row["impression"] and row["impression"]["id"] for row in rows}
        assert len(found) == len(rows)
        return found


@pytest.fixture
def site(flow):
    return Site(flow)


def pairs(*numbers):
    return {f"c{n}": f"i{n}" for n in numbers}


def test_clicks_find_impressions_of_earlier_batches_and_of_later_ones(site):
    site.send(site.impressions, map(site.impression, range(30)))
    site.send(site.clicks, map(site.click, range(0, 20, 2)))
    site.run()
    assert site.joined() == pairs(*range(0, 20, 2))
    commits = DeltaTable(f"{site.flow.lake}/joined").history()
    known = {commit["headrace"].get("complete_until") for commit in commits if "headrace" in commit}
    assert known == {None}  # rows of those that wait are still to come
    site.send(site.clicks, [site.click(21), site.click(31)])
    site.run()
    assert site.joined() == pairs(*range(0, 20, 2), 21)
    site.send(site.impressions, [site.impression(31)])
    site.run()
    assert site.joined() == pairs(*range(0, 20, 2), 21, 31)
    row = next(row for row in site.flow.rows("joined") if row["id"] == "c31")
    assert row["impression"]["price"] == 15.5


def test_the_columns_of_the_table_do_not_judge_the_earlier_event(site):
    """Its id is no text that can name a directory, and it is no column of the table."""
    site.send(site.impressions, [site.impression(1, id="i/1"), site.impression(2)])
    site.send(site.clicks, [site.click(n, impression_id=id_) for n, id_ in ((1, "i/1"), (2, "i2"))])
    outcome = site.run(site.pipeline(partition_by=["id"]))
    assert site.joined() == {"c1": "i/1", "c2": "i2"}
    assert outcome.dead_letters == 0


def test_late_events_of_both_topics_are_counted_and_joined(site):
    pipeline = site.pipeline(allowed_lateness=timedelta(minutes=5))
    site.send(site.impressions, [site.impression(n) for n in range(14)])
    site.send(site.clicks, [site.click(n) for n in range(14)])
    assert site.run(pipeline).late_rows == 0
    site.send(site.impressions, [site.impression(20, minute=1)])
    late = [site.click(0, minute=1, id="c0-late"), site.click(20, minute=1)]
    site.send(site.clicks, [*late, site.click(13, id="c13-again")])
    assert site.run(pipeline).late_rows == 3
    expected = pairs(*range(14), 20) | {"c0-late": "i0", "c13-again": "i13"}
    assert site.joined() == expected


def test_a_click_is_unmatched_once_when_the_time_of_its_impression_is_over(site):
    site.send(site.impressions, [site.impression(n) for n in range(14)])
    site.send(site.clicks, [site.click(n, minute=5, impression_id="none") for n in range(7)])
    site.run()
    assert site.joined() == {}
    site.send(site.impressions, [site.impression(n, user=f"u{n % 7}") for n in range(100, 200)])
    site.run()
    site.run()
    assert site.joined() == {f"c{n}": None for n in range(7)}


def test_an_impression_that_comes_again_is_one_and_with_other_values_a_dead_letter(site):
    site.send(site.impressions, [site.impression(n) for n in range(50)])
    site.run()
    site.send(site.impressions, [site.impression(1), site.impression(2, price=99.0)])
    site.send(site.clicks, [site.click(1), site.click(2)])
    outcome = site.run()
    assert site.joined() == pairs(1, 2)
    prices = {row["impression"]["price"] for row in site.flow.rows("joined")}
    assert prices == {0.5, 1.0}
    letters = site.flow.dead(site.impressions.name)
    assert Counter(stored.letter.reason for stored in letters) == {"conflicting-key": 1}
    assert outcome.dead_letters == 1


@pytest.mark.parametrize("steps", [[], [lambda rows: rows.where("id != ''")]])
def test_a_crash_at_the_commit_repeats_nothing(site, monkeypatch, steps):
    """One is before any commit of the batch, the other behind it."""
    commit, crashes = LakeDriver.commit, [True, True]

    def crashing(self, *arguments):
        done = commit(self, *arguments) if len(crashes) == 1 else None
        if crashes:
            crashes.pop()
            raise SinkUnavailableError("table", "the driver was killed here")
        return done or commit(self, *arguments)

    monkeypatch.setattr(LakeDriver, "commit", crashing)
    site.send(site.impressions, map(site.impression, range(60)))
    site.send(site.clicks, map(site.click, range(0, 60, 3)))
    outcome = site.run(site.pipeline(steps=steps))
    assert (outcome.restarts, crashes) == (2, [])
    assert site.joined() == pairs(*range(0, 60, 3))


@pytest.mark.parametrize("steps", [[], [lambda rows: rows.where("id != ''")]])
def test_unmatched_clicks_go_to_a_table_of_their_own(site, monkeypatch, steps):
    """Also with a crash after their commit, before that of the others, and one after that.

    Behind theirs is one without rows: it says that their batch counts in the ledger.
    """
    commit, committed = LakeDriver.commit, []

    def crashing(self, *arguments):
        done = commit(self, *arguments)
        committed.append(self)
        if len(committed) in {1, 2}:
            raise SinkUnavailableError("table", "the driver was killed here")
        return done

    site.send(site.impressions, map(site.impression, range(60)))
    site.send(site.clicks, map(site.click, range(0, 60, 3)))
    site.send(site.clicks, [site.click(n, minute=5, impression_id="none") for n in range(70, 77)])
    pipeline = site.pipeline(unmatched=Lake("unmatched"), steps=steps)
    monkeypatch.setattr(LakeDriver, "commit", crashing)
    assert site.run(pipeline).restarts == 2
    site.send(site.impressions, [site.impression(n) for n in range(100, 200)])
    site.run(pipeline)
    site.run(pipeline)
    assert len(committed) == 4
    assert site.joined() == pairs(*range(0, 60, 3))
    rows = site.flow.rows("unmatched")
    assert sorted(row["id"] for row in rows) == [f"c{n}" for n in range(70, 77)]
    assert "impression" not in rows[0]


def test_unmatched_clicks_go_to_a_topic(site):
    target = Topic(f"unmatched-{uuid.uuid4().hex[:8]}", event=Click, event_id="id")
    site.flow.create(target.name, 1)
    pipeline = site.pipeline(unmatched=Kafka(target))
    site.send(site.impressions, map(site.impression, range(10)))
    site.send(site.clicks, [site.click(1), *(site.click(n, minute=5) for n in range(70, 77))])
    site.run(pipeline)
    site.send(site.impressions, [site.impression(n) for n in range(100, 200)])
    site.run(pipeline)
    site.run(pipeline)
    assert site.joined() == pairs(1)
    sent = [json.loads(record.value()) for record in records(site.flow.client, target.name)]
    assert sorted(event["id"] for event in sent) == [f"c{n}" for n in range(70, 77)]


def test_a_click_comes_with_the_last_impression_of_its_user(site):
    """A tenth of the users have none, and one of them has all that others have together."""
    users = [f"u{n % 5}" for n in range(100)]
    site.send(site.impressions, [site.impression(n, user=users[n]) for n in range(100)])
    asked = [site.click(n, user=users[n % 10]) for n in range(7, 60, 7)]
    none = site.click(20, user="nobody")
    site.send(site.clicks, [*asked, none])
    pipeline = site.pipeline(match=Match.LAST)
    site.run(pipeline)
    site.send(site.impressions, [site.impression(n, user=users[n]) for n in range(0, 100, 9)])
    site.send(site.impressions, [site.impression(n, user=f"u{n % 7}") for n in range(300, 400)])
    site.run(pipeline)
    site.run(pipeline)
    expected = {"c20": None} | {
        click["id"]: max(
            (n for n in range(100) if users[n] == click["user"] and n <= int(click["id"][1:])),
        )
        for click in asked
    }
    found = site.joined()
    assert found == {
        id_: number if number is None else f"i{number}" for id_, number in expected.items()
    }
