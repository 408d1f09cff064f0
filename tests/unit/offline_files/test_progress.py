"""Counters that are done: ranges that merge in any order."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CounterReusedError, OfflineFilesError
from headrace.offline_files.progress import MAX_RANGES, LoadProgress

COUNTERS = st.sets(st.integers(0, 60))


def marks(counters):
    return [(one, f"line {one}") for one in counters]


@given(st.lists(COUNTERS, max_size=6), st.randoms())
def test_progress_knows_exactly_what_was_added_in_any_order(batches, random):
    progress = LoadProgress("host")
    for batch in batches:
        shuffled = marks(batch)
        random.shuffle(shuffled)
        progress = progress.adding(shuffled)
        progress = LoadProgress.from_json("host", progress.to_json())
    done = set().union(*batches)
    assert {one for one in range(62) if progress.is_done(one, f"line {one}")} == done
    holes = {one for start, end in progress.holes for one in range(start, end)}
    assert holes == (set(range(min(done), max(done))) - done if done else set())
    starts = [one.start for one in progress.ranges]
    assert starts == sorted(starts)
    assert all(one.end < other for one, other in zip(progress.ranges, starts[1:], strict=False))


@given(COUNTERS.filter(bool), COUNTERS)
def test_another_line_with_a_counter_at_an_end_of_a_range_is_noticed(first, second):
    progress = LoadProgress("host").adding(marks(first)).adding(marks(second))
    for one in progress.ranges:
        for counter in (one.start, one.end - 1):
            with pytest.raises(CounterReusedError):
                progress.is_done(counter, "another line")


def test_lines_without_a_counter_are_known_by_their_bytes():
    progress = LoadProgress("host").adding([(None, "a"), (3, "b")])
    assert progress.uncounted == {"a"}
    assert LoadProgress.from_json("host", progress.to_json(), {"a"}) == progress


def test_counters_full_of_holes_are_rejected_before_they_fill_a_record():
    progress = LoadProgress("host").adding(marks(range(0, 2 * MAX_RANGES, 2)))
    assert len(progress.to_json()) < 1_000_000
    assert len(json.loads(progress.to_json())) == MAX_RANGES
    with pytest.raises(OfflineFilesError, match="holes"):
        progress.adding(marks([3 * MAX_RANGES])).to_json()
