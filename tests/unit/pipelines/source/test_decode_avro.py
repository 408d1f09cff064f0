"""Avro events: what is read of which schema, and why the others are rejected."""

import io
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.events.avro.values import HEADER, AvroWriter, avro_schema
from headrace.model import EpochMillis, Json, Precision, event_schema
from headrace.pipelines.source.decode import decoder_for
from headrace.pipelines.source.decode.avro import AvroDecoder

CHECKS = settings(max_examples=200)


@dataclass
class Item:
    sku: str
    price: Annotated[Decimal, Precision(8, scale=2)]


@dataclass
class Order:
    id: str
    n: int
    weight: float
    paid: bool
    at: datetime
    seen: EpochMillis | None
    day: date | None
    body: bytes | None
    kind: Literal["web", "app"] | None
    first: Item | None
    items: list[Item] | None
    labels: dict[str, int | None] | None


SCHEMA = event_schema(Order)
TEXT = {
    "id": "a",
    "n": -5,
    "weight": 2.5,
    "paid": True,
    "at": "2019-11-24T00:00:17.004101Z",
    "seen": 1574553617004,
    "day": "2019-11-24",
    "body": "AAH/",
    "kind": "web",
    "first": {"sku": "s", "price": "1.50"},
    "items": [{"sku": "t", "price": "-999999.99"}],
    "labels": {"x": 1, "y": None},
}


class Schemas:
    """A registry of these schemas, by id."""

    def __init__(self, *schemas):
        self.schemas = dict(enumerate(schemas, 1))
        self.asked = []

    def avro_schema(self, schema_id):
        self.asked.append(schema_id)
        return self.schemas.get(schema_id)


def record(*fields):
    return {"type": "record", "name": "Order", "fields": list(fields)}


def written(schema, value, schema_id=1):
    stream = io.BytesIO()
    stream.write(HEADER.pack(0, schema_id))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def decode(values, *schemas, event=Order):
    decoder = AvroDecoder(event_schema(event), Schemas(*schemas).avro_schema)
    decoded = decoder.decode(values)
    assert decoded.rows.schema == decoder.arrow_schema
    return decoded.rows.to_pylist(), decoded.rejected


def test_what_the_writer_writes_is_read_as_json_would_be():
    text = json.dumps(TEXT).encode()
    rows, rejected = decode([AvroWriter(SCHEMA, 1)(text)], avro_schema(SCHEMA))
    assert rejected == {}
    assert rows == decoder_for(Json(), SCHEMA).decode([text]).rows.to_pylist()


def test_the_schema_of_a_class_names_each_record_once():
    fastavro.parse_schema(avro_schema(SCHEMA))
    names = json.dumps(avro_schema(SCHEMA)).count('"name": "Item"')
    assert names == 1


class Small:
    id: str
    n: int | None
    at: EpochMillis | None


ID = {"name": "id", "type": "string"}


@pytest.mark.parametrize(
    ("field", "value", "row"),
    [
        ({"name": "other", "type": "string"}, "x", {"n": None}),
        ({"name": "n", "type": "int"}, 7, {"n": 7}),
        ({"name": "n", "type": ["null", "long"]}, None, {"n": None}),
        (
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            datetime(2019, 11, 24, tzinfo=UTC),
            {"at": datetime(2019, 11, 24, tzinfo=UTC)},
        ),
        (
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            datetime(2019, 11, 24, tzinfo=UTC),
            {"at": datetime(2019, 11, 24, tzinfo=UTC)},
        ),
    ],
)
def test_a_field_is_read_by_its_name_whatever_else_the_writer_had(field, value, row):
    value = written(record(field, ID), {"id": "a", field["name"]: value})
    ((found,), rejected) = decode([value], record(field, ID), event=Small)
    assert rejected == {}
    assert found == {"id": "a", "n": None, "at": None} | row


def test_an_enum_is_a_string():
    schema = record(
        {"name": "id", "type": {"type": "enum", "name": "E", "symbols": ["web", "app"]}}
    )
    ((row,), _) = decode([written(schema, {"id": "app"})], schema, event=Small)
    assert row["id"] == "app"


