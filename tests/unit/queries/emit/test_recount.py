"""Matches that are found once more, beside those that were sent."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import Json
from headrace.model.event import event_schema
from headrace.pipelines.source.decode import decoder_for
from headrace.queries.emit.recount import MatchedEventCounts, recount
from headrace.queries.language import parse_query
from headrace.queries.match.rules import RuleSet
from headrace.queries.match.shape import Rule, compile_query


class Click:
    at: datetime
    price: int


SCHEMA = event_schema(Click)


class Record:
    """A record of the topic of events."""

    def __init__(self, offset, value):
        self._offset, self._value = offset, value

    def offset(self):
        return self._offset

    def value(self):
        return self._value


def event(price, at="2026-05-01T00:00:00Z"):
    return json.dumps({"at": at, "price": price}).encode()


def counted(values, sent, chunk_records=10_000, **conditions):
    """Counts events, whose offsets begin with 10, with queries by id."""
    rules = RuleSet()
    for query_id, condition in conditions.items():
        query = parse_query(f"SELECT count(*) FROM clicks {condition}")
        rules.put(Rule(query_id, *compile_query(query, SCHEMA)))
    records = (Record(at, value) for at, value in enumerate(values, 10))
    return recount(records, Counter(sent), rules, decoder_for(Json(), SCHEMA), "at", chunk_records)


CHEAP = "WHERE price < 5 AND price > 0 MATCHED EVENTS EMIT"


def test_what_was_not_sent_is_missing_and_what_no_event_matches_is_too_many():
    counts = counted([event(1), event(2), event(9), event(3)], [(10, "q"), (12, "q")], q=CHEAP)
    assert counts == MatchedEventCounts(events=4, matches=3, in_topic=2, missing=2)
    assert counts.too_many == 1


def test_an_event_that_was_sent_twice_is_too_many():
    counts = counted([event(1)], [(10, "q")] * 3, q=CHEAP)
    assert counts == MatchedEventCounts(events=1, matches=1, in_topic=3, missing=0)
    assert counts.too_many == 2


def test_each_query_has_its_own_matches():
    sent = [(10, "all"), (11, "all"), (11, "q")]
    queries = {"all": "MATCHED EVENTS EMIT", "silent": "WHERE price < 5"}
    counts = counted([event(9), event(1)], sent, q=CHEAP, **queries)
    assert counts == MatchedEventCounts(events=2, matches=3, in_topic=3, missing=0)


@pytest.mark.parametrize("value", [b"{", None, event(1, at=None), b'{"price": 1}'])
def test_records_that_are_no_events_or_have_no_time_match_nothing(value):
    values, sent = [event(1), value, event(2)], [(10, "q"), (12, "q")]
    counts = counted(values, sent, q=CHEAP)
    assert counts == MatchedEventCounts(events=3, matches=2, in_topic=2, missing=0)
    assert counted(values, [*sent, (11, "q")], q=CHEAP).too_many == 1


@given(st.lists(st.integers(-1, 6), max_size=30), st.integers(1, 7), st.data())
def test_chunks_change_nothing(prices, chunk_records, data):
    offsets = st.sampled_from(range(10, 10 + max(len(prices), 1)))
    sent = data.draw(st.lists(offsets, max_size=30)) if prices else []
    counts = counted(map(event, prices), [(at, "q") for at in sent], chunk_records, q=CHEAP)
    cheap = {at for at, price in enumerate(prices, 10) if 0 < price < 5}
    missing = len(cheap - set(sent))
    assert counts == MatchedEventCounts(len(prices), len(cheap), len(sent), missing)
    assert counts.too_many == len(sent) - len(cheap & set(sent))
