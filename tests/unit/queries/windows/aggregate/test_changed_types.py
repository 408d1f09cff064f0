"""Fields of an event class change their types while windows are open."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pyarrow as pa
import pytest
from tests.unit.queries.pipeline import EventBatch, live_queries, matched_records
from tests.unit.queries.windows.aggregate.memory_partition import SCHEMAS, added, tick

from headrace import EpochMillis
from headrace.model.event import event_schema
from headrace.queries.records.counts import TopicCounts
from headrace.queries.records.snapshots import Restored, encode_snapshot
from headrace.queries.windows.aggregate.partition import PartitionAggregator
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.aggregate.window import OpenWindow


class Before:
    at: datetime
    day: str
    seen: int


class After:
    at: datetime
    day: datetime
    seen: EpochMillis


TIME = pa.timestamp("us", "UTC")
COLUMNS = {
    "day": (pa.array(["2026-05-01T00:00:00Z"]), pa.array([1_777_593_600_000_000], TIME)),
    "seen": (pa.array([1_777_629_600_000]), pa.array([1_777_629_600_000_000], TIME)),
}
CHANGED = [
    "SELECT count(*) FROM clicks FACET day WINDOW 10 seconds",
    "SELECT max(seen) FROM clicks WINDOW 10 seconds",
    "SELECT uniqueCount(seen) FROM clicks WINDOW 10 seconds",
]
KEPT = "SELECT count(*) FROM clicks WINDOW 10 seconds"


def records_of(event, text):
    """Returns what a pipeline with an event class sends of one event, and its tick."""
    columns = {name: pair[event is After] for name, pair in COLUMNS.items()}
    places = {"_partition": pa.array([0], pa.int32()), "_offset": [0]}
    rows = pa.table({"at": pa.array([5_000_000], TIME), **columns, **places})
    queries = live_queries({"q": text}, event_schema(event), topic="clicks")
    batch = EventBatch((rows,), 20_000_000)
    return matched_records(queries, [batch], topic="clicks", partitions=1)[0]


def started(event, restored=None):
    return PartitionAggregator(0, Plans({"clicks": event_schema(event)}), restored or Restored())


def taken(aggregator, *records):
    """Returns the results that follow from records."""
    outputs = [aggregator.take(record, aggregator.offset, 0) for record in records]
    return [result for output in outputs for result in output.results]


@pytest.mark.parametrize("text", CHANGED)
def test_a_record_of_other_types_is_faulty(text):
    before, _ = records_of(Before, text)
    aggregator = started(After)
    taken(aggregator, before)
    assert "types" in aggregator.faulty["q"]
    [result] = taken(aggregator, *records_of(After, text))
    assert result.events == 1
    assert aggregator.counts["clicks"].faulty == 1


@pytest.mark.parametrize("text", CHANGED)
def test_a_snapshot_of_other_types_is_left_out(text):
    before, before_tick = records_of(Before, text)
    aggregator = started(Before)
    taken(aggregator, before)
    restored = Restored()
    for snapshot in aggregator.changed():
        restored.take(encode_snapshot(snapshot))
    restored.take([msgspec.json.encode(aggregator.position(0, 0))])
    restarted = started(After, restored)
    assert restarted.windows == 0
    assert "types" in restarted.faulty["q"]
    assert taken(restarted, before_tick) == []
    assert len(taken(started(Before, restored), before_tick)) == 1


def test_records_whose_values_have_their_types_still_are_added_up():
    before, _ = records_of(Before, KEPT)
    after = records_of(After, KEPT)
    [result] = taken(started(After), before, *after)
    assert result.events == 2


def test_a_window_whose_results_can_not_be_made_is_faulty_and_harms_no_other(monkeypatch, caplog):
    made = OpenWindow.results

    def results(window, kind):
        if window.id.query == "early":
            raise TypeError("no such facet")
        return made(window, kind)

    monkeypatch.setattr(OpenWindow, "results", results)
    aggregator = PartitionAggregator(0, Plans(SCHEMAS), Restored())
    windows = [added("early", 0, {"a": 2}), added("plain", 0, {"a": 1})]
    taken(aggregator, *windows)
    assert not aggregator.end_by_clock(2_000)
    [result] = taken(aggregator, tick(10, events=3))
    assert (result.query, result.events) == ("plain", 1)
    assert aggregator.faulty == {"early": "no such facet"}
    assert aggregator.counts["clicks"] == TopicCounts(sent=3, taken=3, ended=1, faulty=2)
    assert "query early for the window that begins at 1970-01-01T00:00:00Z" in caplog.text
    assert any(record.exc_info for record in caplog.records)
