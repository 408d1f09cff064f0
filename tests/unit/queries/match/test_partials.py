"""What rows add to windows: by rule, window and group."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queries.match.clicks import clicks, rule

from headrace.queries.language.tree import Aggregate
from headrace.queries.match import partials as partials_module
from headrace.queries.match.partials import RowPlaces, added_to_windows, facet_hash, limited
from headrace.queries.match.rules import RuleSet
from headrace.queries.windows.functions import aggregation_of

SECOND_US = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COUNT = aggregation_of(Aggregate("count"), None)


def at(seconds, **row):
    return {"at": EPOCH + timedelta(seconds=seconds), **row}


def added(rows, *texts):
    """Returns what rows add to the windows of queries ``0``, ``1``, ... in order."""
    rules = RuleSet()
    for number, text in enumerate(texts):
        rules.put(rule(str(number), f"SELECT {text}"))
    table = clicks(*rows)
    times = table["at"].combine_chunks().cast(pa.int64()).to_numpy()
    places = RowPlaces(times, np.zeros(len(rows), np.int64), np.arange(len(rows)))
    windows = [
        (rules.rule(window.slot).query_id, window)
        for matches in rules.matches(table)
        for window in added_to_windows(table, places, matches)
    ]
    return [window for _, window in sorted(windows, key=lambda pair: (pair[0], pair[1].begin_us))]


def counts(windows):
    """Returns how many events each window has, by its begin in seconds."""
    return {window.begin_us // SECOND_US: window.events for window in windows}


@pytest.mark.parametrize(
    ("clause", "seconds", "windows"),
    [
        ("WINDOW 10 seconds", [0, 9.999999, 10], {0: 2, 10: 1}),
        ("WINDOW 10 seconds", [-0.000001, -10, -10.5], {-20: 1, -10: 2}),
        ("WINDOW 10 seconds SLIDE BY 5 seconds", [0, 7], {-5: 1, 0: 2, 5: 1}),
        ("WINDOW 3 seconds SLIDE BY 1 second", [-1], {-3: 1, -2: 1, -1: 1}),
    ],
)
def test_an_event_is_in_all_windows_around_it(clause, seconds, windows):
    rows = [at(each) for each in seconds]
    assert counts(added(rows, f"count(*) FROM clicks {clause}")) == windows


def test_groups_have_values_of_facets_and_a_partial_of_each_result():
    rows = [
        at(0, kind="a", price=1.5),
        at(1, kind="a", country="PL"),
        at(2, kind="b", country="PL", price=2.0),
        at(3, kind="a", price=4.0),
    ]
    [window] = added(rows, "count(*), max(price) FROM clicks FACET kind, country")
    assert sorted(window.groups, key=repr) == [
        (("a", "PL"), (1, None)),
        (("a", None), (2, 4.0)),
        (("b", "PL"), (1, 2.0)),
    ]
    assert (window.events, window.other) == (4, None)


def test_times_among_facets_are_microseconds():
    [window] = added([at(3)], "count(*) FROM clicks FACET at")
    assert window.groups == [((3 * SECOND_US,), (1,))]


def test_a_filter_leaves_out_events_but_no_group():
    rows = [at(0, kind="a", is_new=True), at(0, kind="b")]
    text = "filter(count(*), WHERE is_new AND price IS NULL) FROM clicks FACET kind"
    [window] = added(rows, text)
    assert sorted(window.groups) == [(("a",), (1,)), (("b",), (None,))]
    assert window.events == 2


def test_a_filter_that_is_null_is_not_met():
    [window] = added([at(0)], "filter(count(*), WHERE price > 1) FROM clicks")
    assert window.groups == [((), (None,))]


def test_rules_of_one_shape_add_to_windows_of_their_own():
    rows = [at(0, user=1), at(0, user=1), at(70, user=2)]
    one, two = (f"count(*) FROM clicks WHERE user = {user} FACET kind" for user in (1, 2))
    assert [(window.begin_us, window.events) for window in added(rows, one, two)] == [
        (0, 2),
        (60 * SECOND_US, 1),
    ]


def test_rows_that_match_nothing_add_nothing():
    assert added([at(0)], "count(*) FROM clicks WHERE user = 7") == []
    assert added([], "count(*) FROM clicks") == []


def test_groups_beyond_the_limit_are_added_up():
    rows = [at(0, user=user % 4) for user in range(10)]
    [window] = added(rows, "count(*) FROM clicks FACET user LIMIT 3")
    assert len(window.groups) == 3
    [other] = window.other
    assert sum(count for _, (count,) in window.groups) + other == window.events == 10


def test_as_many_groups_as_the_limit_are_all_shown():
    rows = [at(0, user=user) for user in range(3)]
    [window] = added(rows, "count(*) FROM clicks FACET user LIMIT 3")
    assert (len(window.groups), window.other) == (3, None)


FACETS = st.tuples(st.none() | st.text(max_size=2), st.integers(0, 2))


@given(st.lists(st.lists(FACETS, max_size=8), max_size=5), st.integers(1, 5))
def test_which_groups_are_shown_does_not_depend_on_batches(batches, max_groups):
    whole = Counter(facets for batch in batches for facets in batch)
    shown, other = limited(_groups(whole), max_groups, [COUNT])
    merged, others = Counter(), 0
    for batch in batches:
        kept, beyond = limited(_groups(Counter(batch)), max_groups, [COUNT])
        merged.update({facets: count for facets, (count,) in kept})
        others += beyond[0] if beyond else 0
    kept, beyond = limited(_groups(merged), max_groups, [COUNT])
    assert {facets for facets, _ in kept} == {facets for facets, _ in shown}
    assert {facets for facets, _ in shown} == set(sorted(whole, key=facet_hash)[:max_groups])
    assert dict(kept) == dict(shown)
    assert others + (beyond[0] if beyond else 0) == (other[0] if other else 0)


def _groups(counter):
    return [(facets, (count,)) for facets, count in counter.items()]


def test_long_texts_are_taken_once_however_many_windows_they_are_in():
    rows = [at(number, country=f"{number}" + "x" * 2_000_000) for number in range(20)]
    windows = added(rows, "count(*) FROM clicks FACET country WINDOW 1 minute SLIDE BY 1 second")
    assert sum(window.events for window in windows) == 20 * 60
    longest = max(len(facets[0]) for window in windows for facets, _ in window.groups)
    assert longest == 1_000


def test_matches_are_added_up_in_parts(monkeypatch):
    rows = [at(number, user=number % 3) for number in range(50)]
    text = "sum(user) FROM clicks FACET user WINDOW 20 seconds SLIDE BY 10 seconds"

    def sums():
        total = Counter()
        for window in added(rows, text):
            for facets, (partial,) in window.groups:
                total[window.begin_us, facets] += partial
        return total

    whole = sums()
    monkeypatch.setattr(partials_module, "MAX_WINDOW_PAIRS", 6)
    assert sums() == whole
