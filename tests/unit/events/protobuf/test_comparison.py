"""What a schema of Protobuf allows and an event class does not take."""

from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Literal

import pytest
from tests.contracts.fidelity import any_sending

from headrace.events.protobuf.comparison import allowed_but_not_taken
from headrace.events.protobuf.writing import protobuf_text
from headrace.model import Protobuf, RegisteredSchema, event_schema


@dataclass
class Item:
    count: int


@dataclass
class Order:
    id: str
    at: datetime
    state: Literal["NEW", "USED"]
    items: list[Item]
    labels: dict[str, float]
    note: str | None


SCHEMA = event_schema(Order)
FIELDS = {
    "id": "string id = 1;",
    "at": "google.protobuf.Timestamp at = 2;",
    "state": "State state = 3;",
    "items": "repeated Item items = 4;",
    "labels": "map<string, double> labels = 5;",
    "note": "optional string note = 6;",
}


def compared(enum="NEW = 0; USED = 1;", item="int64 count = 1;", **fields):
    body = " ".join((FIELDS | fields).values())
    nested = f"message Item {{ {item} }} enum State {{ {enum} }}"
    head = 'syntax = "proto3"; import "google/protobuf/timestamp.proto";'
    text = f"{head} message M {{ {nested} {body} }}"
    return list(allowed_but_not_taken(RegisteredSchema("PROTOBUF", text), SCHEMA))


@pytest.mark.parametrize("seed", range(20))
def test_a_class_takes_all_that_its_own_schema_allows(seed):
    sending = any_sending(Random(seed), datetime(2026, 5, 1, tzinfo=UTC), 1)
    if isinstance(sending.format, Protobuf):
        schema = event_schema(sending.record.annotation)
        registered = RegisteredSchema("PROTOBUF", protobuf_text(schema))
        assert list(allowed_but_not_taken(registered, schema)) == []


@pytest.mark.parametrize(
    ("changes", "phrases"),
    [
        ({}, []),
        ({"id": "optional string id = 1;"}, ["field 'id' may be missing"]),
        ({"id": "oneof x { string id = 1; }"}, ["field 'id' may be missing"]),
        ({"id": ""}, ["field 'id' may be missing"]),
        ({"note": "", "items": "", "at": "string at = 9;"}, []),
        ({"at": "optional google.protobuf.Timestamp at = 2;"}, ["field 'at' may be missing"]),
        ({"id": "bytes id = 1;"}, ["field 'id' is Protobuf's bytes, expected string or an enum"]),
        ({"id": "bool id = 1;"}, ["field 'id' is Protobuf's bool, expected string or an enum"]),
        ({"enum": "OLD = 0; NEW = 1;"}, ["field 'state' may be 'OLD', which is none of its texts"]),
        (
            {"item": "double count = 1;"},
            ["field 'items[].count' is Protobuf's double, expected an integer"],
        ),
        (
            {"labels": "map<string, int64> labels = 5;"},
            [
                (
                    "field 'labels[]' is Protobuf's int64, "
                    "expected double, float or an integer of 32 bits"
                )
            ],
        ),
        (
            {"labels": "map<int32, double> labels = 5;"},
            [
                (
                    "field 'labels' is Protobuf's map with keys that are int32, "
                    "expected a map whose keys are strings"
                )
            ],
        ),
    ],
)
def test_what_the_class_does_not_take_is_named(changes, phrases):
    assert compared(**changes) == phrases


def test_a_field_that_a_schema_requires_is_not_missing():
    text = 'syntax = "proto2"; message M { required string id = 1; }'
    phrases = list(allowed_but_not_taken(RegisteredSchema("PROTOBUF", text), SCHEMA))
    assert "field 'id' may be missing" not in phrases
    assert "field 'state' may be missing" in phrases


def test_a_file_without_a_message_has_no_events():
    registered = RegisteredSchema("PROTOBUF", 'syntax = "proto3";')
    assert list(allowed_but_not_taken(registered, SCHEMA)) == ["there is no message"]


@pytest.mark.parametrize(
    "text",
    [
        "message {",
        'syntax = "proto2"; message M { optional int32 a_b = 1; optional int32 aB = 2; }',
    ],
)
def test_what_is_no_schema_is_not_compared(text):
    with pytest.raises(ValueError, match="it is no schema of Protobuf's"):
        list(allowed_but_not_taken(RegisteredSchema("PROTOBUF", text), SCHEMA))


def test_a_compiler_that_does_not_run_is_a_value_error(monkeypatch):
    monkeypatch.setattr("sys.executable", "no-such-python")
    with pytest.raises(ValueError, match="no-such-python"):
        list(allowed_but_not_taken(RegisteredSchema("PROTOBUF", "// not compiled before"), SCHEMA))
