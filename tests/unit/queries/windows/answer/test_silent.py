"""The queries whose windows are looked at even without events, as their records say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.events.times import microseconds_since_1970
from headrace.model.event import event_schema
from headrace.queries.registry.record import RegisteredQuery, encode_query
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.answer.silent import WatchedQueries

REGISTERED = datetime(2026, 5, 1, 10, tzinfo=UTC)
CHANGED, RENEWED = (REGISTERED + timedelta(hours=hours) for hours in (1, 9))
TEXT = "SELECT count(*) FROM views WINDOW 1 day EMPTY WINDOWS EMIT"
UPDATED = RegisteredQuery("q", TEXT, "views", 2, REGISTERED, RENEWED, None, text_changed_at=CHANGED)
REVISION_1 = replace(UPDATED, revision=1, text_changed_at=REGISTERED)


class View:
    at: datetime


def since(*records):
    """Returns since when a query of records has had its text."""
    watched = WatchedQueries(Plans({"views": event_schema(View)}), 1)
    for record in records:
        watched.take(*encode_query(record))
    [query] = watched.live(0, microseconds_since_1970(RENEWED) // 1000)
    return datetime.fromtimestamp(query.since_us / 1e6, UTC)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        # Retention has deleted the record of the update: renewals remain.
        ([UPDATED], CHANGED),
        ([replace(UPDATED, text_changed_at=None)], RENEWED),
        ([replace(UPDATED, updated_at=CHANGED, text_changed_at=None), UPDATED], CHANGED),
        ([REVISION_1], REGISTERED),
        ([replace(REVISION_1, text_changed_at=None)], REGISTERED),
    ],
)
def test_a_renewal_says_since_when_a_query_has_its_text(records, expected):
    assert since(*records) == expected
