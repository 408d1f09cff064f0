"""The ledger behind steps, on the real broker, Spark and table."""

from collections import Counter
from datetime import timedelta

import pytest
from tests.integration.flow import Flow, with_double
from tests.integration.test_ledger import balance, run, send_hours, states, totals

from headrace import (
    Lake,
    LateData,
    Source,
    classify,
    count_windows,
    deduplicate,
    fan_out,
    filter_rows,
)
from headrace.ledger.sums import Fate, Hop
from headrace.ledger.windows import WindowState

KNOWN = {WindowState.OPEN, WindowState.CLOSING, WindowState.BALANCED}


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path, partitions=2, event_id="event_id")


def stepped(flow, *steps, **changes):
    return flow.pipeline("stepped", sink=Lake("stepped"), steps=steps, **changes)


def drops_odd(rows):
    return rows.where("n % 2 = 0")


def chosen(rows):
    return rows.select("event_id", "event_time", "n")


def upper(rows):
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("event_id", F.upper("event_id"))


def an_hour_later(rows):
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("event_time", F.expr("event_time + INTERVAL 1 HOUR"))


def all_fields(rows):
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("fields", F.to_json(F.struct("*")))


def passed_in_batches(rows):
    return rows.mapInArrow(lambda batches: batches, rows.schema)


HOUR = timedelta(hours=1)
FILTERS = (
    classify("kind", {"even": "n % 2 = 0"}),
    filter_rows({"odd": "kind IS NULL"}),
    chosen,
    filter_rows({"fives": "n % 5 = 0"}),
)


@pytest.mark.parametrize("lanes", [1, 3])
def test_what_filters_drop_is_in_the_ledger_by_window(flow, lanes):
    source = Source(flow.topic, min_tasks=1 if lanes > 1 else 3, subpartitions=lanes)
    pipeline = stepped(flow, *FILTERS, source=source)
    send_hours(flow, range(3))
    run(flow, pipeline)
    flow.forget_newest_commit("stepped")
    send_hours(flow, range(3), first=50)
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert totals(result) == {"read": 240, Fate.OUT: 96, Fate.FILTERED: 144}
    assert [window.fates[Fate.FILTERED] for window in result.windows] == [48, 48, 48]
    assert [window.rows for window in result.windows] == [32, 32, 32]
    assert set(states(result)) <= KNOWN
    assert not result.breaks


def test_a_step_that_drops_rows_without_counting_them_is_named(flow):
    pipeline = stepped(flow, with_double, drops_odd, *FILTERS[2:])
    send_hours(flow, range(2))
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert {(d.hop, d.number) for window in result.windows for d in window.differences} <= {
        (Hop.STEPS, number) for number in range(5, 16)
    }
    missing = [sum(d.number for d in window.differences) for window in result.windows]
    assert missing == [20, 20]


@pytest.mark.parametrize("step", [passed_in_batches, count_windows(HOUR)])
def test_behind_a_step_that_does_not_say_what_it_does_windows_are_unknown(flow, step):
    pipeline = stepped(flow, filter_rows({"odd": "n % 2 = 1"}), step)
    send_hours(flow, range(2))
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert totals(result) == {"read": 80, Fate.UNKNOWN: 80}
    assert set(states(result)) == {WindowState.UNKNOWN}
    name = getattr(step, "__name__", "count_windows")
    reasons = {window.unknown for window in result.windows}
    assert reasons == {f"{name} does not say which events its rows come from"}


def test_duplicates_that_a_step_drops_are_deduplicated_in_their_windows(flow):
    pipeline = stepped(flow, deduplicate(["event_id"], timedelta(days=2)), *FILTERS)
    for hours in (range(2), range(1, 3)):
        send_hours(flow, hours)
        run(flow, pipeline)
        flow.forget_newest_commit("stepped")
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert totals(result) == {
        "read": 160,
        Fate.OUT: 48,
        Fate.FILTERED: 72,
        Fate.DEDUPLICATED: 40,
    }
    assert [window.fates.get(Fate.DEDUPLICATED) for window in result.windows] == [None, 40, None]
    assert [window.rows for window in result.windows] == [16, 16, 16]
    assert set(states(result)) <= KNOWN