GOOD = written(record(ID), {"id": "a"})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null-value"),
        (b"", "no-schema-id"),
        (b"\x00\x00\x00\x01", "no-schema-id"),
        (b'{"id": "a"}', "no-schema-id"),
        (b"\x01" + GOOD[1:], "no-schema-id"),
        (HEADER.pack(0, 9) + b"\x02a", "unknown-schema"),
        (HEADER.pack(0, 2) + b"\x02a", "unreadable-schema"),
        (GOOD[:-1], "not-avro"),
        (HEADER.pack(0, 1), "not-avro"),
        (HEADER.pack(0, 1) + b"\x01", "not-avro"),
        (HEADER.pack(0, 1) + b"\xfe\xff\xff\xff\x0f", "not-avro"),
        (GOOD + b"\x00", "trailing-data"),
        (HEADER.pack(0, 1) + b"\x02\xff", "not-utf8"),
    ],
)
def test_a_value_that_is_no_event_is_rejected_between_its_neighbours(value, reason):
    schemas = (record(ID), {"type": "no such type"})
    rows, rejected = decode([GOOD, value, GOOD], *schemas, event=Small)
    assert [row["id"] for row in rows] == ["a", "a"]
    assert {index: code for index, (code, _) in rejected.items()} == {1: reason}


@pytest.mark.parametrize(
    ("field", "value", "reason", "words"),
    [
        ({"name": "id", "type": "int"}, 5, "wrong-type", "field 'id' is an integer, expected a"),
        ({"name": "id", "type": ["null", "string"]}, None, "wrong-type", "field 'id' is null"),
        ({"name": "no", "type": "string"}, "x", "missing-field", "field 'id' is missing"),
    ],
)
def test_fields_are_checked_as_those_of_json(field, value, reason, words):
    schema = record(field)
    _, rejected = decode([written(schema, {field["name"]: value})], schema, event=Small)
    (code, sentence) = rejected[0]
    assert code == reason
    assert words in sentence


def test_a_time_beyond_the_calendar_is_rejected():
    field = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    plain = record(ID, {"name": "at", "type": "long"})
    value = written(plain, {"id": "a", "at": 2**60})
    _, rejected = decode([value], record(ID, field), event=Small)
    assert rejected[0][0] == "out-of-range"


def test_a_schema_is_prepared_once_and_an_unknown_one_looked_up_again():
    registry = Schemas(record(ID))
    decoder = AvroDecoder(event_schema(Small), registry.avro_schema)
    unknown = HEADER.pack(0, 7) + b"x"
    decoder.decode([GOOD, unknown, GOOD])
    decoder.decode([GOOD, unknown])
    assert registry.asked == [1, 7, 7]


MUTATED = st.builds(
    lambda value, start, removed, inserted: value[:start] + inserted + value[start + removed :],
    st.just(AvroWriter(SCHEMA, 1)(json.dumps(TEXT).encode())),
    st.integers(0, 80),
    st.integers(0, 3),
    st.binary(max_size=3),
)


@CHECKS
@given(st.lists(MUTATED | st.binary(max_size=12) | st.none(), max_size=8))
def test_a_chunk_is_decoded_as_each_record_alone(values):
    schema = avro_schema(SCHEMA)
    rows, rejected = decode(values, schema)
    alone = [decode([value], schema) for value in values]
    assert str(rows) == str([row for kept, _ in alone for row in kept])
    assert rejected == {index: bad[0] for index, (_, bad) in enumerate(alone) if bad}
    assert len(rows) + len(rejected) == len(values)


TIMES = st.integers(-(2**51), 2**52).map(
    lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)
)


@CHECKS
@given(TIMES, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
def test_values_come_back_as_they_were(at, n, weight):
    text = json.dumps(
        TEXT | {"at": at.isoformat(), "n": n, "weight": weight, "day": str(at.date())}
    ).encode()
    ((row,), _) = decode([AvroWriter(SCHEMA, 1)(text)], avro_schema(SCHEMA))
    assert (row["n"], row["weight"], row["day"]) == (n, weight, at.date())
    assert row["at"] - at == timedelta(0)
