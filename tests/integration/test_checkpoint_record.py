"""What a checkpoint records of its query: the same in every run, another one where state is."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from pyspark.sql import functions as F  # noqa: N812
from tests.integration.flow import Flow, click

from headrace import Lake, Pipeline, Topic, count_windows, deduplicate
from headrace.pipelines.start.query_plan import query_record
from headrace.service.status import State

HOUR = timedelta(hours=1)


def filtered(rows):
    return rows.where("n >= 0")


def counted(rows):
    return rows.withWatermark("event_time", "1 hour").groupBy("category", "event_time").count()


def counted_otherwise(rows):
    return counted(rows.withColumn("category", F.upper("category")))


def together(left, right):
    return left.unionByName(right)


CHANGES = {
    "keys": (
        [deduplicate(["event_id"], HOUR)],
        [deduplicate(["category"], HOUR)],
        ("deduplicate.by", '["event_id"]', '["category"]'),
    ),
    "windows": (
        [count_windows(HOUR)],
        [count_windows(2 * HOUR)],
        ("count_windows.every", '"1:00:00"', '"2:00:00"'),
    ),
    "added": ([filtered], [deduplicate(["n"], HOUR)], ("transforms with state", "[]", '["dedup')),
    "removed": ([deduplicate(["n"], HOUR)], [filtered], ("transforms with state", '["dedup', "[]")),
    "function": (
        [counted],
        [counted_otherwise],
        ("Aggregate.by", '["category", "event_time"]', '["upper(category)", "event_time"]'),
    ),
}


def test_a_start_with_other_state_is_refused_and_loses_nothing(broker, spark, tmp_path):
    flow = Flow(broker, spark, tmp_path, partitions=1)

    def pipelines(which):
        return [
            flow.pipeline(name, sink=Lake(name, partition_by=()), steps=change[which])
            for name, change in CHANGES.items()
        ]

    flow.send([click(n) for n in range(3)])
    assert {one.state for one in flow.run(*pipelines(0)).values()} == {State.FINISHED}
    flow.send([click(n) for n in range(3, 6)])
    outcomes = flow.run(*pipelines(1))
    assert {one.state for one in outcomes.values()} == {State.REFUSED}
    for name, (_, _, facts) in CHANGES.items():
        assert all(fact in outcomes[name].reason for fact in facts), outcomes[name].reason
        assert f"`headrace checkpoint reset {name} --to table`" in outcomes[name].reason
        assert outcomes[name].restarts == 0
    assert {one.state for one in flow.run(*pipelines(0)).values()} == {State.FINISHED}
    assert flow.ids("keys") == {f"e{n}": 1 for n in range(6)}


def test_two_sources_that_change_places_are_named_and_go_on_after_the_remedy(
    broker, spark, tmp_path
):
    flow = Flow(broker, spark, tmp_path, partitions=1)
    other = replace(flow.topic, name=f"{flow.name}-b")
    for topic in (other.name, other.dead_letters):
        flow.create(topic, 1)
    flow.send([click(0)])
    flow.send([click(1)], topic=other.name)

    def run(*sources):
        sink = Lake("both", partition_by=())
        return flow.run(flow.pipeline("both", source=sources, sink=sink, steps=[together]))["both"]

    assert run(flow.topic, other).state is State.FINISHED
    swapped = run(other, flow.topic)
    assert swapped.state is State.REFUSED
    names = (json.dumps([flow.name, other.name]), json.dumps([other.name, flow.name]))
    assert all(text in swapped.reason for text in ("order of sources", *names)), swapped.reason
    flow.reset(flow.pipeline("both", source=[other, flow.topic], sink=Lake("both")), "table")
    flow.send([click(2)])
    assert run(other, flow.topic).state is State.FINISHED
    assert flow.ids("both") == {f"e{n}": 1 for n in range(3)}


@pytest.fixture
def recorded(spark, monkeypatch):
    """``recorded(step)``: the operators of a step after a source, which is built each time."""
    monkeypatch.setattr("headrace.pipelines.start.query_plan.source_name", lambda _, topic: topic)
    pipeline = Pipeline("p", source=Topic("rate"), sink=Lake("p"))

    def operators(step):
        rows = spark.readStream.format("rate").load()
        rows = rows.withColumn("k", F.col("value").cast("string"))
        return query_record(pipeline, step(rows.withWatermark("timestamp", "1 hour"))).operators

    return operators


def test_what_is_recorded_is_the_same_each_time_and_names_what_state_depends_on(recorded):
    def windows(rows):
        return rows.groupBy(F.window("timestamp", "2 hours", "1 hour"), "k").agg(F.sum("value"))

    assert recorded(windows) == recorded(windows)
    (aggregate,) = recorded(windows)
    assert aggregate["name"] == "Aggregate"
    assert aggregate["values"] == ["sum(value)"]
    assert aggregate["event_time"] == ["timestamp"]
    window, key = aggregate["by"]
    assert window.startswith("window(timestamp")
    lengths = {"3600000000L", "7200000000L"}
    assert {*lengths, "2 of each row"} <= set(window[:-1].split(", "))
    assert key == "cast(value as STRING)"


def test_a_column_and_a_filter_beside_the_state_change_nothing(recorded):
    def unique(rows):
        return rows.dropDuplicates(["k"])

    def unique_of_some(rows):
        some = rows.withColumn("more", F.rand()).where("value > 1").sample(0.5)
        return unique(some).hint("broadcast").drop("more")

    assert recorded(unique) == recorded(unique_of_some)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (lambda rows: rows.dropDuplicates(["k"]), lambda rows: rows.dropDuplicates(["value"])),
        (
            lambda rows: rows.groupBy("k").agg(F.sum("value")),
            lambda rows: rows.groupBy("k").agg(F.max("value")),
        ),
        (
            lambda rows: rows.groupBy(F.session_window("timestamp", "1 hour")).count(),
            lambda rows: rows.groupBy(F.session_window("timestamp", "2 hours")).count(),
        ),
        (
            lambda rows: rows.join(rows.select(F.col("k").alias("j")), F.expr("k = j")),
            lambda rows: rows.join(rows.select(F.upper("k").alias("j")), F.expr("k = j")),
        ),
    ],
    ids=["keys", "function", "session", "join"],
)
def test_what_changes_the_meaning_of_state_is_another_record(recorded, before, now):
    assert recorded(before) != recorded(now)
