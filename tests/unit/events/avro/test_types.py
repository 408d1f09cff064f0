"""Which of a writer's types each type of an event class takes."""

import io
import uuid
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Annotated

import fastavro
import pytest

from headrace.errors import InvalidRecordError
from headrace.events.avro.values import HEADER
from headrace.events.instances import event_reader
from headrace.model import Avro, EpochMillis, Precision, Topic
from headrace.pipelines.source.decode.avro import AvroDecoder

AT = datetime(2026, 1, 1, tzinfo=UTC)
DAY = date(2026, 1, 1)
UUID = uuid.UUID("1df9a758-8b6b-43f5-b2e9-92b1227cc70a")
PRICE = Annotated[Decimal, Precision(12, scale=2)]


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def fixed(size, **more):
    return {"type": "fixed", "name": "F", "size": size, **more}


WRITTEN = {
    "string": ("string", "text"),
    "string of base64": ("string", "aGk="),
    "string of a time": ("string", "2026-01-01T00:00:00Z"),
    "string of a date": ("string", "2026-01-01"),
    "string of a number": ("string", "1.5"),
    "string with an unknown logical type": (logical("string", "color"), "red"),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
    "uuid": (logical("string", "uuid"), UUID),
    "bytes": ("bytes", b"hi\x00\xff"),
    "fixed": (fixed(3), b"abc"),
    "fixed uuid": (fixed(16, logicalType="uuid"), UUID.bytes),
    "duration": (fixed(12, logicalType="duration"), b"\x01\0\0\0\x02\0\0\0\x03\0\0\0"),
    "int": ("int", 5),
    "long": ("long", 5),
    "long with an unknown logical type": (logical("long", "counter"), 5),
    "float": ("float", 0.5),
    "double": ("double", 5.0),
    "boolean": ("boolean", True),
    "date": (logical("int", "date"), DAY),
    "time-millis": (logical("int", "time-millis"), time(1, 2, 3)),
    "time-micros": (logical("long", "time-micros"), time(1, 2, 3)),
    "timestamp-millis": (logical("long", "timestamp-millis"), AT),
    "timestamp-micros": (logical("long", "timestamp-micros"), AT),
    "timestamp-nanos": (logical("long", "timestamp-nanos"), 1767225600000000000),
    "local-timestamp-millis": (logical("long", "local-timestamp-millis"), AT.replace(tzinfo=None)),
    "decimal": (logical("bytes", "decimal", precision=9, scale=2), Decimal("12.34")),
    "decimal of base64": (logical("bytes", "decimal", precision=9, scale=0), Decimal(1234)),
    "fixed decimal": (fixed(4, logicalType="decimal", precision=9, scale=2), Decimal("-1.00")),
    "array": ({"type": "array", "items": "string"}, ["a"]),
    "map": ({"type": "map", "values": "string"}, {"a": "b"}),
    "record": ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}, None),
}
WRITTEN["record"] = (WRITTEN["record"][0], {"a": "b"})
CLASS = make_dataclass("Inner", [("a", str)])
TAKEN = {
    str: {
        "string": "text",
        "string of base64": "aGk=",
        "string of a time": "2026-01-01T00:00:00Z",
        "string of a date": "2026-01-01",
        "string of a number": "1.5",
        "string with an unknown logical type": "red",
        "enum": "A",
        "uuid": str(UUID),
    },
    int: {"int": 5, "long": 5, "long with an unknown logical type": 5},
    float: {
        "int": 5.0,
        "long": 5.0,
        "long with an unknown logical type": 5.0,
        "float": 0.5,
        "double": 5.0,
    },
    bool: {"boolean": True},
    datetime: {"string of a time": AT, "timestamp-millis": AT, "timestamp-micros": AT},
    EpochMillis: {"string of a time": AT, "timestamp-millis": AT, "timestamp-micros": AT},
    date: {"string of a date": DAY, "date": DAY},
    PRICE: {
        "string of a number": Decimal("1.50"),
        "int": Decimal(5),
        "long": Decimal(5),
        "long with an unknown logical type": Decimal(5),
        "decimal": Decimal("12.34"),
        "decimal of base64": Decimal(1234),
        "fixed decimal": Decimal(-1),
    },
    bytes: {"bytes": b"hi\x00\xff", "fixed": b"abc", "fixed uuid": UUID.bytes},
    list[str]: {"array": ["a"]},
    dict[str, str]: {"map": {"a": "b"}},
    CLASS: {"record": CLASS("b")},
}


def record(*fields, name="Event"):
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name, kind):
    return {"name": name, "type": kind}


def written(schema, value):
    stream = io.BytesIO()
    stream.write(HEADER.pack(0, 1))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def topic(*fields):
    return Topic("t", event=make_dataclass("Event", fields), format=Avro())


