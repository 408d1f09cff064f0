"""Live queries end when they expire, and those that have ended are forgotten."""

from __future__ import annotations

import heapq
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queries.match.clicks import CLICKS
from tests.unit.queries.pipeline import REGISTERED

from headrace.queries.match.held import LiveQueries, milliseconds_since_1970
from headrace.queries.registry.record import RegisteredQuery, encode_query

COUNT = "SELECT count(*) FROM clicks"
REGISTERED_MS = milliseconds_since_1970(REGISTERED)
MAX_FORMER = 20


@pytest.fixture
def queries():
    return live_queries(MAX_FORMER)


def live_queries(max_former_expiries):
    queries = LiveQueries("clicks", CLICKS)
    queries.max_former_expiries = max_former_expiries
    return queries


def put(queries, query_id, seconds):
    """Registers or renews a query that expires after so many seconds; None: never."""
    ends = None if seconds is None else REGISTERED + timedelta(seconds=seconds)
    query = RegisteredQuery(query_id, COUNT, "clicks", 1, REGISTERED, REGISTERED, ends)
    queries.apply(*encode_query(query))


def expire(queries, seconds):
    queries.expire(REGISTERED_MS + seconds * 1000)


def live(queries):
    return {rule.query_id for rule in queries.rules}


def test_queries_that_are_cancelled_soon_leave_no_expiries(queries):
    for number in range(500):
        put(queries, f"q{number}", 3_600)
        queries.apply(f"q{number}".encode(), None)
        assert len(queries._expiries) <= MAX_FORMER + 2
    assert live(queries) == set()


def test_expiries_are_forgotten_when_all_queries_are_cancelled(queries):
    for number in range(500):
        put(queries, f"q{number}", 3_600 + number)
    assert len(queries._expiries) == 500
    for number in range(500):
        queries.apply(f"q{number}".encode(), None)
    assert len(queries._expiries) <= MAX_FORMER


def test_queries_with_a_shorter_lifetime_are_put_in_order_a_few_times(queries, monkeypatch):
    sizes, heapify = [], heapq.heapify
    monkeypatch.setattr(heapq, "heapify", lambda heap: (sizes.append(len(heap)), heapify(heap)))
    for seconds in (3_600, 60, 30, 10):
        for number in range(500):
            put(queries, f"q{number}", seconds + number)
            assert len(queries._expiries) <= 2 * len(live(queries)) + MAX_FORMER
    assert sum(sizes) <= 4 * 500
    expire(queries, 10 + 498)
    assert live(queries) == {"q499"}


def test_a_query_ends_by_its_last_expiry(queries):
    for query_id, expiries in {
        "shorter": (100, 10),
        "longer": (10, 100),
        "back": (50, 10, 50),
        "endless": (10, None),
        "bounded": (None, 50),
    }.items():
        for seconds in expiries:
            put(queries, query_id, seconds)
    expire(queries, 10)
    assert live(queries) == {"longer", "back", "endless", "bounded"}
    expire(queries, 50)
    assert live(queries) == {"longer", "endless"}
    expire(queries, 1_000)
    assert live(queries) == {"endless"}


def test_a_query_that_is_registered_again_ends_by_its_new_expiry(queries):
    put(queries, "a", 10)
    queries.apply(b"a", None)
    put(queries, "a", 20)
    expire(queries, 10)
    assert live(queries) == {"a"}
    expire(queries, 20)
    assert live(queries) == set()
    assert not queries._expiries


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from(["put", "cancel", "expire"]),
            st.none() | st.integers(1, 20),
        ),
        max_size=60,
    )
)
def test_live_queries_are_those_that_have_not_expired(steps):
    queries, expected, now = live_queries(max_former_expiries=1), {}, 0
    for number, act, seconds in steps:
        query_id = f"q{number}"
        if act == "put":
            expected[query_id] = None if seconds is None else now + seconds
            put(queries, query_id, expected[query_id])
        elif act == "cancel":
            expected.pop(query_id, None)
            queries.apply(query_id.encode(), None)
        else:
            now += seconds or 0
            expire(queries, now)
            expected = {each: end for each, end in expected.items() if end is None or end > now}
        assert live(queries) == expected.keys()
        assert len(queries._expiries) <= 2 * len(expected) + 1
