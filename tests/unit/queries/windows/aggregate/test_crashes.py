"""Whatever the points at which an instance is killed, results are those of one that is not."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.queries.pipeline import is_final
from tests.unit.queries.windows.aggregate.memory_partition import (
    BY_EVENT_TIME,
    SECOND_US,
    TEXTS,
    MemoryPartition,
    added,
    memory_topics,
    tick,
)

from headrace.queries.records.counts import ResultCounts
from headrace.queries.records.ended import PartitionClocks
from headrace.queries.records.matched import WindowPartial

# What there are few of is listed: to draw one of a list takes Hypothesis less than its parts.
COUNTS = st.one_of(
    [
        st.sampled_from(
            [
                dict(zip(keys, counts, strict=True))
                for keys in permutations("abcd", size)
                for counts in product((1, 2, 3), repeat=size)
            ]
        )
        for size in (1, 2, 3)
    ]
)
WINDOWS = [*product(sorted(TEXTS), range(4))]
EARLY_WINDOWS = [*product(["early", "clock", "facets"], range(2))]
ADDED, ADDED_EARLY = (
    st.builds(lambda window, counts: added(*window, counts), st.sampled_from(windows), COUNTS)
    for windows in (WINDOWS, EARLY_WINDOWS)
)
# Ticks of a topic, with how much further its time is in seconds; half of them have no time.
TICKS = st.sampled_from([*product(["clicks", "views"], [*range(-2, 9), *[None] * 11])])
STEP = (
    st.sampled_from([("send", count) for count in range(1, 7)])
    | st.integers(0, 3_000).map(lambda ms: ("advance", ms))
    | st.sampled_from([("kill_within", sends) for sends in range(4)])
    | st.sampled_from([("write",), ("write",), ("snapshot",), ("kill",), ("stop",)])
)


def with_times(records):
    """Returns records with the times that ticks have come to, and the events before them."""
    seconds, events = {"clicks": 0, "views": 0}, Counter()
    for record in records:
        if isinstance(record, WindowPartial):
            events[record.topic] += record.events
            yield record
            continue
        topic, further = record
        seconds[topic] += further or 0
        time = None if further is None else seconds[topic]
        yield tick(time, topic, events=events.pop(topic, 0))
    for topic, number in events.items():
        yield tick(None, topic, events=number)


RECORDS = (
    st.lists(ADDED | ADDED_EARLY | ADDED | ADDED_EARLY | TICKS, min_size=10, max_size=40)
    .map(with_times)
    .map(list)
)
GO_ON = st.tuples(st.just("go_on"), st.sampled_from(["clicks", "views"]), st.integers(0, 60))
STEPS = st.lists(STEP, min_size=12, max_size=40)
STEPS_WITH_QUIET_TOPICS = st.lists(STEP | STEP | STEP | GO_ON, min_size=12, max_size=40)
LAST_TICKS = [tick(10**6, topic) for topic in ("clicks", "views")]


@pytest.fixture(autouse=True, scope="module")
def _topics():
    with memory_topics():
        yield


def run(records, steps, *, with_kills):
    partition = MemoryPartition([*records, *LAST_TICKS])
    for action, *arguments in steps:
        if action not in {"kill", "kill_within", "stop"} or with_kills:
            getattr(partition, action)(*arguments)
    partition.finish()
    return partition


def window_of(result):
    return result.query, result.revision, result.begin


def finals(partition):
    """Returns final results by window and group; each is there once."""
    results = [result for result in partition.results if is_final(result)]
    by_group = {
        (*window_of(result), tuple(result.facets.items()), result.is_other): result
        for result in results
    }
    assert len(by_group) == len(results)
    return by_group


def of_event_time(results):
    """Returns what results that end by event time say, without the number of their emission."""
    return {
        group: (result.values, result.events)
        for group, result in results.items()
        if result.query in BY_EVENT_TIME
    }


@settings(max_examples=400)
@given(RECORDS, STEPS)
def test_a_run_with_kills_has_the_results_of_one_without(records, steps):
    whole = run(records, steps, with_kills=False)
    killed = run(records, steps, with_kills=True)
    assert of_event_time(finals(killed)) == of_event_time(finals(whole))
    for query in BY_EVENT_TIME:
        assert killed.late.get(query, 0) == whole.late.get(query, 0)


@settings(max_examples=400)
@given(RECORDS, STEPS_WITH_QUIET_TOPICS)
def test_whenever_it_is_killed_each_event_is_in_the_one_final_result_of_its_window(records, steps):
    killed = run(records, steps, with_kills=True)
    each_event_is_in_one_final_result_or_late(killed, records)
    nothing_is_open_and_all_is_counted(killed)
    the_final_results_of_a_window_are_its_last_emission(killed)
    results_are_those_of_ended_windows_in_order(killed)


def each_event_is_in_one_final_result_or_late(killed, records):
    counted = Counter(killed.late)
    for window, result in {window_of(each): each for each in finals(killed).values()}.items():
        counted[window[0]] += result.events
    sent = Counter()
    for record in records:
        if isinstance(record, WindowPartial):
            sent[record.query] += record.events
    assert counted == sent


def nothing_is_open_and_all_is_counted(killed):
    assert killed.owned.aggregator.windows == 0
    for topic, counts in killed.owned.aggregator.counts.items():
        assert (counts.unbalanced, counts.begun, counts.open) == (0, 0, 0)
        assert counts.late + counts.ended == counts.sent
        results = killed.owned.answers.counts.get(topic, ResultCounts())
        assert (results.unbalanced, results.waiting, sum(results.begun.values())) == (0, 0, 0)
        assert results.answered == counts.ended


def the_final_results_of_a_window_are_its_last_emission(killed):
    emissions = {}
    for result in finals(killed).values():
        emissions.setdefault(window_of(result), set()).add(result.emission)
    assert all(len(numbers) == 1 for numbers in emissions.values())
    for result in killed.results:
        if not is_final(result):
            assert result.emission < max(emissions[window_of(result)])


def results_are_those_of_ended_windows_in_order(killed):
    assert sorted(map(repr, killed.results)) == sorted(map(repr, killed.ended))
    for query in BY_EVENT_TIME:
        ends = [
            result.end for result in killed.results if result.query == query and is_final(result)
        ]
        assert ends == sorted(ends)


def test_an_instance_that_stops_ends_what_ends_by_the_clock_before_it_shows_the_clock():
    partition = MemoryPartition([added("clock", 0, {"a": 5})])
    partition.send(1)
    partition.write()
    partition.now_ms = 13_100
    partition.stop()
    *_, window, clocks = partition.ended_records
    assert [result.events for result in window.results] == [5]
    assert window.due_us <= clocks.clock_us


def test_markers_that_are_written_once_more_keep_events_late():
    partition = MemoryPartition([added("quiet", 0, {"a": 1}), added("quiet", 0, {"a": 2})])
    partition.send(1)
    partition.advance(5_000)
    for _ in range(6):
        partition.snapshot()
    partition.kill()
    partition.finish()
    assert [result.events for result in partition.ended] == [1]
    assert partition.late == {"quiet": 2}


def test_a_window_has_one_final_result_after_an_instance_was_away_for_hours():
    records = [added("plain", 0, {"a": 1}), added("plain", 0, {"a": 2}), tick(10), tick(11)]
    partition = MemoryPartition(records)
    partition.send(1)
    partition.snapshot()
    partition.send(2)
    partition.write()
    partition.now_ms += 7_200_000
    partition.kill()
    partition.advance(1)
    partition.finish()
    [final] = finals(partition).values()
    assert final.events == 3
    assert partition.late == {}


def test_records_that_an_early_result_covers_are_added_once():
    partition = MemoryPartition([added("early", 0, {"a": 1}), added("early", 0, {"a": 2})])
    partition.write()
    partition.send(2)
    partition.advance(2_000)
    partition.write()
    partition.kill()
    partition.take(2)
    assert partition.owned.aggregator.offset == 2
    partition.advance(2_000)  # nothing has changed since
    partition.go_on("clicks", 1_000)
    partition.write()
    assert [result.values["n"] for result in partition.ended] == [3, 3]
    assert [result.emission for result in partition.ended] == [1, 2]


@pytest.mark.parametrize("query", ["early", "clock"])
def test_a_snapshot_of_an_instance_that_catches_up_covers_what_its_windows_have(query):
    partition = MemoryPartition([added(query, 0, {"a": 1}), added(query, 0, {"a": 2})])
    partition.write()
    partition.send(2)
    partition.advance(2_000)
    partition.write()
    partition.kill()
    partition.snapshot()
    partition.kill()
    partition.finish()
    partition.go_on("clicks", 1_000)
    partition.finish()
    finals_of = finals(partition).values()
    assert [result.events for result in finals_of] == [3]
    assert partition.late == {}


def told_seconds(partition):
    """Returns how far the clock is at most that other partitions were told."""
    records = partition.ended_records
    clocks = [each.clock_us for each in records if isinstance(each, PartitionClocks)]
    return max(clocks) / SECOND_US


def final_events(partition):
    return [result.events for result in partition.ended if is_final(result)]


@pytest.mark.parametrize("query", ["clock", "quiet"])
def test_what_was_matched_before_a_restart_is_taken_before_windows_end_by_the_clock(query):
    partition = MemoryPartition([added(query, 0, {"a": 1}), added(query, 0, {"a": 2}), tick(1)])
    partition.send(1)
    partition.advance(4_000)
    partition.snapshot()
    partition.end = 3  # they come while no instance has the partition
    partition.now_ms = 14_000
    partition.kill()
    for taken in (0, 1):
        partition.take(taken)
        partition.advance(0)
        partition.snapshot()
    assert (final_events(partition), told_seconds(partition)) == ([], 4)
    partition.take(1)
    partition.advance(5_000)
    partition.snapshot()
    assert (final_events(partition), told_seconds(partition)) == ([3], 19)
    assert partition.late == {}


def test_quiet_time_begins_anew_where_the_clock_of_the_instance_before_was_ahead():
    partition = MemoryPartition([added("quiet", 0, {"a": 1})])
    partition.advance(3_600_000)
    partition.send(1)
    partition.snapshot()
    partition.now_ms = 10_000
    partition.kill()
    partition.advance(0)
    partition.advance(5_000)
    partition.snapshot()
    assert final_events(partition) == [1]


def test_windows_end_by_the_clock_where_nothing_is_to_be_taken_after_a_restart():
    partition = MemoryPartition([added("clock", 0, {"a": 1}), added("clock", 0, {"a": 2})])
    partition.send(1)
    partition.advance(1_000)
    partition.snapshot()
    partition.kill()
    partition.advance(13_000)
    partition.snapshot()
    assert final_events(partition) == [1]


def test_other_partitions_are_not_told_the_clock_before_the_first_records_are_taken():
    partition = MemoryPartition([added("clock", 0, {"a": 1}), tick(None, events=1)], end=2)
    partition.advance(14_000)
    partition.snapshot()
    partition.take(0)
    assert told_seconds(partition) == 0
    assert partition.owned.answers.position({}, 0, {}).passed_us == {}
    partition.take(2)
    partition.advance(0)
    partition.snapshot()
    partition.take(0)
    assert final_events(partition) == [1]
    assert partition.owned.answers.position({}, 0, {}).passed_us == {"": 14 * SECOND_US}
