"""Whatever the points at which an instance is killed, results are those of one that is not."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.queries.aggregate.memory_partition import (
    BY_EVENT_TIME,
    TEXTS,
    MemoryPartition,
    added,
    memory_topics,
    tick,
)
from tests.unit.queries.pipeline import is_final

from headrace.queries.matched import WindowPartial

COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), min_size=1, max_size=3)
RECORDS = st.lists(
    st.builds(added, st.sampled_from(sorted(TEXTS)), st.integers(0, 3), COUNTS)
    | st.builds(added, st.sampled_from(BY_EVENT_TIME), st.integers(0, 3), COUNTS)
    | st.builds(tick, st.none() | st.integers(0, 60), st.sampled_from(["clicks", "views"])),
    min_size=4,
    max_size=40,
)
STEPS = st.lists(
    st.tuples(st.just("send"), st.integers(1, 8))
    | st.tuples(st.just("advance"), st.integers(0, 6_000))
    | st.sampled_from([("write",), ("snapshot",), ("kill",), ("kill",)]),
    min_size=5,
    max_size=30,
)
LAST_TICKS = [tick(10**6, topic) for topic in ("clicks", "views")]


@pytest.fixture(autouse=True, scope="module")
def _topics():
    with memory_topics():
        yield


def run(records, steps, *, with_kills):
    partition = MemoryPartition([*records, *LAST_TICKS])
    for action, *arguments in steps:
        if action != "kill" or with_kills:
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
@given(RECORDS, STEPS)
def test_each_event_is_in_one_final_result_or_late(records, steps):
    killed = run(records, steps, with_kills=True)
    counted = Counter(killed.late)
    for window, result in {window_of(each): each for each in finals(killed).values()}.items():
        counted[window[0]] += result.events
    sent = Counter()
    for record in records:
        if isinstance(record, WindowPartial):
            sent[record.query] += record.events
    assert counted == sent
    assert killed.owned.aggregator.windows == 0


@settings(max_examples=200)
@given(RECORDS, STEPS)
def test_the_final_result_of_a_window_has_the_greatest_emission(records, steps):
    killed = run(records, steps, with_kills=True)
    last = {window_of(result): result.emission for result in finals(killed).values()}
    for result in killed.results:
        if not is_final(result):
            assert result.emission < last[window_of(result)]


@settings(max_examples=200)
@given(RECORDS, STEPS)
def test_the_final_results_of_a_window_are_one_emission(records, steps):
    killed = run(records, steps, with_kills=True)
    emissions = {}
    for result in finals(killed).values():
        emissions.setdefault(window_of(result), set()).add(result.emission)
    assert all(len(numbers) == 1 for numbers in emissions.values())


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
