"""JSON Schemas of event classes, and what is compared with registered ones."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from tests.contracts.fidelity import any_sending

from headrace.events.instances import event_reader
from headrace.events.json_schema.comparison import allowed_but_not_taken
from headrace.events.json_schema.schemas import JsonSchemaWriter, json_schema, json_text
from headrace.events.wire_format import HEADER, framed
from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import EventCheck
from headrace.model import (
    EpochMillis,
    Json,
    JsonSchema,
    Precision,
    RegisteredSchema,
    Topic,
    event_schema,
)

LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=1 << 20)


@dataclass
class Item:
    sku: str
    price: Annotated[Decimal, Precision(12, scale=2)]


@dataclass
class Order:
    id: str
    at: datetime
    day: date
    made: EpochMillis
    paid: bool
    weight: float
    kind: Literal["new", "used"]
    body: bytes
    items: list[Item]
    labels: dict[str, int]
    note: str | None
    more: Any


SCHEMA = event_schema(Order)
TOPIC = Topic("orders", event=Order, format=JsonSchema(), key="id", event_time="at")
ORDER = {
    "id": "o1",
    "at": "2026-05-01T10:00:00Z",
    "day": "2026-05-01",
    "made": 1,
    "paid": True,
    "weight": 1,
    "kind": "new",
    "body": "AA==",
    "items": [{"sku": "a", "price": "1.50"}, {"sku": "b", "price": 2}],
    "labels": {"x": 1},
    "note": None,
    "more": {"any": [1.10]},
}


def compared(document, **referenced):
    others = tuple((name, json.dumps(other)) for name, other in referenced.items())
    registered = RegisteredSchema("JSON", json.dumps(document), others)
    return list(allowed_but_not_taken(registered, SCHEMA))


def changed(name, schema):
    """The schema of the class with another one for a field."""
    document = json_schema(SCHEMA)
    return document | {"properties": document["properties"] | {name: schema}}


def test_a_class_takes_all_that_its_own_schema_allows():
    assert compared(json_schema(SCHEMA)) == []


def test_what_is_sent_is_what_the_schema_says_and_what_readers_get():
    text = json.dumps(ORDER | {"undeclared": 1}).encode()
    check = EventCheck(TOPIC, LIMITS, datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp, 7)
    [event], [] = check.batch([text], "acme", ())
    assert HEADER.unpack_from(event.value) == (0, 7)
    document = json.loads(event.value[HEADER.size :])
    assert document == ORDER
    jsonschema_rs.validator_for(json_schema(SCHEMA)).validate(document)
    read = event_reader(TOPIC, datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp)
    for headers, value in (((), event.value), (HEADERS, json_text(event.value))):
        order = read(value, headers)
        assert (order.id, order.more) == ("o1", ORDER["more"])
        assert order.items[1] == Item("b", Decimal("2.00"))


HEADERS = (("other", None), ("__value_schema_id", b"\x01" + bytes(16)))


def repeats_a_key(text):
    """Whether HTTP rejects the event for it, so that none is written."""
    repeated = []
    json.loads(text, object_pairs_hook=lambda pairs: repeated.append(len(pairs) > len(dict(pairs))))
    return any(repeated)


@pytest.mark.parametrize("seed", range(20))
def test_events_of_random_classes_are_what_their_schemas_say(seed):
    rng = Random(seed)
    sending = any_sending(rng, datetime(2026, 5, 1, tzinfo=UTC), 20)
    if not isinstance(sending.format, Json | JsonSchema):
        return
    schema = event_schema(sending.record.annotation)
    validator = jsonschema_rs.validator_for(json_schema(schema))
    write, read = JsonSchemaWriter(schema, 1), JsonSchemaWriter(schema, 1)
    registered = RegisteredSchema("JSON", json.dumps(json_schema(schema)))
    assert list(allowed_but_not_taken(registered, schema)) == []
    for sent in sending.sent:
        if not sent.reason and sent.value is not None and not repeats_a_key(sent.value):
            value = write(sent.value)
            validator.validate(json.loads(json_text(value)))
            assert read(json_text(value)) == value


@pytest.mark.parametrize(
    ("name", "schema", "phrase"),
    [
        ("id", {"type": ["string", "null"]}, "field 'id' may be null"),
        ("id", {"type": "integer"}, "field 'id' may be an integer, expected string"),
        ("made", {"type": "number"}, "field 'made' may be a number, expected integer"),
        ("note", {"anyOf": [{"type": "null"}, {"type": "array"}]}, "'note' may be an array"),
        ("at", {"type": "string"}, "field 'at' may be a text that is no time: its schema has no"),
        ("body", {"type": "string"}, "'body' may be a text that is no base64"),
        ("kind", {"enum": ["new", "old"]}, "'kind' may be 'old', which is none of its texts"),
        ("kind", {"type": "string"}, "'kind' may be any text"),
        ("paid", {"const": "yes"}, "'paid' may be a string, expected boolean"),
        ("labels", {"type": "object", "patternProperties": {"x": {"type": "string"}}}, "labels[]"),
        (
            "items",
            {"items": {"$ref": "#/definitions/item"}},
            "field 'items[].price' may be missing",
        ),
        ("items", {"items": {"$ref": "item.json"}}, "field 'items[].sku' may be an integer"),
        ("items", {"allOf": [{"items": {"properties": {"sku": {"type": "null"}}}}]}, "be null"),
    ],
)
def test_what_the_class_does_not_take_is_named(name, schema, phrase):
    item = {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}}
    document = changed(name, schema) | {"definitions": {"item": item}}
    other = item | {"properties": {"sku": {"type": "integer"}}}
    assert any(phrase in said for said in compared(document, **{"item.json": other}))


@pytest.mark.parametrize(
    "schema",
    [True, {}, {"$ref": "#/properties/note"}, {"anyOf": [{"$ref": "#/properties/note"}]}],
)
def test_what_a_schema_leaves_open_is_not_named(schema):
    assert compared(changed("note", schema)) == []


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("id", {"allOf": [{"type": "string"}, {"type": ["string", "null"]}]}),
        ("id", {"type": "string", "anyOf": [{"type": "null"}, {"minLength": 1}]}),
        ("id", {"type": "string", "enum": ["a", None]}),
        ("made", {"allOf": [{"type": "number"}, {"type": "integer"}]}),
    ],
)
def test_what_another_part_of_a_schema_rules_out_is_not_named(name, schema):
    assert compared(changed(name, schema)) == []


def test_properties_of_one_name_are_taken_together():
    loose = {"properties": {"at": {"type": "string"}, "id": {"type": ["string", "null"]}}}
    assert compared({"allOf": [json_schema(SCHEMA), loose]}) == []


def test_a_reference_with_escaped_characters_is_followed():
    document = changed("id", {"$ref": "#/definitions/a%20b"})
    said = compared(document | {"definitions": {"a b": {"type": "integer"}}})
    assert said == ["field 'id' may be an integer, expected string"]


def test_a_field_that_may_be_missing_is_named():
    assert compared({"type": "object", "properties": {}})[0] == "field 'id' may be missing"
    assert "field 'more' may be missing" not in compared({"type": "object"})


def test_an_id_in_a_header_stands_before_the_value():
    guid = b"\x01" + bytes(range(16))
    assert framed(b"{}", [("a", b"x"), ("__value_schema_id", guid)]) == guid + b"{}"
    assert framed(None, [("__value_schema_id", guid)]) is None
    assert framed(b"{}", [("a", b"x")]) == b"{}"


@pytest.mark.parametrize("id_", [None, b"", b"\x00\x00", b"\x01" + bytes(15), b"\x02" + bytes(16)])
def test_a_header_without_an_id_is_no_id_and_takes_nothing_of_the_value(id_):
    value = framed(b"\0\0\0\0\x01{}", [("__value_schema_id", id_)])
    assert json_text(value) == value
    assert not value.startswith((b"\0", b"\1", b"{"))
