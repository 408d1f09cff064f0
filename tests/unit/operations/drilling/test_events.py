"""Events of a drill: those of a sample, with an id and a time of their own."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from headrace import Avro, EpochMillis, Topic
from headrace.errors import DrillError
from headrace.kafka.admin.measuring import SampledRecord
from headrace.operations.drilling.events import EventName, TopicEvents, id_field, names_in
from headrace.settings import Settings

SETTINGS = Settings(Path("/ads"), "ads", ("flow",), "/lake")
NOW = 1_700_000_000.0


class User:
    name: str


class Click:
    id: str
    at: datetime
    user: User


class View:
    id: int
    at: EpochMillis
    user: str


CLICKS = Topic("clicks", event=Click, event_id="id", event_time="at", key="user.name")


def made(topic, documents, *, count, number=0):
    sample = [SampledRecord(json.dumps(document).encode()) for document in documents]
    events = TopicEvents(number, topic, SETTINGS, sample)
    return [events.event(position, NOW) for position in range(count)]


def click(number):
    return {"id": f"c{number}", "at": "2020-01-01T00:00:00Z", "user": {"name": f"u{number}"}}


def test_each_event_has_an_id_of_its_own_and_the_time_of_now():
    records = made(CLICKS, [click(number) for number in range(3)], count=7)
    events = [json.loads(record.value) for record in records]
    assert [event["id"] for event in events] == [str(EventName(0, n)) for n in range(7)]
    assert {event["at"] for event in events} == {"2023-11-14T22:13:20.000+00:00"}
    assert [record.key for record in records] == [b"u0", b"u1", b"u2"] * 2 + [b"u0"]
    assert [names_in(record.value) for record in records] == [{EventName(0, n)} for n in range(7)]


def test_an_event_without_an_id_is_known_by_its_key():
    topic = Topic("views", event=View, event_time="at", key="user")
    [record] = made(topic, [{"id": 7, "at": 0, "user": "ann"}], count=1, number=2)
    assert json.loads(record.value) == {
        "id": 7,
        "at": NOW * 1000,
        "user": "drill-2-000000000",
    }
    assert record.key == b"drill-2-000000000"


@pytest.mark.parametrize(("records", "period"), [(1, 1), (2, 2), (4, 3), (100, 97), (200, 199)])
def test_a_sample_has_a_prime_number_of_events(records, period):
    sample = [SampledRecord(json.dumps(click(n)).encode()) for n in range(records)]
    assert TopicEvents(0, CLICKS, SETTINGS, sample).period == period


def test_ids_are_found_in_any_part_of_a_record():
    first, second = EventName(0, 1), EventName(12, 345_678_901)
    value = b"\x00\x05" + str(first).encode() + b"\x02"
    assert names_in(value, None, str(second).encode()) == {first, second}
    assert names_in(b"drill-0-1", None) == set()


def test_an_event_that_the_topic_does_not_take_ends_the_drill():
    [record] = [SampledRecord(b'{"id": "c", "at": "2020-01-01T00:00:00Z"}')]
    events = TopicEvents(0, CLICKS, SETTINGS, [record])
    with pytest.raises(DrillError, match="topic 'clicks': missing-field"):
        events.event(0, NOW)


@pytest.mark.parametrize("value", [b"[1]", b"\xff"])
def test_a_sample_that_is_no_object_is_refused(value):
    with pytest.raises(DrillError, match="is no JSON"):
        TopicEvents(0, CLICKS, SETTINGS, [SampledRecord(value)])


def test_a_topic_without_a_text_for_the_id_has_none():
    assert id_field(CLICKS) == "id"
    assert id_field(Topic("views", event=View, event_id="id")) is None
    assert id_field(Topic("raw")) is None
    assert id_field(Topic("avro", event=View, key="user", format=Avro())) == "user"
