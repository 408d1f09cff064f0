"""The groups of an open window: which are shown, and what the others come to."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queries.windows.aggregate.memory_partition import SCHEMAS, TEXTS, WINDOW_US, added

from headrace.queries.match.partials import facet_hash
from headrace.queries.records.matched import WindowId
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.aggregate.window import OpenWindow, time_text
from headrace.queries.windows.functions import PartialError

BATCHES = st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5)), max_size=5)


def opened(query="facets", *, begin=1):
    plan = Plans(SCHEMAS).of(TEXTS[query])
    window_id = WindowId.of(added(query, begin, {"a": 1}))
    return OpenWindow(window_id, TEXTS[query], plan, 0)


def shown(window):
    return dict(window.groups())


@given(BATCHES)
def test_groups_with_the_least_hashes_are_shown(batches):
    window, whole = opened(), Counter()
    for counts in batches:
        window.add(added("facets", 1, counts), 0)
        whole.update(counts)
    first = sorted(whole, key=lambda country: facet_hash((country,)))[:2]
    assert shown(window) == {(country,): (whole[country],) for country in first}
    others = whole.total() - sum(whole[country] for country in first)
    assert (window.other() or [0]) == [others]
    assert window.events == whole.total()


@given(BATCHES, BATCHES)
def test_a_window_that_is_restored_goes_on_as_before(before, after):
    window, restored = opened(), opened()
    for counts in before:
        window.add(added("facets", 1, counts), 0)
    stored = msgspec.json.decode(
        msgspec.json.encode((window.events, window.groups(), window.other())),
        type=tuple[int, list[tuple[tuple, tuple]], list | None],
    )
    restored.restore(*stored)
    for counts in after:
        for each in (window, restored):
            each.add(added("facets", 1, counts), 0)
    assert shown(restored) == shown(window)
    assert (restored.other(), restored.events) == (window.other(), window.events)


def test_a_damaged_partial_is_noticed():
    record = added("facets", 1, {"a": 1})
    record.groups[0] = (("a",), ("1",))
    with pytest.raises(PartialError):
        opened().add(record, 0)


def test_the_end_of_a_window_is_its_begin_and_its_length():
    assert opened().end_us == 2 * WINDOW_US


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1_500_000, "1970-01-01T00:00:01.500000Z"),
        (-1_000_000, "1969-12-31T23:59:59Z"),
    ],
)
def test_times_are_iso_8601(time_us, text):
    assert time_text(time_us) == text


@pytest.mark.parametrize(
    "groups",
    [
        [(("a",), (1,)), (("b",), ("no number",))],
        [(("a",), (1,)), (("b", "c"), (1,))],
        [(("a",), (1,)), ((["b"],), (1,))],
        [(("a",), (1,)), (("b",), (1, 2))],
    ],
)
def test_a_record_that_is_damaged_adds_nothing(groups):
    window = opened()
    window.restore(1, [(("a",), (1,))], None)
    with pytest.raises(ValueError, match=r"."):
        window.restore(2, groups, None)
    assert shown(window) == {("a",): (1,)}
    assert window.events == 1


def test_a_window_can_not_begin_beyond_the_years_that_times_have():
    window = opened(begin=10**18 // WINDOW_US)
    with pytest.raises(ValueError, match="can't begin"):
        window.restore(1, [(("a",), (1,))], None)
