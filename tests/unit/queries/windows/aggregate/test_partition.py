"""When windows end, and what is late: by event time, quiet time and the clock."""

from __future__ import annotations

import pytest
from tests.unit.queries.pipeline import RunningPartition, aggregate, is_final, tick_of
from tests.unit.queries.windows.aggregate.memory_partition import SCHEMAS, SECOND_US, added, tick

from headrace.queries.windows.aggregate.window import OpenWindow

BEGIN = "1970-01-01T00:00:00Z"
HOUR_MS = 3_600_000
SLIDING = "SELECT count(*) AS n FROM clicks WINDOW 10 seconds SLIDE BY 5 seconds"


@pytest.fixture
def partition():
    return RunningPartition(SCHEMAS)


def finals(partition):
    """Returns query, begin of the window in seconds and number of events of final results."""
    return [
        (result.query, int(result.begin[17:19]), result.events)
        for result in partition.results
        if is_final(result)
    ]


def earlies(partition):
    return [
        (result.emission, result.values["n"])
        for result in partition.results
        if not is_final(result)
    ]


def late(partition):
    return dict(partition.aggregator.late)


def test_a_window_ends_when_the_time_of_events_is_its_end(partition):
    partition.take(added("plain", 0, {"a": 2}), tick(9.999999))
    assert finals(partition) == []
    partition.take(added("plain", 0, {"a": 1}), tick(10))
    assert finals(partition) == [("plain", 0, 3)]
    assert partition.aggregator.windows == 0


def test_a_window_waits_for_its_allowed_lateness(partition):
    partition.take(added("facets", 0, {"a": 1}), tick(14.9), added("facets", 0, {"a": 1}))
    assert finals(partition) == []
    partition.take(tick(15))
    assert finals(partition) == [("facets", 0, 2)]


def test_events_of_a_window_that_has_ended_are_late(partition):
    partition.take(added("plain", 0, {"a": 1}), tick(10), added("plain", 0, {"a": 2}))
    partition.take(added("plain", 0, {"b": 3}), tick(20))
    assert finals(partition) == [("plain", 0, 1)]
    assert late(partition) == {"plain": 5}


def test_events_of_a_window_that_had_none_before_its_end_are_late(partition):
    partition.take(tick(10), added("plain", 0, {"a": 2}), added("plain", 1, {"a": 1}), tick(20))
    assert finals(partition) == [("plain", 10, 1)]
    assert late(partition) == {"plain": 2}


def test_the_first_batch_is_never_late(partition):
    partition.take(added("plain", 0, {"a": 1}), added("plain", 9, {"a": 1}), tick(95))
    assert finals(partition) == [("plain", 0, 1)]
    assert late(partition) == {}


def test_a_tick_without_a_time_ends_nothing_and_harms_nothing(partition):
    partition.take(tick(None), added("plain", 0, {"a": 1}), tick(None))
    assert finals(partition) == []
    partition.take(tick(10), tick(None), added("plain", 1, {"a": 1}), tick(None), tick(20))
    assert finals(partition) == [("plain", 0, 1), ("plain", 10, 1)]
    assert partition.aggregator.event_us == {"clicks": 20 * SECOND_US}


def test_ticks_without_events_end_windows(partition):
    partition.take(added("plain", 0, {"a": 1}), *(tick(second) for second in range(11)))
    assert finals(partition) == [("plain", 0, 1)]


def test_time_does_not_go_back(partition):
    partition.take(tick(10), tick(5), added("plain", 0, {"a": 1}))
    assert late(partition) == {"plain": 1}
    assert partition.aggregator.event_us == {"clicks": 10 * SECOND_US}


def test_times_before_1970_end_windows(partition):
    partition.take(added("plain", -2, {"a": 1}), tick(-10))
    assert partition.aggregator.windows == 0
    assert len(partition.results) == 1


def test_topics_have_times_of_their_own(partition):
    partition.take(added("plain", 0, {"a": 1}), added("other-topic", 0, {"a": 1}))
    partition.take(tick(100, "views"))
    assert finals(partition) == [("other-topic", 0, 1)]
    partition.take(tick(10, "clicks"), added("other-topic", 1, {"a": 1}))
    assert finals(partition) == [("other-topic", 0, 1), ("plain", 0, 1)]
    assert late(partition) == {"other-topic": 1}


def test_windows_end_in_the_order_of_their_ends(partition):
    partition.take(*(added("plain", begin, {"a": 1}) for begin in (2, 0, 1)), tick(30))
    assert [begin for _, begin, _ in finals(partition)] == [0, 10, 20]


def test_windows_that_overlap_end_one_by_one(partition):
    partition.take(added("plain", 0, {"a": 1}, text=SLIDING), tick(10))
    partition.take(added("plain", 0.5, {"a": 1}, text=SLIDING), tick(14))
    assert finals(partition) == [("plain", 0, 1)]
    partition.take(tick(15))
    assert finals(partition) == [("plain", 0, 1), ("plain", 5, 1)]


