"""Pipelines into PostgreSQL and into another topic: fused, behind steps, and repeated."""

import json
import shutil
import uuid
from collections import Counter
from dataclasses import replace
from datetime import datetime

import psycopg
import pytest
from tests.integration.flow import Flow, click
from tests.integration.test_sinks import records
from tests.kafka_topics import grow_topic

from headrace import Guarantee, Kafka, Metadata, OnNull, Postgres, Source, Topic, WriteMode
from headrace.errors import NothingCommittedError
from headrace.kafka.admin.topics import Action, TopicChange, apply_changes
from headrace.service.status import State
from headrace.settings import KafkaSettings, Secret

PATHS = ("fused", "stepped")
COLUMNS = "event_id text, event_time timestamptz, category varchar(4), n int, price numeric"


class Enriched:
    event_id: str
    event_time: datetime
    category: str
    n: int
    price: float | None


class Doubled(Enriched):
    double: int


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path)


class Database:
    """A database with table ``clicks`` that the flow's settings name."""

    def __init__(self, flow, url, columns):
        self.url = url
        flow.sinks = {"postgres": {"url": Secret(url)}}
        self.execute(f"CREATE TABLE clicks ({columns})")

    def execute(self, statement):
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def ids(self):
        return Counter(event_id for (event_id,) in self.execute("SELECT event_id FROM clicks"))


@pytest.fixture
def database(flow, postgres):
    def made(columns):
        url = postgres.create_database(f"flow_{uuid.uuid4().hex[:8]}")
        return Database(flow, url, columns)

    return made


def built(flow, path, sink, **changes):
    return getattr(flow, "pipeline" if path == "fused" else path)(path, sink=sink, **changes)


@pytest.mark.parametrize("path", PATHS)
def test_rows_are_in_postgresql_once_also_when_their_batch_is_repeated(flow, path, database):
    rows = database(COLUMNS if path == "fused" else f"{COLUMNS}, double bigint")
    flow.send(
        [click(n) for n in range(500)] + [b"not json", click(7, event_id="x", category="too long")]
    )
    pipeline = built(flow, path, Postgres("clicks"))
    outcome = flow.run(pipeline)[path]
    assert outcome.state is State.FINISHED, outcome.reason
    assert (outcome.rows_out, outcome.dead_letters) == (500, 2)
    assert rows.ids() == Counter(f"e{n}" for n in range(500))
    [row] = rows.execute("SELECT category, n, price, event_time FROM clicks WHERE event_id = 'e7'")
    assert (row[0], row[1], float(row[2])) == ("c1", 7, 1.75)
    flow.forget_newest_commit(path)
    flow.send([click(n) for n in range(500, 600)])
    outcome = flow.run(pipeline)[path]
    assert outcome.state is State.FINISHED, outcome.reason
    assert rows.ids() == Counter(f"e{n}" for n in range(600))
    reasons = Counter(stored.letter.reason for stored in flow.dead())
    assert reasons == {"not-json": 1, "wrong-value": 1}
    assert (
        rows.execute("SELECT 1 FROM pg_class WHERE relname LIKE 'staging_%' AND relkind = 'r'")
        == []
    )
    assert flow.committed(path) == flow.latest()


def test_the_last_change_of_a_key_wins_however_many_tasks_read_its_partition(flow, database):
    rows = database(f"{COLUMNS}, PRIMARY KEY (event_id), CHECK (n <> 13)")
    sink = Postgres("clicks", mode=WriteMode.UPSERT, key=("event_id",))
    pipeline = flow.pipeline("fused", source=Source(flow.topic, min_tasks=4), sink=sink)
    changes = [click(n, event_id=f"k{n % 10}") for n in range(1_000)]
    flow.send(changes, partition=0)
    outcome = flow.run(pipeline)["fused"]
    assert outcome.state is State.FINISHED, outcome.reason
    found = dict(rows.execute("SELECT event_id, n FROM clicks"))
    assert found == {f"k{key}": 990 + key for key in range(10)}
    assert [stored.letter.reason for stored in flow.dead()] == ["check-violated"]


def test_keys_that_moved_before_an_upsert_began_are_refused_without_newest_by(flow, database):
    """Each key is sent twice, and a part of them to another partition."""
    rows = database(f"{COLUMNS}, PRIMARY KEY (event_id)")
    keys = [f"k{n}" for n in range(60)]
    for age in (0, 1):
        if age:
            grow_topic(flow.client, flow.name, 6)
        values = [click(n, event_id=key, n=age) for n, key in enumerate(keys)]
        flow.send(values, keys=[key.encode() for key in keys])
    sink = Postgres("clicks", WriteMode.UPSERT, ("event_id",))
    outcome = flow.run(flow.pipeline("fused", sink=sink))["fused"]
    assert outcome.state is State.REFUSED
    assert "newest_by" in outcome.reason
    assert not rows.ids()
    outcome = flow.run(flow.pipeline("fused", sink=replace(sink, newest_by="n")))["fused"]
    assert outcome.state is State.FINISHED, outcome.reason
    assert dict(rows.execute("SELECT event_id, n FROM clicks")) == dict.fromkeys(keys, 1)


