"""Matches that are found once more, beside those that were sent."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.control import matched_event_recount
from headrace.control.matched_event_recount import (
    EmittedQuery,
    MatchedEventCounts,
    MatchedEventRecount,
    SentEvents,
)
from headrace.model import Json
from headrace.model.event import event_schema
from headrace.pipelines.source.decode import decoder_for
from headrace.queries.language import parse_query
from headrace.queries.match.shape import compile_query
from headrace.queries.matched_events.sent import SentEventRecord
from headrace.transfer.origin import Origin


class Click:
    at: datetime
    price: int


SCHEMA = event_schema(Click)


class Record:
    """A record of the topic of events, ten seconds behind the one before it."""

    def __init__(self, offset, value):
        self._offset, self._value = offset, value

    def offset(self):
        return self._offset

    def timestamp(self):
        return 1, 10_000 * self._offset

    def value(self):
        return self._value


def event(price, at="2026-05-01T00:00:00Z"):
    return json.dumps({"at": at, "price": price}).encode()


def emitted(query_id, condition, since_ms=0):
    shape, _ = compile_query(parse_query(f"SELECT count(*) FROM clicks {condition}"), SCHEMA)
    return EmittedQuery(query_id, since_ms, shape.operands)


def counted(values, sent, *queries, partition=0):
    records = [
        SentEventRecord(Origin("here", "clicks", p, at), query, 0, 0) for query, p, at in sent
    ]
    decoder = decoder_for(Json(), SCHEMA)
    recount = MatchedEventRecount(queries, SentEvents(records), decoder, "at")
    return recount.count(partition, (Record(at, value) for at, value in enumerate(values)))


CHEAP = emitted("cheap", "WHERE price < 5 AND price > 0")


def test_what_was_not_sent_is_missing_and_what_no_event_matches_is_too_many():
    values = [event(1), event(2), event(9), event(3)]
    counts = counted(values, [("cheap", 0, 0), ("cheap", 0, 2), ("cheap", 1, 3)], CHEAP)
    assert counts == MatchedEventCounts(events=4, matches=3, in_topic=2, missing=2, too_many=1)


def test_an_event_that_was_sent_twice_is_too_many():
    counts = counted([event(1)], [("cheap", 0, 0)] * 3, CHEAP)
    assert counts == MatchedEventCounts(events=1, matches=1, in_topic=3, too_many=2)


def test_each_query_has_its_own_matches():
    every = emitted("all", "")
    sent = [("all", 0, 0), ("all", 0, 1), ("cheap", 0, 1), ("cancelled", 0, 0)]
    counts = counted([event(9), event(1)], sent, CHEAP, every)
    assert counts == MatchedEventCounts(events=2, matches=3, in_topic=3)


def test_events_from_before_a_query_are_left_out():
    late = emitted("late", "", since_ms=20_000)
    counts = counted([event(1)] * 4, [("late", 0, 1), ("late", 0, 2), ("late", 0, 3)], late)
    assert counts == MatchedEventCounts(events=2, matches=2, in_topic=2)


@pytest.mark.parametrize("value", [b"{", None, event(1, at=None), b'{"price": 1}'])
def test_records_that_are_no_events_or_have_no_time_match_nothing(value):
    values = [event(1), value, event(2)]
    sent = [("cheap", 0, 0), ("cheap", 0, 2)]
    counts = counted(values, sent, CHEAP)
    assert counts == MatchedEventCounts(events=3, matches=2, in_topic=2)
    assert counted(values, [*sent, ("cheap", 0, 1)], CHEAP).too_many == 1


@given(st.lists(st.integers(-1, 6), max_size=30), st.integers(1, 7), st.data())
def test_chunks_change_nothing(prices, chunk_records, data):
    places = st.tuples(st.just("cheap"), st.integers(0, 1), st.integers(0, 30))
    sent = data.draw(st.lists(places, max_size=30))
    values = [event(price) for price in prices]
    whole = counted(values, sent, CHEAP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matched_event_recount, "_CHUNK_RECORDS", chunk_records)
        assert counted(values, sent, CHEAP) == whole
    cheap = {at for at, price in enumerate(prices) if 0 < price < 5}
    own = [at for _, partition, at in sent if partition == 0 and at < len(prices)]
    assert whole == MatchedEventCounts(
        events=len(prices),
        matches=len(cheap),
        in_topic=len(own),
        missing=len(cheap - set(own)),
        too_many=len(own) - len(cheap & set(own)),
    )
