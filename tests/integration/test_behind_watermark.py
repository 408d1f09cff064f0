"""Rows behind the watermark of steps with state leave by a door, on the real broker and Spark."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import functions as F  # noqa: N812
from tests.integration.flow import NOW_MS, Flow, click

from headrace import Lake, Metadata, Source, deduplicate
from headrace.service.status import State

HOUR_MS = 3_600_000
START_MS = NOW_MS // HOUR_MS * HOUR_MS - 20 * HOUR_MS
MINUTE = timedelta(minutes=1)
COUNTED = "event_id string, n long"


def at(n, hours, **changes):
    return click(n, event_time=START_MS + int(hours * HOUR_MS), **changes)


def unique(rows):
    return rows.dropDuplicates(["event_id", "event_time"])


def unique_within(rows):
    return rows.dropDuplicatesWithinWatermark(["event_id"])


def distinct(rows):
    return rows.sparkSession.sql("SELECT DISTINCT event_id, event_time FROM {rows}", rows=rows)


def unique_by_arrival(rows):
    """By another time of the records than that of their events."""
    timed = rows.withWatermark("_timestamp", "10 minutes")
    return timed.dropDuplicatesWithinWatermark(["event_id"])


def summed(rows):
    by_hour = rows.groupBy(F.window("event_time", "1 hour").alias("hour"), "category")
    return by_hour.agg(F.sum("n").alias("n")).select("hour.start", "category", "n")


def by_time(rows):
    return rows.groupBy(F.col("event_time").alias("at")).count()


def sliding(rows):
    hours = F.window("event_time", "2 hours", "1 hour").alias("hours")
    return rows.groupBy(hours).count().select("hours.start", "count")


def joined(left, right):
    """A join of two topics; columns of both sides have one name."""
    condition = F.expr("l.event_id = r.event_id AND l.event_time = r.event_time")
    return left.alias("l").join(right.alias("r"), condition).select("l.*")


def remembered(rows):
    def count(key, frames, state):
        import pandas as pd

        (before,) = state.get if state.exists else (0,)
        state.update((before + sum(map(len, frames)),))
        yield pd.DataFrame({"event_id": [key[0]], "n": list(state.get)})

    by_id = rows.groupBy("event_id")
    return by_id.applyInPandasWithState(count, COUNTED, "n long", "append", "EventTimeTimeout")


# By the step, the events that come behind: of a window only if it is over, of two windows or two
# topics twice.
BEHIND = {
    unique: ["e7", "e8", "e9"],
    unique_within: ["e7", "e8", "e9"],
    distinct: ["e7", "e8", "e9"],
    by_time: ["e7", "e8", "e9"],
    remembered: ["e7", "e8", "e9"],
    summed: ["e7", "e8"],
    sliding: ["e7", "e7", "e8", "e8"],
    joined: ["e7", "e7", "e8", "e8", "e9", "e9"],
}


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path, partitions=1)


def finished(flow, *pipelines):
    outcomes = flow.run(*pipelines)
    for outcome in outcomes.values():
        assert outcome.state is State.FINISHED, outcome.reason
    return outcomes


def letters(flow, pipeline):
    """The ids of the events in its dead letters, which all have one reason."""
    mine = [stored for stored in flow.dead() if stored.pipeline == pipeline]
    assert {stored.letter.reason for stored in mine} <= {"behind-watermark"}
    return sorted(json.loads(stored.letter.value)["event_id"] for stored in mine)


def test_no_step_with_state_drops_a_row(flow):
    source = Source(flow.topic, watermark=MINUTE)
    other = replace(flow.topic, name=f"{flow.name}-other")
    for topic in (other.name, other.dead_letters):
        flow.create(topic, 1)
    sources = {joined: [source, replace(source, topic=other)]}
    pipelines = [
        flow.pipeline(
            step.__name__,
            source=sources.get(step, source),
            sink=Lake(step.__name__),
            steps=[step],
        )
        for step in BEHIND
    ]
    for events in (
        [at(n, n) for n in range(6)],
        [at(7, 0.5), at(8, 1.5), at(9, 4.9), at(10, 6)],
    ):
        for topic in (flow.name, other.name):
            flow.send(events, topic=topic)
        outcomes = finished(flow, *pipelines)
    expected = {step.__name__: ids for step, ids in BEHIND.items()}
    assert {name: letters(flow, name) for name in expected} == expected
    for name, outcome in outcomes.items():
        assert outcome.dropped_by_watermark_rows == 0
        assert outcome.behind_watermark_rows == outcome.dead_letters == len(expected[name])


def test_a_side_table_takes_what_is_behind_the_watermark_of_event_times(flow):
    steps = {
        "unique": unique,
        "unique_within": unique_within,
        "deduplicated": deduplicate(by=["event_id"], within=timedelta(hours=2)),
        "by_arrival": unique_by_arrival,
        "summed": summed,
    }
    hours, arrival = timedelta(hours=2), Source(flow.topic, metadata=(Metadata.TIMESTAMP,))
    pipelines = [
        flow.pipeline(
            name,
            source=arrival if step is unique_by_arrival else Source(flow.topic, watermark=hours),
            sink=Lake(name),
            steps=[step],
            late_data=Lake(f"late_{name}"),
            allowed_lateness=hours,
        )
        for name, step in steps.items()
    ]
    # The newest event moves Spark's watermark, and not the event clock.
    for events in (
        [at(0, 0), at(1, 0.5), at(2, 6)],
        [at(3, 1), at(4, 2), at(5, 4.5)],
    ):
        flow.send(events)
        outcomes = finished(flow, *pipelines)
    for name in ("unique", "unique_within", "deduplicated"):
        assert (outcomes[name].late_side_rows, outcomes[name].behind_watermark_rows) == (2, 0)
        assert letters(flow, name) == []
        assert sorted(flow.ids(f"late_{name}")) == ["e3", "e4"]
        assert sorted(flow.ids(name)) == ["e0", "e1", "e2", "e5"]
    assert letters(flow, "summed") == ["e3", "e4"]
    assert outcomes["by_arrival"].late_side_rows == 0
    assert sorted(flow.ids("by_arrival")) == [f"e{n}" for n in range(6)]


def test_before_the_first_watermark_events_of_1970_and_before_leave_by_a_door(
    broker, spark, tmp_path
):
    """Spark's operators hold them against a watermark of 0."""
    earliest = datetime(1960, 1, 1, tzinfo=UTC)
    flow = Flow(broker, spark, tmp_path, partitions=1, earliest_event_time=earliest)
    hours = timedelta(hours=2)
    changes = {
        "unique": {"steps": [unique]},
        "summed": {"steps": [summed]},
        "deduplicated": {
            "steps": [deduplicate(by=["event_id"], within=hours)],
            "late_data": Lake("late"),
            "allowed_lateness": hours,
        },
    }
    source = Source(flow.topic, watermark=hours)
    pipelines = [
        flow.pipeline(name, source=source, sink=Lake(name), **more)
        for name, more in changes.items()
    ]
    flow.send([click(n, event_time=(n - 2) * HOUR_MS) for n in range(5)])
    outcomes = finished(flow, *pipelines)
    assert {each.dropped_by_watermark_rows for each in outcomes.values()} == {0}
    assert letters(flow, "unique") == ["e0", "e1", "e2"]
    assert letters(flow, "summed") == ["e0", "e1"]
    assert sorted(flow.ids("late")) == ["e0", "e1", "e2"]
    assert sorted(flow.ids("unique")) == sorted(flow.ids("deduplicated")) == ["e3", "e4"]


def test_rows_behind_are_taken_out_where_spark_would_keep_them_as_it_prunes_their_time(flow):
    def pruned(rows):
        return rows.dropDuplicates(["event_id"]).select("event_id", "n")

    source = Source(flow.topic, watermark=MINUTE)
    pipeline = flow.pipeline("pruned", source=source, sink=Lake("pruned"), steps=[pruned])
    for events in ([at(n, n) for n in range(3)], [at(3, 0.5), at(4, 3)]):
        flow.send(events)
        outcomes = finished(flow, pipeline)
    assert letters(flow, "pruned") == ["e3"]
    assert sorted(flow.ids("pruned")) == ["e0", "e1", "e2", "e4"]
    assert outcomes["pruned"].dropped_by_watermark_rows == 0
