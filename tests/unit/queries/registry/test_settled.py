"""What the records of a query say that several clients write at the same moment."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.queries.registry.record import RegisteredQuery
from headrace.queries.registry.settled import settled_query

NOW = datetime(2026, 5, 1, 10, tzinfo=UTC)
LATER = NOW + timedelta(minutes=30)
COUNT, SUM = "SELECT count(*)\nFROM clicks", "SELECT sum(price)\nFROM clicks"
QUERY = RegisteredQuery("a", COUNT, "clicks", 1, NOW, NOW, NOW + timedelta(hours=1))
RENEWED = replace(QUERY, updated_at=LATER, expires_at=LATER + timedelta(hours=1))
UPDATED = replace(RENEWED, text=SUM, revision=2)
REGISTERED = replace(RENEWED, registered_at=LATER)


@pytest.mark.parametrize("query", [None, QUERY])
def test_without_records_nothing_changes(query):
    assert settled_query(query, []) == query


@pytest.mark.parametrize(
    ("query", "records", "settled"),
    [
        (QUERY, [None], None),
        (QUERY, [RENEWED], RENEWED),
        (QUERY, [UPDATED], UPDATED),
        (None, [QUERY], QUERY),
        (QUERY, [None, RENEWED], None),
        (QUERY, [None, REGISTERED], REGISTERED),
        (None, [UPDATED], None),
        (None, [QUERY, REGISTERED], RENEWED),
        (QUERY, [UPDATED, RENEWED], UPDATED),
    ],
)
def test_a_record_that_is_out_of_date_does_not_count(query, records, settled):
    assert settled_query(query, records) == settled


def test_two_texts_never_have_one_revision():
    other = replace(UPDATED, text=f"{SUM} LIMIT 7")
    assert settled_query(QUERY, [UPDATED, other]) == replace(other, revision=3)


def test_a_registration_of_the_same_text_leaves_the_time_since_when_it_is_there():
    known, again = (replace(each, text_changed_at=each.updated_at) for each in (QUERY, REGISTERED))
    assert settled_query(known, [again]).text_changed_at == QUERY.updated_at
    assert settled_query(known, [replace(again, text=SUM)]).text_changed_at == again.updated_at


def test_an_expired_query_is_no_earlier_registration():
    at = NOW + timedelta(hours=2)
    anew = replace(QUERY, registered_at=at, updated_at=at)
    assert settled_query(replace(UPDATED, expires_at=at), [anew]) == anew
