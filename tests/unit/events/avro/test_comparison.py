"""What an Avro schema allows and an event class does not take."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Annotated, Literal

import pytest
from tests.contracts.fidelity import any_sending

from headrace.events.avro.comparison import allowed_but_not_taken
from headrace.events.avro.values import avro_schema
from headrace.model import Avro, Precision, RegisteredSchema, event_schema


@dataclass
class Item:
    price: Annotated[Decimal, Precision(12, scale=2)]


@dataclass
class Order:
    id: str
    at: datetime
    day: date
    kind: Literal["new", "used"]
    items: list[Item]
    labels: dict[str, float]
    note: str | None


SCHEMA = event_schema(Order)


def phrases_of(document, schema):
    return list(allowed_but_not_taken(RegisteredSchema("AVRO", json.dumps(document)), schema))


def compared(name, kind):
    """What is said of the schema of the class with another type for a field; None: without it."""
    document = avro_schema(SCHEMA)
    fields = [part for part in document["fields"] if part["name"] != name]
    if kind is not None:
        fields.append({"name": name, "type": kind})
    return phrases_of(document | {"fields": fields}, SCHEMA)


@pytest.mark.parametrize("seed", range(20))
def test_a_class_takes_all_that_its_own_schema_allows(seed):
    sending = any_sending(Random(seed), datetime(2026, 5, 1, tzinfo=UTC), 1)
    if isinstance(sending.format, Avro):
        schema = event_schema(sending.record.annotation)
        assert phrases_of(avro_schema(schema), schema) == []


PRICE = {"type": "record", "name": "P", "fields": [{"name": "price", "type": "double"}]}


@pytest.mark.parametrize(
    ("name", "kind", "phrases"),
    [
        ("id", ["null", "string"], ["field 'id' may be null"]),
        ("id", "bytes", ["field 'id' is Avro's bytes, expected string or enum"]),
        ("id", None, ["field 'id' may be missing"]),
        ("note", None, []),
        ("note", "string", []),
        ("day", "string", []),
        ("day", "int", ["field 'day' is Avro's int, expected date or string"]),
        (
            "kind",
            {"type": "enum", "name": "E", "symbols": ["new", "old"]},
            ["field 'kind' may be 'old', which is none of its texts"],
        ),
        (
            "items",
            {"type": "array", "items": PRICE},
            ["field 'items[].price' is Avro's double, expected decimal or int or long or string"],
        ),
        ("labels", {"type": "map", "values": ["int", "null"]}, ["field 'labels[]' may be null"]),
    ],
)
def test_what_the_class_does_not_take_is_named(name, kind, phrases):
    assert compared(name, kind) == phrases


def test_the_event_itself_is_a_record():
    assert phrases_of(["null", "string"], SCHEMA) == [
        "an event may be null",
        "the value is Avro's string, expected a record",
    ]


@pytest.mark.parametrize("schema", [{"type": "record"}, "Order", 7, {}])
def test_what_is_no_schema_is_not_compared(schema):
    with pytest.raises(ValueError, match=r"."):
        phrases_of(schema, SCHEMA)


def test_a_name_that_is_no_text_is_that_of_no_field():
    document = avro_schema(SCHEMA)
    fields = [part | {"name": [part["name"]]} for part in document["fields"]]
    missing = phrases_of(document | {"fields": fields}, SCHEMA)
    assert "field 'id' may be missing" in missing
