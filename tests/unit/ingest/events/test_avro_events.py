"""Events of Avro topics: checked as JSON, sent as Avro."""

import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import fastavro
import pytest

from headrace.events.avro.values import HEADER, avro_schema
from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import EventCheck
from headrace.model import Avro, Topic

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=65_536)


@dataclass
class Order:
    id: str
    at: datetime
    price: Decimal | None
    lines: list[int]


TOPIC = Topic("orders", event=Order, format=Avro(), event_id="id", event_time="at")
ORDER = {"id": "o", "at": "2026-05-01T11:00:00Z", "price": "1.5", "lines": [1, 2]}


def check(*events):
    return EventCheck(TOPIC, LIMITS, NOW.timestamp, 7).batch(list(events), "acme", ())


def test_an_accepted_event_is_sent_with_the_schema_of_its_class():
    accepted, rejected = check(json.dumps(ORDER | {"undeclared": 1}).encode())
    assert rejected == []
    (event,) = accepted
    assert (event.event_id, event.key) == ("o", b"acme")
    assert HEADER.unpack_from(event.value) == (0, 7)
    stream = io.BytesIO(event.value[HEADER.size :])
    read = fastavro.schemaless_reader(stream, avro_schema(TOPIC.schema), None)
    assert read == {
        "id": "o",
        "at": datetime(2026, 5, 1, 11, tzinfo=UTC),
        "price": Decimal("1.5"),
        "lines": [1, 2],
    }


def test_an_event_is_rejected_as_in_any_other_format():
    _, (problem,) = check(json.dumps(ORDER | {"lines": [1, "x"]}).encode())
    assert (problem.code, problem.detail[:17]) == ("wrong-type", "field 'lines[1]' ")


@dataclass
class Scores:
    id: str
    scores: list[float]


def test_an_event_that_is_larger_as_avro_than_as_json_is_measured_as_avro():
    topic = Topic(
        "scores", event=Scores, format=Avro(), event_id="id", config={"max.message.bytes": "4096"}
    )
    events = [b'{"id": "%d", "scores": [%s]}' % (n, b",".join([b"1"] * n)) for n in (400, 600)]
    accepted, (problem,) = EventCheck(topic, LIMITS, NOW.timestamp, 7).batch(events, "acme", ())
    assert [event.event_id for event in accepted] == ["400"]
    assert len(accepted[0].value) > 3200
    assert (problem.code, problem.index) == ("event-too-large", 1)


def test_events_of_an_avro_topic_are_never_sent_without_a_schema():
    with pytest.raises(ValueError, match="orders"):
        EventCheck(TOPIC, LIMITS, NOW.timestamp)
    with pytest.raises(ValueError, match="plain"):
        EventCheck(Topic("plain", event=Order), LIMITS, NOW.timestamp, 7)
