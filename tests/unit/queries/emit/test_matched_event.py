"""What a record of the topic of matched events is read as."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from headrace import MatchedEvent, Origin
from headrace.kafka.read.tail import TailedHeader, TailedRecord
from headrace.queries.emit.matched_event import matched_event_of

ORIGIN = TailedHeader("headrace-origin", b"here/clicks/1/7")
REVISION = TailedHeader("headrace-query-revision", b"2")
REGISTRY_OFFSET = TailedHeader("headrace-registry-offset", b"5")
RECORD = TailedRecord(
    "ads.matched-events",
    partition=0,
    offset=3,
    timestamp_ms=1_800_000_000_250,
    key=b"cheap",
    headers=(REVISION, REGISTRY_OFFSET, ORIGIN),
    value=b'{"price": 1.5, "owner": {"name": "a"}}',
)
MATCHED = MatchedEvent(
    query="cheap",
    revision=2,
    registry_offset=5,
    event={"price": 1.5, "owner": {"name": "a"}},
    origin=Origin("here", "clicks", 1, 7),
    sent_at=datetime(2027, 1, 15, 8, 0, 0, 250_000, UTC),
)


def test_a_record_has_an_event_its_query_and_its_place():
    assert matched_event_of(RECORD) == MATCHED


def test_headers_that_an_event_had_before_it_matched_are_not_those_of_the_match():
    own = (TailedHeader("headrace-origin", b"there/logs/0/1"), TailedHeader(REVISION.name, b"9"))
    assert matched_event_of(replace(RECORD, headers=(*own, *RECORD.headers))) == MATCHED


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"headers": None}, "where the event is"),
        ({"headers": (REVISION, REGISTRY_OFFSET)}, "where the event is"),
        ({"headers": (REGISTRY_OFFSET, ORIGIN)}, "headrace-query-revision is b''"),
        ({"headers": (REVISION, replace(REGISTRY_OFFSET, value=b"-1"), ORIGIN)}, "b'-1'"),
        ({"key": None}, "no key"),
        ({"key": b"\xff"}, "utf-8"),
        ({"value": None}, "truncated"),
        ({"value": b"[1]"}, "Expected `object`"),
        ({"timestamp_ms": 2**62}, "too large|out of range"),
    ],
)
def test_a_record_that_is_no_matched_event_is_left_out_and_logged(changes, reason, caplog):
    with caplog.at_level(logging.WARNING):
        assert matched_event_of(replace(RECORD, **changes)) is None
    [logged] = caplog.messages
    assert logged.startswith("ads.matched-events/0:3 is left out: ")
    assert re.search(reason, logged)