def test_a_topic_without_new_events_ends_windows_as_its_time_goes_on(partition):
    partition.take(added("plain", 0, {"a": 1}), tick(9))
    output = partition.aggregator.end_by_event_time("clicks", 10 * SECOND_US, 0)
    assert [result.events for result in output.results] == [1]
    partition.take(added("plain", 0, {"a": 1}))
    assert late(partition) == {"plain": 1}


def test_a_window_ends_after_its_quiet_time(partition):
    partition.take(added("quiet", 0, {"a": 1}))
    partition.advance(4_999)
    partition.take(added("quiet", 0, {"a": 1}))
    partition.advance(9_998)
    assert finals(partition) == []
    partition.advance(9_999)
    assert finals(partition) == [("quiet", 0, 2)]


def test_quiet_time_is_that_of_each_window(partition):
    partition.take(added("quiet", 0, {"a": 1}))
    partition.advance(3_000)
    partition.take(added("quiet", 1, {"a": 1}))
    partition.advance(5_000)
    assert finals(partition) == [("quiet", 0, 1)]


def test_quiet_time_begins_anew_where_a_clock_that_was_ahead_is_set_back(partition):
    partition.advance(3_600_000)
    partition.take(added("quiet", 0, {"a": 1}))
    partition.advance(10_000)
    partition.advance(14_999)
    assert finals(partition) == []
    partition.advance(15_000)
    assert finals(partition) == [("quiet", 0, 1)]


def test_early_results_go_on_where_a_clock_that_was_ahead_is_set_back(partition):
    partition.advance(3_600_000)
    partition.take(added("early", 0, {"a": 1}))
    partition.advance(3_602_000)
    partition.take(added("early", 0, {"a": 2}))
    assert earlies(partition) == [(1, 1)]
    partition.advance(10_000)
    partition.advance(12_000)
    assert earlies(partition) == [(1, 1), (2, 3)]


def test_events_of_windows_that_ended_while_the_clock_was_ahead_are_late_for_an_hour(partition):
    partition.take(added("quiet", 0, {"a": 1}))
    partition.advance(8 * HOUR_MS)
    partition.advance(100_000)
    partition.aggregator.position(0, 100_000 + HOUR_MS)
    partition.take(added("quiet", 0, {"a": 1}))
    partition.advance(200_000 + HOUR_MS)
    assert finals(partition) == [("quiet", 0, 1)] * 2
    assert not partition.aggregator.late


def test_windows_that_ended_while_the_clock_was_ahead_keep_no_others(partition):
    aggregator = partition.aggregator
    partition.take(added("clock", 0, {"a": 1}))
    partition.advance(8 * HOUR_MS)
    partition.advance(100_000)
    partition.take(added("quiet", 0, {"a": 1}))
    partition.advance(110_000)
    partition.take(tick_of("clicks", None, planned_ms=2 * HOUR_MS))
    assert [marker.query for marker in aggregator.remembered()] == ["clock", "quiet"]
    aggregator.position(0, 105_000 + HOUR_MS)
    assert [marker.query for marker in aggregator.remembered()] == ["quiet"]
    aggregator.position(0, 110_000 + HOUR_MS)
    assert aggregator.remembered() == []


def test_event_time_does_not_end_windows_of_the_clock(partition):
    partition.take(added("quiet", 0, {"a": 1}), added("clock", 0, {"a": 1}), tick(1_000))
    assert finals(partition) == []


def test_a_window_ends_by_the_clock(partition):
    partition.take(added("clock", 0, {"a": 1}))
    partition.advance(12_999)
    assert finals(partition) == []
    partition.advance(13_000)
    assert finals(partition) == [("clock", 0, 1)]


@pytest.mark.parametrize("query", ["quiet", "clock"])
def test_events_behind_the_end_by_the_clock_are_late(partition, query):
    partition.take(added(query, 0, {"a": 1}))
    partition.advance(13_000)
    partition.take(added(query, 0, {"a": 2}))
    partition.advance(30_000)
    assert finals(partition) == [(query, 0, 1)]
    assert late(partition) == {query: 2}


def test_a_window_has_early_results(partition):
    partition.take(added("early", 0, {"a": 1}))
    partition.advance(1_999)
    assert earlies(partition) == []
    partition.advance(2_000)
    partition.take(added("early", 0, {"a": 2}))
    partition.advance(3_999)
    assert earlies(partition) == [(1, 1)]
    partition.advance(4_000)
    partition.take(tick(10))
    assert earlies(partition) == [(1, 1), (2, 3)]
    [final] = [result for result in partition.results if is_final(result)]
    assert (final.emission, final.values) == (3, {"n": 3})


def test_a_window_that_has_ended_has_no_early_result(partition):
    partition.take(added("early", 0, {"a": 1}), tick(10))
    partition.advance(60_000)
    assert earlies(partition) == []


def test_revisions_of_a_query_have_windows_of_their_own(partition):
    first = added("plain", 0, {"a": 1})
    second = type(first)(
        **{name: getattr(first, name) for name in first.__struct_fields__} | {"revision": 2}
    )
    partition.take(first, second, tick(10))
    assert sorted((result.revision, result.events) for result in partition.results) == [
        (1, 1),
        (2, 1),
    ]


