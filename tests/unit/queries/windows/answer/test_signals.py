"""Which windows make a loss of signal known."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queries.windows.answer.signals import QuerySignals

SLIDE, WINDOW = 10, 20


def plan_of(loss_after):
    return SimpleNamespace(loss_after=loss_after, slide_us=SLIDE, window_us=WINDOW)


def lost(signals, loss_after, numbers, with_events):
    """Returns the numbers of the windows that make a loss known, of those from one to another."""
    begins = range(numbers.start * SLIDE, numbers.stop * SLIDE, SLIDE)
    ends = [number * SLIDE + WINDOW for number in with_events if number in numbers]
    return [begin // SLIDE for begin in signals.lost("q", plan_of(loss_after), begins, ends)]


def expected(loss_after, first, last, with_events):
    seen, is_reported = first - 1, False
    for number in range(first, last + 1):
        if number in with_events:
            seen, is_reported = number, False
        elif not is_reported and number - seen >= loss_after:
            is_reported = True
            yield number


@given(
    st.integers(1, 4),
    st.integers(-9, 9),
    st.sets(st.integers(-9, 30)),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
)
def test_a_loss_is_named_where_each_window_is_looked_at_however_they_come(
    loss_after, first, with_events, steps
):
    signals, reached, named = QuerySignals({}), first, []
    for step in steps:
        named += lost(signals, loss_after, range(reached, reached + step), with_events)
        reached += step
    assert named == list(expected(loss_after, first, reached - 1, with_events))


def test_events_of_a_window_before_the_last_one_with_events_are_no_new_signal():
    signals = QuerySignals({})
    assert lost(signals, 2, range(10), {5}) == [1, 7]
    signals.note_events("q", 4 * SLIDE + WINDOW)
    assert lost(signals, 2, range(10, 20), ()) == []
    signals.note_events("q", 8 * SLIDE + WINDOW)
    assert lost(signals, 2, range(20, 30), ()) == [20]


@pytest.mark.parametrize("all_queries", [False, True])
def test_what_is_known_of_queries_that_are_kept_is_written(all_queries):
    signals = QuerySignals({"old": (0, False), "gone": (0, True)})
    signals.note_events("new", 30)
    signals.keep({"old", "new"})
    changed = signals.changed(all_queries=all_queries)
    assert changed == {"new": (30, False)} | ({"old": (0, False)} if all_queries else {})
    assert signals.changed() == {}
