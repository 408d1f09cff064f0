"""Schemas of Protobuf of event classes, and what a registered schema can hold of a class."""

import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

import pytest

from headrace.events.protobuf.writing import ProtobufWriter, protobuf_text
from headrace.model import RegisteredSchema, event_schema
from headrace.pipelines.source.decode.protobuf import ProtobufDecoder

HEAD = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; '


@dataclass
class Item:
    Item: int
    price: Decimal


@dataclass
class Order:
    id: str
    at: datetime | None
    state: Literal["NEW", "USED"]
    first: Item | None
    items: list[Item]
    labels: dict[str, float]


SCHEMA = event_schema(Order)
ORDER = {
    "id": "",
    "at": "1969-12-31T23:59:59.5Z",
    "state": "USED",
    "first": None,
    "items": [{"Item": -1, "price": "1e2"}],
    "labels": {"b": 1, "a": 2.5},
}
ROW = {
    "id": "",
    "at": datetime.fromisoformat("1969-12-31T23:59:59.5Z"),
    "state": "USED",
    "first": None,
    "items": [{"Item": -1, "price": Decimal(100)}],
    "labels": [("a", 2.5), ("b", 1.0)],
}


def sent(text, event=ORDER):
    """The row that readers get of an event that is written with a schema."""
    registered = RegisteredSchema("PROTOBUF", text, id=7)
    value = ProtobufWriter(SCHEMA, registered)(json.dumps(event).encode())
    decoded = ProtobufDecoder(SCHEMA, {7: registered}.get).decode([value])
    assert decoded.rejected == {}
    return decoded.rows.to_pylist()[0]


def test_the_schema_of_a_class_holds_its_events():
    text = protobuf_text(SCHEMA)
    assert sent(text) == ROW
    assert sent(text, ORDER | {"at": None, "first": ORDER["items"][0], "more": 1}) == ROW | {
        "at": None,
        "first": ROW["items"][0],
    }
    assert text.count("message Item") == 1
    assert "optional google.protobuf.Timestamp at = 2;" in text


FIELDS = {
    "id": "string id = 9;",
    "at": "google.protobuf.Timestamp at = 3;",
    "state": "State state = 1;",
    "first": "Item first = 20;",
    "items": "repeated Item items = 5;",
    "labels": "map<string, double> labels = 6;",
}


def file(enum="NEW = 0; USED = 4;", item="sint64 Item = 2; string price = 1;", **fields):
    body = " ".join((FIELDS | fields).values())
    nested = f"message Item {{ {item} }} enum State {{ {enum} }}"
    return f"{HEAD} message M {{ {nested} {body} int32 undeclared = 30; }}"


def test_a_registered_schema_has_numbers_and_enums_of_its_own():
    assert sent(file()) == ROW


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": ""}, "message M has no field 'id'"),
        ({"id": "bytes id = 9;"}, "field 'id' is bytes, which does not hold all of string"),
        ({"id": "repeated string id = 9;"}, "field 'id' is repeated"),
        ({"id": "Item id = 9;"}, "field 'id' is M.Item in the schema"),
        ({"at": "int64 at = 3;"}, "field 'at' can be null, and is not optional in the schema"),
        ({"at": "optional int64 at = 3;"}, "field 'at' is int64"),
        ({"enum": "NEW = 0;"}, "field 'state' is enum M.State, which has no 'USED'"),
        ({"item": "int32 Item = 2; string price = 1;"}, "field 'first.Item' is int32"),
        ({"item": "int64 Item = 2;"}, "no field 'first.price'"),
        ({"items": "Item items = 5;"}, "field 'items' is no list in the schema"),
        ({"items": "repeated string items = 5;"}, "field 'items[]' is string"),
        (
            {"labels": "map<int32, double> labels = 6;"},
            "field 'labels' has keys that are no strings",
        ),
        ({"labels": "map<string, float> labels = 6;"}, "field 'labels[]' is float"),
    ],
)
def test_a_schema_that_can_t_hold_all_events_is_refused_with_the_field(changes, words):
    with pytest.raises(ValueError, match="field") as refused:
        sent(file(**changes))
    assert words in str(refused.value)


def test_a_required_field_that_the_class_lacks_is_named():
    text = file().replace('syntax = "proto3"', 'syntax = "proto2"')
    text = text.replace("int32 undeclared", "required int32 undeclared")
    for label in ("string id", "google.protobuf.Timestamp at", "State state", "Item first"):
        text = text.replace(label, f"optional {label}")
    text = text.replace("sint64 Item", "optional sint64 Item").replace(
        "string price", "optional string price"
    )
    with pytest.raises(ValueError, match=r"field 'M.undeclared' is required"):
        sent(text)
