"""Record values as instances of event classes, and that pipelines reject the same ones."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from headrace.errors import InvalidRecordError, UnknownFormatError
from headrace.events.avro.values import HEADER, AvroWriter, avro_schema
from headrace.events.instances import event_reader
from headrace.model import Avro, EpochMillis, Topic
from headrace.pipelines.source.decode.avro import AvroDecoder
from headrace.pipelines.source.decode.json_events import JsonDecoder

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Kind(enum.StrEnum):
    VIEW = "view"
    CLICK = "click"


@dataclasses.dataclass
class Item:
    name: str
    price: Decimal


@dataclasses.dataclass(frozen=True)
class Order:
    id: int
    at: datetime
    kind: Kind
    items: list[Item]
    sent: EpochMillis | None = None
    shelf: Literal["a", "b"] | None = None
    stock: dict[str, Item] | None = None
    first: Item | None = None
    day: date | None = None
    photo: bytes | None = None
    rest: Any = None
    prices: dict[str, Decimal] | None = None


VALUE = b"""{
    "id": 7, "at": "2025-12-31T23:00:00.5-01:00", "kind": "click", "sent": 1500, "shelf": "b",
    "items": [{"name": "pen", "price": 1.50}], "stock": {"x": {"name": "ink", "price": "2"}},
    "first": {"name": "cap", "price": 3}, "day": "2026-01-02", "photo": "aGk=",
    "rest": {"deep": [1, null]}, "not declared": true
}"""


def read(event, value=VALUE, **declared):
    return event_reader(Topic("orders", event=event, **declared), NOW.timestamp)(value)


def test_every_type_of_a_field_is_what_the_class_says():
    order = read(Order)
    assert order == Order(
        7,
        datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC),
        Kind.CLICK,
        [Item("pen", Decimal("1.50"))],
        EpochMillis(1970, 1, 1, 0, 0, 1, 500_000, UTC),
        "b",
        {"x": Item("ink", Decimal(2))},
        Item("cap", Decimal(3)),
        date(2026, 1, 2),
        b"hi",
        {"deep": [1, None]},
        None,
    )
    assert (order.at.tzinfo, type(order.kind), type(order.sent)) == (UTC, Kind, EpochMillis)


def test_what_may_be_absent_is_none():
    order = read(Order, b'{"id": 1, "at": "2026-01-01T00:00:00Z", "kind": "view", "items": []}')
    assert dataclasses.astuple(order)[4:] == (None,) * 8
    nulls = b'{"id": 1, "at": "2026-01-01T00:00:00Z", "kind": "view", "items": [], "rest": null}'
    assert read(Order, nulls).rest is None


class Plain:
    id: int
    kind: Kind


class Struct(msgspec.Struct):
    id: int
    kind: Kind


class Named(NamedTuple):
    id: int
    kind: Kind


class Typed(TypedDict):
    id: int
    kind: Kind


def test_any_class_with_annotations_can_be_an_event():
    plain = read(Plain)
    assert (type(plain), plain.id, plain.kind) == (Plain, 7, Kind.CLICK)
    assert read(Struct) == Struct(7, Kind.CLICK)
    assert read(Named) == Named(7, Kind.CLICK)
    assert read(Typed) == {"id": 7, "kind": Kind.CLICK}


class Slotted:
    __slots__ = ("name", "size")
    name: str
    size: int


@dataclasses.dataclass(frozen=True)
class Derived:
    name: str
    size: int = dataclasses.field(init=False)


@pytest.mark.parametrize("event", [Slotted, Derived])
def test_fields_that_no_constructor_takes_are_set(event):
    instance = read(event, b'{"name": "pen", "size": 3}')
    assert (type(instance), instance.name, instance.size) == (event, "pen", 3)


@pytest.mark.parametrize("value", [b"\xff", b"", None])
def test_without_an_event_class_a_value_is_bytes(value):
    assert read(None, value) is value


def changed(**fields):
    return msgspec.json.encode(msgspec.json.decode(VALUE) | fields)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null-value"),
        (b" ", "empty"),
        (b"{} {}", "trailing-data"),
        (b'{"id": ', "not-json"),
        (b"[]", "not-an-object"),
        (b"{}", "missing-field"),
        (changed(id="7"), "wrong-type"),
        (changed(id=2**63), "out-of-range"),
        (changed(kind="buy"), "unknown-value"),
        (changed(at="yesterday"), "wrong-type"),
        (changed(at="0001-01-01T00:00:00+01:00"), "out-of-range"),
        (changed(items=[{"name": "pen", "price": "much"}]), "wrong-type"),
        (changed(first={"name": "pen", "price": 10**30}), "out-of-range"),
        (changed(items=[{"name": "pen", "price": None}]), "wrong-type"),
        (changed(stock={"x": {"name": "ink", "price": None}}), "wrong-type"),
        (changed(first={"name": "cap", "price": None}), "wrong-type"),
        (changed(prices={"pen": None}), "wrong-type"),
        (changed(rest={"deep": [msgspec.Raw(b"-1.5e400")]}), "out-of-range"),
        (changed(rest=msgspec.Raw(b"1" * 4301)), "out-of-range"),
        (changed(photo="?"), "wrong-type"),
        (changed(day="2026-13-01"), "wrong-type"),
    ],
)
def test_a_value_is_rejected_for_what_a_pipeline_rejects_it_for(value, reason):
    topic = Topic("orders", event=Order)
    with pytest.raises(InvalidRecordError) as raised:
        event_reader(topic)(value)
    decoded = JsonDecoder(topic.schema).decode([value])
    assert (raised.value.reason, raised.value.detail) == decoded.rejected[0]
    assert raised.value.reason == reason


def test_a_null_is_rejected_with_its_path():
    with pytest.raises(InvalidRecordError, match=r"field 'items\[0\].price' is null"):
        read(Order, changed(items=[{"name": "pen", "price": None}]))


@pytest.mark.parametrize("number", [b"1e308", b"1e-400", b"1" * 400, b'"1e400"', b'{"1e400": 0}'])
def test_any_holds_every_number_that_a_double_or_an_integer_holds(number):
    value = changed(rest=msgspec.Raw(number))
    assert read(Order, value).rest == msgspec.json.decode(number)
    decoded = JsonDecoder(Topic("orders", event=Order).schema).decode([value])
    assert decoded.rows["rest"].to_pylist() == [number.decode()]


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        ("2026-01-02T00:00:01Z", "after the latest accepted, 2026-01-02T00:00:00+00:00"),
        ("1999-12-31T23:59:59Z", "before the earliest accepted, 2000-01-01T00:00:00+00:00"),
    ],
)
def test_an_event_time_outside_the_bounds_is_rejected(at, sentence):
    with pytest.raises(InvalidRecordError, match="event-time-out-of-bounds") as raised:
        read(Order, changed(at=at), event_time="at")
    assert sentence in raised.value.detail
    assert read(Order, changed(at="2026-01-02T00:00:00Z"), event_time="at").id == 7


def test_a_topic_may_accept_any_late_event_time():
    order = read(
        Order,
        changed(at="9999-12-31T00:00:00Z"),
        event_time="at",
        latest_ahead=timedelta.max,
    )
    assert order.at.year == 9999


@dataclasses.dataclass(frozen=True)
class Sale:
    """An order without what Avro has no type for."""

    id: int
    at: datetime
    kind: Kind
    items: list[Item]
    sent: EpochMillis | None
    stock: dict[str, Item] | None
    first: Item | None
    day: date | None
    photo: bytes | None


AVRO = Topic("orders", event=Sale, format=Avro(), event_time="at")


def test_an_avro_value_is_the_instance_that_its_json_is():
    text = changed()
    schema = avro_schema(AVRO.schema)
    reader = event_reader(AVRO, NOW.timestamp, {7: schema}.get)
    read_from_json = read(Sale, text)
    read_from_avro = reader(AvroWriter(AVRO.schema, 7)(text))
    assert read_from_avro == read_from_json
    assert type(read_from_avro.sent) is type(read_from_json.sent)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null-value"),
        (b"{}", "no-schema-id"),
        (HEADER.pack(0, 8), "unknown-schema"),
        (HEADER.pack(0, 7), "not-avro"),
        (HEADER.pack(0, 1) + b"\x02a", "missing-field"),
    ],
)
def test_an_avro_value_is_rejected_for_what_a_pipeline_rejects_it_for(value, reason):
    other = {"type": "record", "name": "O", "fields": [{"name": "no", "type": "string"}]}
    schemas = {1: other, 7: avro_schema(AVRO.schema)}.get
    with pytest.raises(InvalidRecordError) as raised:
        event_reader(AVRO, NOW.timestamp, schemas)(value)
    decoded = AvroDecoder(AVRO.schema, schemas).decode([value])
    assert (raised.value.reason, raised.value.detail) == decoded.rejected[0]
    assert raised.value.reason == reason


def test_an_avro_event_outside_the_bounds_is_rejected():
    reader = event_reader(AVRO, NOW.timestamp, {7: avro_schema(AVRO.schema)}.get)
    with pytest.raises(InvalidRecordError, match="event-time-out-of-bounds"):
        reader(AvroWriter(AVRO.schema, 7)(changed(at="2027-01-02T00:00:01Z")))


def test_an_avro_topic_is_not_read_without_schemas():
    with pytest.raises(ValueError, match="orders"):
        event_reader(AVRO)


def test_a_topic_of_an_unknown_format_is_not_read_as_json():
    with pytest.raises(UnknownFormatError, match="format 'Protobuf'"):
        event_reader(Topic("orders", event=Order, format="Protobuf"))