def read(topic, schema, value):
    """The event as a worker gets it, or its rejection; a pipeline must say the same."""
    encoded = written(schema, value)
    rejected = AvroDecoder(topic.schema, lambda _: schema).decode([encoded]).rejected
    reader = event_reader(topic, schemas=lambda _: schema)
    if not rejected:
        return reader(encoded)
    with pytest.raises(InvalidRecordError) as raised:
        reader(encoded)
    assert rejected == {0: (raised.value.reason, raised.value.detail)}
    return rejected[0]


@pytest.mark.parametrize("kind", TAKEN, ids=str)
def test_a_field_takes_its_own_types_and_no_other_as_text(kind):
    reads = topic(("x", kind))
    found = {
        name: read(reads, record(field("x", schema)), {"x": value})
        for name, (schema, value) in WRITTEN.items()
    }
    for name in WRITTEN.keys() - TAKEN[kind].keys():
        reason, sentence = found.pop(name)
        assert (reason, sentence[:13]) == ("wrong-type", "field 'x' is "), name
    assert {name: event.x for name, event in found.items()} == TAKEN[kind]


def test_the_sentence_names_the_path_both_types_and_no_index():
    items = {"type": "array", "items": record(field("price", "double"), name="Item")}
    schema = record(field("box", record(field("items", items), name="Box")))
    box = make_dataclass("Box", [("items", list[make_dataclass("Item", [("price", PRICE)])])])
    assert read(topic(("box", box)), schema, {"box": {"items": [{"price": 1.5}]}}) == (
        "wrong-type",
        "field 'box.items[].price' is Avro's double, expected decimal or int or long or string",
    )
    assert read(topic(("box", box)), schema, {"box": {"items": []}}).box.items == []


@pytest.mark.parametrize(
    ("value", "found"),
    [("text", "text"), (None, None), (b"aGk=", "wrong-type"), (5, "wrong-type")],
)
def test_a_branch_of_a_union_that_does_not_match_does_no_harm_to_the_others(value, found):
    schema = record(field("x", ["null", "bytes", "string", "long"]))
    event = read(topic(("x", str | None)), schema, {"x": value})
    assert (event[0] if isinstance(event, tuple) else event.x) == found


def test_null_is_what_the_class_says_of_it():
    schema = record(field("x", ["null", "bytes"]))
    assert read(topic(("x", str | None)), schema, {"x": None}).x is None
    reason, sentence = read(topic(("x", str)), schema, {"x": None})
    assert (reason, sentence) == ("wrong-type", "field 'x' is null, expected a string")


def test_fields_that_the_class_does_not_have_may_be_of_any_type():
    for schema, value in WRITTEN.values():
        writer = record(field("x", "string"), field("other", schema))
        assert read(topic(("x", str)), writer, {"x": "a", "other": value}).x == "a"


def test_a_named_type_of_two_fields_is_checked_for_each_of_them():
    part = record(field("v", "bytes"), name="Part")
    schema = record(field("a", part), field("b", "Part"), field("undeclared", "Part"))
    as_bytes = make_dataclass("AsBytes", [("v", bytes)])
    as_text = make_dataclass("AsText", [("v", str)])
    value = {key: {"v": b"x"} for key in ("a", "b", "undeclared")}
    assert read(topic(("a", as_bytes), ("b", as_bytes)), schema, value).b.v == b"x"
    for fields, path in (
        ([("a", as_bytes), ("b", as_text)], "b.v"),
        ([("a", as_text), ("b", as_bytes)], "a.v"),
    ):
        reason, sentence = read(topic(*fields), schema, value)
        assert (reason, path in sentence) == ("wrong-type", True)


def test_a_recursive_type_is_taken_as_deep_as_the_class_is():
    schema = record(field("x", "string"), field("next", ["null", "Event"]))
    inner = make_dataclass("Inner", [("x", str)])
    value = {"x": "a", "next": {"x": "b", "next": {"x": "c", "next": None}}}
    assert read(topic(("x", str), ("next", inner | None)), schema, value).next.x == "b"
    other = make_dataclass("Inner", [("x", bytes)])
    reason, sentence = read(topic(("x", str), ("next", other | None)), schema, value)
    assert (reason, sentence[:14]) == ("wrong-type", "field 'next.x'")


@pytest.mark.parametrize("branch", [0, 1])
def test_a_topic_of_several_records_is_checked_by_each(branch):
    schema = [record(field("x", "string"), name="A"), record(field("x", "bytes"), name="B")]
    value = [("A", {"x": "a"}), ("B", {"x": b"a"})][branch]
    found = read(topic(("x", str)), schema, value)
    assert (found[0] if branch else found.x) == ("wrong-type" if branch else "a")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "map", "values": "string"}, {"x": "a"}),
        ("string", '{"x":"a"}'),
        ({"type": "array", "items": "string"}, []),
        ("null", None),
    ],
)
def test_a_value_that_is_no_record_is_no_event_whatever_it_holds(schema, value):
    assert read(topic(("x", str)), schema, value)[0] == "not-an-object"