def test_tombstones_delete_rows_however_many_tasks_read_their_partition(flow, database):
    rows = database(
        f"{COLUMNS.replace('n int', 'n int NOT NULL CHECK (n < 999)')}, PRIMARY KEY (event_id)"
    )
    sink = Postgres("clicks", WriteMode.UPSERT, ("event_id",), on_null=OnNull.DELETE)
    pipeline = flow.pipeline("fused", source=Source(flow.topic, min_tasks=4), sink=sink)
    changes = [(f"k{n % 10}", None if n % 7 == 3 else n) for n in range(1_000)]
    for first in (0, 500):
        part = changes[first : first + 500]
        values = [n if n is None else click(n, event_id=key) for key, n in part]
        flow.send([*values, None], partition=0, keys=[*(key.encode() for key, _ in part), b"\xff"])
        outcome = flow.run(pipeline)["fused"]
        assert outcome.state is State.FINISHED, outcome.reason
        last = {key: n for key, n in changes[: first + 500] if n != 999}
        left = {key: n for key, n in last.items() if n is not None}
        assert dict(rows.execute("SELECT event_id, n FROM clicks")) == left
        assert 0 < len(left) < 10
        flow.forget_newest_commit("fused")
    reasons = Counter(stored.letter.reason for stored in flow.dead())
    assert reasons == {"check-violated": 1, "bad-key": 2}


def test_tombstones_that_compaction_may_have_removed_unread_are_refused_until_accepted(
    flow, database
):
    rows = database(f"{COLUMNS}, PRIMARY KEY (event_id)")
    sink = Postgres("clicks", WriteMode.UPSERT, ("event_id",), on_null=OnNull.DELETE)
    pipeline = flow.pipeline("fused", sink=sink)
    config = {"cleanup.policy": "compact", "delete.retention.ms": "1"}
    apply_changes(flow.client, [TopicChange(flow.name, Action.ALTER_CONFIG, "", config=config)])
    flow.send([click(1), click(2)], keys=[b"e1", b"e2"])
    outcome = flow.run(pipeline)["fused"]
    assert outcome.state is State.FINISHED, outcome.reason
    flow.send([None], keys=[b"e1"])
    outcome = flow.run(pipeline)["fused"]
    assert outcome.state is State.REFUSED
    assert "delete.retention.ms" in outcome.reason
    flow.reset(pipeline, "table")
    assert flow.run(pipeline)["fused"].state is State.REFUSED
    flow.reset(pipeline, "table", accept_loss=True)
    outcome = flow.run(pipeline)["fused"]
    assert outcome.state is State.FINISHED, outcome.reason
    assert rows.ids() == {"e2": 1}


@pytest.mark.parametrize("path", PATHS)
def test_a_row_that_only_the_commit_rejects_is_a_dead_letter(flow, path, database):
    rows = database(f"{COLUMNS if path == 'fused' else COLUMNS + ', double bigint'}, UNIQUE (n)")
    flow.send([*[click(n) for n in range(50)], click(7, event_id="again")])
    outcome = flow.run(built(flow, path, Postgres("clicks")))[path]
    assert outcome.state is State.FINISHED, outcome.reason
    assert (outcome.rows_out, outcome.dead_letters) == (50, 1)
    assert sum(rows.ids().values()) == 50
    [stored] = flow.dead()
    assert (stored.letter.reason, json.loads(stored.letter.value)["n"]) == ("not-unique", 7)


def test_without_its_checkpoint_and_after_a_reset_it_goes_on_where_the_table_stands(flow, database):
    rows = database(COLUMNS)
    pipeline = built(flow, "fused", Postgres("clicks"))
    for first in (0, 100):
        flow.send([click(n) for n in range(first, first + 100)])
        if first:
            shutil.rmtree(flow.checkpoint().parent)
        outcome = flow.run(pipeline)["fused"]
        assert (outcome.state, outcome.rows_in) == (State.FINISHED, 100)
    flow.send([click(n) for n in range(200, 250)])
    flow.reset(pipeline, "table")
    outcome = flow.run(pipeline)["fused"]
    assert (outcome.state, outcome.rows_in) == (State.FINISHED, 50)
    assert rows.ids() == Counter(f"e{n}" for n in range(250))


def test_counters_are_added_up_over_batches(flow, database):
    from pyspark.sql import functions as F  # noqa: N812

    def counted(rows):
        return rows.select("category", F.lit(1).cast("bigint").alias("clicks"), "n")

    rows = database("category text PRIMARY KEY, clicks bigint, n bigint")
    sink = Postgres("clicks", mode=WriteMode.ADD, key=("category",))
    pipeline = flow.pipeline("counted", sink=sink, steps=[counted])
    for start in (0, 300):
        flow.send([click(n) for n in range(start, start + 300)])
        outcome = flow.run(pipeline)["counted"]
        assert outcome.state is State.FINISHED, outcome.reason
    found = dict(rows.execute("SELECT category, clicks FROM clicks"))
    assert found == {"c0": 200, "c1": 200, "c2": 200}