@pytest.mark.parametrize(
    ("late_data", "fate"), [(LateData.KEEP, Fate.BEHIND), (LateData.DROP, Fate.DROPPED)]
)
def test_rows_behind_the_watermark_of_a_step_have_a_fate_and_are_no_duplicates(
    flow, late_data, fate
):
    steps = [deduplicate(["event_id"], HOUR)]
    lateness = {"late_data": late_data, "allowed_lateness": 5 * HOUR}
    pipeline = stepped(flow, *steps, **lateness)
    send_hours(flow, range(4))
    run(flow, pipeline)
    send_hours(flow, [0], first=900, events=7)
    send_hours(flow, [3], events=3)
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert totals(result) == {
        "read": 170,
        Fate.OUT: 160,
        Fate.DEDUPLICATED: 3,
        fate: 7,
    }
    assert [window.fates.get(fate) for window in result.windows] == [7, None, None, None]
    assert set(states(result)) <= KNOWN
    letters = Counter(stored.letter.reason for stored in flow.dead())
    assert letters == ({"behind-watermark": 7} if fate is Fate.BEHIND else {})


def test_copies_for_several_streams_are_accounted_for(flow):
    streams = {"even": "n % 2 = 0", "fours": "n % 4 = 0", "threes": "n % 3 = 0"}
    pipeline = stepped(flow, *FILTERS[:1], fan_out("stream", streams), chosen)
    send_hours(flow, range(2))
    run(flow, pipeline)
    numbers = [100 * hour + n for hour in range(2) for n in range(40)]
    copies = [sum(n % divisor == 0 for divisor in (2, 4, 3)) for n in numbers]
    result = balance(flow, pipeline)
    assert totals(result) == {
        "read": 80,
        Fate.OUT: sum(copies),
        Fate.FILTERED: copies.count(0),
        Fate.COPIED: -sum(each - 1 for each in copies if each),
    }
    assert sum(window.rows for window in result.windows) == sum(copies)
    assert set(states(result)) <= KNOWN


def test_steps_do_not_see_the_column_of_the_ledger(flow):
    pipeline = stepped(flow, all_fields)
    send_hours(flow, range(1))
    run(flow, pipeline)
    assert totals(balance(flow, pipeline)) == {"read": 40, Fate.OUT: 40}
    assert not [row for row in flow.rows("stepped") if "_headrace" in row["fields"]]
    assert not [name for name in flow.rows("stepped")[0] if name.startswith("_headrace")]


def test_ids_that_a_step_changes_are_not_compared_with_the_table(flow):
    pipeline = stepped(flow, upper)
    send_hours(flow, range(2))
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert set(states(result)) <= KNOWN
    assert [window.rows for window in result.windows] == [40, 40]


def test_a_table_with_other_event_times_can_not_be_recounted(flow):
    pipeline = stepped(flow, an_hour_later)
    send_hours(flow, range(2))
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert {window.unknown for window in result.windows} == {
        "steps change or drop 'event_time', which decides the window"
    }


def test_rows_of_several_sources_are_counted_by_their_topics(flow):
    other = Flow(flow.broker, flow.spark, flow.folder, partitions=1, event_id="event_id")
    pipeline = flow.pipeline("union", source=[flow.topic, other.topic], sink=Lake("union"))
    send_hours(flow, range(2))
    send_hours(other, range(2), first=50)
    run(flow, pipeline)
    result = balance(flow, pipeline)
    assert totals(result) == {"read": 160, Fate.OUT: 160}
    assert [window.rows for window in result.windows] == [80, 80]
    assert set(states(result)) <= KNOWN