def test_two_texts_of_one_revision_have_windows_of_their_own(partition):
    filtered = "SELECT count(*) AS n FROM clicks WHERE country = 'PL' WINDOW 10 seconds"
    partition.take(added("plain", 0, {"a": 5}), added("plain", 0, {"a": 1_000}, text=filtered))
    partition.take(added("plain", 0, {"a": 2}), tick(10))
    assert sorted(result.values["n"] for result in partition.results) == [7, 1_000]


def test_a_query_is_not_faulty_any_more_once_a_record_of_it_is_added(partition):
    partition.take(added("plain", 0, {"a": 1}, text="SELECT count(*) FROM gone"))
    assert "plain" in partition.aggregator.faulty
    partition.take(added("plain", 0, {"a": 1}))
    assert partition.aggregator.faulty == {}


def test_windows_that_are_not_due_are_not_looked_at(partition, monkeypatch):
    queries = ("quiet", "clock", "early")
    partition.take(*(added(query, begin, {"a": 1}) for query in queries for begin in range(9, 50)))
    looked_at = []
    monkeypatch.setattr(OpenWindow, "due_us", property(looked_at.append))
    monkeypatch.setattr(OpenWindow, "results", lambda window, _: looked_at.append(window))
    for now_ms in range(1_000):
        partition.advance(now_ms)
    assert looked_at == []


def test_an_early_result_comes_at_once_where_none_was_due_for_long(partition):
    partition.take(added("early", 0, {"a": 1}))
    partition.advance(2_000)
    partition.advance(8_000)
    partition.take(added("early", 0, {"a": 2}))
    partition.advance(8_001)
    assert earlies(partition) == [(1, 1), (2, 3)]


@pytest.mark.parametrize("planned_ms", [0, 13_000, 3_612_999])
def test_an_event_begins_a_window_of_the_clock_within_an_hour_of_its_end(partition, planned_ms):
    partition.now_ms = 2 * HOUR_MS
    partition.take(tick_of("clicks", None, planned_ms=planned_ms), added("clock", 0, {"a": 1}))
    assert partition.aggregator.windows == 1
    assert late(partition) == {}


def test_an_event_is_late_an_hour_after_its_window_ended_by_the_clock(partition):
    partition.now_ms = 2 * HOUR_MS
    partition.take(tick_of("clicks", None, planned_ms=3_613_000), added("clock", 0, {"a": 1}))
    assert partition.aggregator.windows == 0
    assert late(partition) == {"clock": 1}


def test_a_pipeline_whose_clock_is_ahead_makes_no_event_late(partition):
    partition.take(tick_of("clicks", None, planned_ms=2 * HOUR_MS), added("clock", 0, {"a": 1}))
    partition.advance(13_000)
    assert finals(partition) == [("clock", 0, 1)]
    assert late(partition) == {}


@pytest.mark.parametrize("planned_ms", [None, 20_000])
def test_an_instance_whose_clock_is_ahead_for_a_moment_forgets_no_window(partition, planned_ms):
    partition.take(added("clock", 0, {"a": 1}))
    partition.advance(13_000)
    if planned_ms is not None:
        partition.take(tick_of("clicks", None, planned_ms=planned_ms))
    partition.aggregator.position(0, 3 * HOUR_MS)
    partition.take(added("clock", 0, {"a": 1}))
    partition.advance(30_000)
    assert finals(partition) == [("clock", 0, 1)]
    assert late(partition) == {"clock": 1}


def test_a_window_of_a_topic_without_batches_is_forgotten_after_a_day(partition):
    partition.take(added("clock", 0, {"a": 1}))
    partition.advance(13_000)
    partition.aggregator.position(0, 13_000 + 24 * HOUR_MS - 1)
    assert len(partition.aggregator.remembered()) == 1
    partition.aggregator.position(0, 13_000 + 24 * HOUR_MS)
    assert partition.aggregator.remembered() == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT count(*) FROM", ""),
        ("SELECT count(*) FROM unknown", "unknown"),
        ("SELECT sum(price) FROM clicks", "price"),
    ],
)
def test_a_query_that_cannot_be_read_harms_no_other(partition, text, reason):
    partition.take(added("faulty", 0, {"a": 1}, text=text), added("plain", 0, {"a": 1}), tick(10))
    assert finals(partition) == [("plain", 0, 1)]
    assert reason in partition.aggregator.faulty["faulty"]
    assert partition.aggregator.offset == 3


def test_a_window_is_the_same_however_its_records_are_divided():
    whole = aggregate([added("facets", 0, {"a": 3, "b": 2, "c": 1}), tick(20)], SCHEMAS)
    parts = [added("facets", 0, {country: 1}) for country in "abacba"]
    divided = aggregate([*parts, tick(20)], SCHEMAS)

    def groups(partition):
        return {(str(each.facets), each.is_other): each.values for each in partition.results}

    assert groups(whole) == groups(divided)
    assert len(groups(whole)) == 3