@pytest.mark.parametrize("path", PATHS)
def test_rows_are_events_of_another_topic_with_their_origin(flow, path):
    target = Topic(
        f"enriched-{uuid.uuid4().hex[:8]}",
        event=Enriched if path == "fused" else Doubled,
        key="category",
        event_id="event_id",
        event_time="event_time",
        partitions=3,
    )
    flow.create(target.name, target.partitions)
    flow.send([click(n) for n in range(300)])
    source = Source(flow.topic, metadata=(Metadata.TOPIC, Metadata.PARTITION, Metadata.OFFSET))
    pipeline = built(flow, path, Kafka(target), source=source)
    outcome = flow.run(pipeline)[path]
    assert outcome.state is State.FINISHED, outcome.reason
    assert outcome.rows_out == 300
    sent = records(flow.client, target.name)
    events = {event["event_id"]: event for event in (json.loads(r.value()) for r in sent)}
    assert (len(sent), events.keys()) == (300, {f"e{n}" for n in range(300)})
    assert events["e7"]["price"] == 1.75
    assert ("double" in events["e7"]) == (path == "stepped")
    origins = {dict(record.headers())["origin"].decode() for record in sent}
    assert len(origins) == 300
    assert all(origin.startswith(f"{flow.name}/") for origin in origins)
    flow.forget_newest_commit(path)
    outcome = flow.run(pipeline)[path]
    assert outcome.state is State.FINISHED, outcome.reason
    again = records(flow.client, target.name)
    assert len(again) == 600
    assert {dict(record.headers())["origin"].decode() for record in again} == origins


@pytest.mark.parametrize("path", PATHS)
def test_a_topic_that_is_written_exactly_once_has_a_repeated_batch_once(flow, path):
    """Its positions are a place to reset to, and to continue from without a checkpoint."""
    event = Enriched if path == "fused" else Doubled
    target = Topic(f"enriched-{uuid.uuid4().hex[:8]}", event=event, key="category", partitions=3)
    flow.create(target.name, target.partitions)
    pipeline = built(flow, path, Kafka(target, guarantee=Guarantee.EXACTLY_ONCE))

    def sent_after_a_run(expected):
        outcome = flow.run(pipeline)[path]
        assert outcome.state is State.FINISHED, outcome.reason
        sent = [
            json.loads(record.value())["event_id"] for record in records(flow.client, target.name)
        ]
        assert Counter(sent) == Counter(f"e{n}" for n in range(expected))

    flow.send([click(n) for n in range(300)])
    sent_after_a_run(300)
    flow.forget_newest_commit(path)
    sent_after_a_run(300)
    flow.send([click(n) for n in range(300, 400)])
    shutil.rmtree(flow.checkpoint(path).parent)
    sent_after_a_run(400)
    flow.send([click(n) for n in range(400, 450)])
    flow.reset(pipeline, "table")
    sent_after_a_run(450)
    assert flow.committed(path) == flow.latest()


def test_a_pipeline_that_was_at_least_once_becomes_exactly_once_behind_its_group(flow):
    target = Topic(f"enriched-{uuid.uuid4().hex[:8]}", event=Enriched)
    flow.create(target.name, 1)
    flow.send([click(n) for n in range(100)])
    assert flow.run(built(flow, "fused", Kafka(target)))["fused"].state is State.FINISHED
    exactly = built(flow, "fused", Kafka(target, guarantee=Guarantee.EXACTLY_ONCE))
    flow.send([click(n) for n in range(100, 150)])
    outcome = flow.run(exactly)["fused"]
    assert outcome.state is State.REFUSED
    assert "TABLE_BEHIND_CHECKPOINT" in outcome.reason or "lacks" in outcome.reason
    flow.reset(exactly, "committed")
    outcome = flow.run(exactly)["fused"]
    assert outcome.state is State.FINISHED, outcome.reason
    assert len(records(flow.client, target.name)) == 150


def test_a_topic_that_is_gone_loses_nothing_and_has_no_place_to_reset_to(flow):
    target = Topic(f"enriched-{uuid.uuid4().hex[:8]}", event=Enriched)
    flow.send([click(n) for n in range(10)])
    pipeline = built(flow, "fused", Kafka(target))
    # By default, a producer waits for 30 s that a topic appears.
    soon = {"topic.metadata.propagation.max.ms": "1000"}
    flow.more_settings = {"kafka": KafkaSettings(client=soon)}
    outcome = flow.run(pipeline)["fused"]
    assert (outcome.state, outcome.rows_out) == (State.REFUSED, 0)
    assert target.name in outcome.reason
    flow.more_settings = {}
    flow.create(target.name, 1)
    assert flow.run(pipeline)["fused"].state is State.FINISHED
    assert len(records(flow.client, target.name)) == 10
    with pytest.raises(NothingCommittedError, match="kafka, records no offsets"):
        flow.reset(pipeline, "table")
    flow.reset(pipeline, "latest")
    assert flow.run(pipeline)["fused"].rows_in == 0
