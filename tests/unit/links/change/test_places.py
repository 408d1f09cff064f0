"""A record is copied to where a producer of the new topic puts its event."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import LinkRecordError, SpreadsUnknownError
from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import EventCheck
from headrace.links.change.places import Placed, PlacedRecord, RecordPlaces, placing
from headrace.links.copying.plan import CopyPlan
from headrace.model import ByAccount, ByField, ByHash, ByShard, Random, Spread, Topic
from headrace.model.partitioning import partition_of_key

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
WINDOW = timedelta(minutes=1)


class Order:
    id: int
    customer: str
    at: datetime


class Message:
    """A record of partition 5, at offset 7."""

    def __init__(self, value: bytes | None, key: bytes | None) -> None:
        self._value, self._key = value, key

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def headers(self) -> list[tuple[str, bytes]]:
        return [("account", b"acme")]

    def topic(self) -> str:
        return "old"

    def partition(self) -> int:
        return 5

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return 1, 17


def topic(name: str = "old", key: str | None = "customer", **declared: object) -> Topic:
    return Topic(name, event=Order, event_time="at", key=key, **{"partitions": 6} | declared)


SPREADS = {"acme": (Spread(NOON - timedelta(days=1), 4),)}


@pytest.mark.parametrize(
    "declared",
    [
        {},
        {"key": "id"},
        {"partitioning": ByField("id")},
        {"key": "id", "partitioning": ByHash(("customer", "id"), WINDOW)},
        {"partitioning": ByShard("customer", {"a": 1, "b": 2}, 3)},
        {"partitioning": ByAccount(WINDOW, SPREADS)},
    ],
)
@given(
    number=st.integers(-(2**53), 2**53),
    customer=st.text("abé ", min_size=1),
    seconds=st.integers(0, 10**6),
)
def test_events_are_where_ingest_puts_them_with_the_key_that_it_writes(
    declared, number, customer, seconds
):
    at = (NOON + timedelta(seconds=seconds)).isoformat()
    value = json.dumps({"id": number, "customer": customer, "at": at}).encode()
    new = topic("new", **declared)
    check = EventCheck(new, JsonLimits(8, 64, 1024), (NOON + timedelta(days=99)).timestamp)
    [accepted], _ = check.batch([value], "acme", ())
    placed = RecordPlaces(topic(), new).of(Message(value, customer.encode()))
    by_key = partition_of_key(accepted.key, new.partitions)
    expected = by_key if accepted.partition == -1 else accepted.partition
    assert placed == Placed(expected, accepted.key)


@pytest.mark.parametrize("value", [None, b"no event", b"{}", b"[]", b"7", b'{"id": null}'])
@pytest.mark.parametrize(
    "declared", [{"key": "id"}, {"key": "id", "partitioning": ByHash(("id",), WINDOW)}]
)
def test_what_is_no_event_keeps_its_key_and_goes_to_its_number(declared, value):
    placed = RecordPlaces(topic(), topic("new", partitions=3, **declared)).of(Message(value, b"k"))
    assert placed == Placed(2, b"k", is_event=False)


def test_what_producers_place_at_random_is_placed_by_where_it_was():
    new = topic("new", partitions=3, partitioning=Random())
    assert RecordPlaces(topic(), new).of(Message(b"any", b"k")) == Placed(0, b"k")
    no_key = RecordPlaces(topic(), topic("new", partitions=3))
    assert no_key.of(Message(b"any", None)) == Placed(2, None)


def test_a_record_is_written_with_its_new_key_and_what_it_had():
    record = PlacedRecord(Message(b"value", b"old"), b"new")
    written = record.key(), record.value(), record.offset(), record.timestamp()
    assert written == (b"new", b"value", 7, (1, 17))


def test_a_record_whose_spreads_are_not_known_yet_is_an_error_that_names_its_offset():
    def unknown(value, key, headers):
        raise SpreadsUnknownError("new", "it is beyond the lead")

    plan_of = CopyPlan.record_error
    places = RecordPlaces(topic(), topic("new"), None, unknown)
    plan = SimpleNamespace(source_names=("change", "old to new", "here"), copies={"old": "new"})
    placed = placing(places, "new", partial(plan_of, plan))
    with pytest.raises(LinkRecordError) as refused:
        placed(Message(b"{}", b"k"))
    assert (refused.value.partition, refused.value.offset) == ("old/5", 7)
    assert "beyond the lead" in refused.value.reason
