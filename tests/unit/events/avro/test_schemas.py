"""Schemas as producers register them: what no reader needs does not make them unreadable."""

import struct
from dataclasses import make_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.events.avro_bytes import long

from headrace.events.avro.values import HEADER
from headrace.model import Precision, event_schema
from headrace.pipelines.source.decode.avro import AvroDecoder


def record(*fields, name="V"):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields]}


def decimal(precision, scale=0, kind="bytes", **more):
    return {"type": kind, "logicalType": "decimal", "precision": precision, "scale": scale} | more


def enum(*symbols, **more):
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def decoded(schema, value, **fields):
    """The row that a class of these fields reads of a value, or why it is rejected."""
    event = make_dataclass("Event", fields.items())
    decoder = AvroDecoder(event_schema(event), {1: schema}.get)
    result = decoder.decode([HEADER.pack(0, 1) + value])
    return result.rejected[0] if result.rejected else result.rows.to_pylist()[0]


ODD = [
    ["null", decimal(64, 127)],
    decimal(0),
    decimal(4, -1),
    decimal("4"),
    decimal(4, None),
    decimal(4, 2, "string"),
    decimal(40, 2, "fixed", name="F", size=4),
    decimal(10**12, 2, "fixed", name="F", size=4),
    {"type": "bytes", "logicalType": "decimal"},
    {"type": "fixed", "name": "F", "size": 3, "logicalType": "duration"},
    {"type": "string", "logicalType": ["no", "text"]},
    {"type": {"type": "string"}},
    enum("open", "in-progress", ""),
    enum("a", "a", default="b"),
]


@pytest.mark.parametrize("kind", ODD, ids=str)
def test_a_schema_is_read_whatever_a_field_has_that_the_class_lacks(kind):
    schema = record(("id", "long"), ("odd", kind), ("n", "long"))
    is_fixed = isinstance(kind, dict) and kind["type"] == "fixed"
    written = b"abcd"[: kind["size"]] if is_fixed else b"\x00"
    assert decoded(schema, b"\x0e" + written + b"\x10", id=int, n=int) == {"id": 7, "n": 8}


def test_an_invalid_logical_type_is_its_base_type():
    assert decoded(record(("x", decimal(64, 127))), b"\x04\x01\x02", x=bytes) == {"x": b"\x01\x02"}
    reason, sentence = decoded(record(("x", decimal(64, 127))), b"\x02\x01", x=Decimal)
    assert (reason, sentence.split(",")[0]) == ("wrong-type", "field 'x' is Avro's bytes")
    local = {"type": "string", "logicalType": "timestamp-millis"}
    assert decoded(record(("x", local)), b"\x02a", x=str) == {"x": "a"}


UUID = {"type": "string", "logicalType": "uuid"}


@pytest.mark.parametrize(
    "text",
    [
        "1df9a758-8b6b-43f5-b2e9-92b1227cc70a",
        "1DF9A758-8B6B-43F5-B2E9-92B1227CC70A",
        "{1df9a758-8b6b-43f5-b2e9-92b1227cc70a}",
        "urn:uuid:1df9a758-8b6b-43f5-b2e9-92b1227cc70a",
        "1df9a7588b6b43f5b2e992b1227cc70a",
        "none",
        "",
    ],
)
def test_a_uuid_is_the_text_that_was_written(text):
    written = sized(text.encode())
    assert decoded(record(("x", UUID)), written, x=str) == {"x": text}
    texts = record(("x", {"type": "array", "items": ["null", UUID]}))
    row = decoded(texts, long(1) + b"\x02" + written + b"\x00", x=list[str])
    assert row == {"x": [text]}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_symbol_is_any_text(number):
    symbols = ("in-progress", "", "ż")
    field = [enum(*symbols)] if number else enum(*symbols)
    value = bytes([0, number * 2]) if number else b"\x00"
    assert decoded(record(("x", field)), value, x=str) == {"x": symbols[number]}


def test_a_default_of_another_type_and_an_alias_are_not_looked_at():
    schema = record(("x", "long"))
    schema["fields"][0] |= {"default": "none", "aliases": "old"}
    assert decoded(schema, b"\x0e", x=int) == {"x": 7}


@pytest.mark.parametrize(("size", "digits"), [(1, 2), (4, 9), (8, 18), (16, 38), (100, 240)])
def test_a_fixed_decimal_has_as_many_digits_as_its_bytes_hold(size, digits):
    def schema(precision):
        return record(("x", decimal(precision, 0, "fixed", name="F", size=size)))

    written = (7).to_bytes(size, "big")
    assert 10**digits <= 2 ** (8 * size - 1) < 10 ** (digits + 1)
    assert decoded(schema(digits), written, x=Decimal) == {"x": Decimal(7)}
    assert decoded(schema(digits + 1), written, x=bytes) == {"x": written}


def test_a_decimal_beyond_its_own_digits_is_not_rounded():
    price = Annotated[Decimal, Precision(12, scale=2)]
    written = (1234567).to_bytes(3, "big")
    row = decoded(record(("x", decimal(4, 2))), b"\x06" + written, x=price)
    assert row == {"x": Decimal("12345.67")}


def sized(content):
    return long(len(content)) + content


LONGS = st.integers(-(2**63), 2**63 - 1).map(long)
INTS = st.integers(-(2**31), 2**31 - 1).map(long)
SIZED = st.binary(max_size=8).map(sized)
LEAVES = st.one_of(
    st.tuples(st.just("string"), SIZED),
    st.tuples(st.just("bytes"), SIZED),
    st.tuples(st.just(UUID), SIZED),
    st.tuples(st.just(decimal(4, 2)), SIZED),
    st.tuples(st.just({"type": "int", "logicalType": "date"}), INTS),
    st.tuples(st.just({"type": "int", "logicalType": "time-millis"}), INTS),
    st.tuples(st.just({"type": "long", "logicalType": "timestamp-millis"}), LONGS),
    st.tuples(st.just({"type": "long", "logicalType": "local-timestamp-micros"}), LONGS),
    st.tuples(st.just("double"), st.floats().map(lambda number: struct.pack("<d", number))),
    st.tuples(st.just("null"), st.just(b"")),
)


def nested(held):
    kind, content = held
    return st.sampled_from(
        [
            ({"type": "array", "items": kind}, long(1) + content + b"\x00"),
            ({"type": "map", "values": kind}, long(1) + b"\x02\xff" + content + b"\x00"),
            (["null", kind], b"\x02" + content),
            (record(("a", kind), ("b", "null"), name="R"), content),
        ]
    )


@given(LEAVES | LEAVES.flatmap(nested))
def test_a_field_that_the_class_lacks_holds_anything(held):
    kind, content = held
    schema = record(("id", "long"), ("other", kind), ("again", ["null", kind]), ("n", "long"))
    if isinstance(kind, dict) and kind["type"] == "record":
        schema["fields"][2]["type"] = ["null", "R"]
    value = b"\x0e" + content + b"\x02" + content + b"\x10"
    assert decoded(schema, value, id=int, n=int) == {"id": 7, "n": 8}


def test_types_that_hold_themselves_are_skipped():
    node = record(("v", "string"), ("next", ["null", "V"]))
    schema = record(("id", "long"), ("list", node | {"name": "V"}), name="Outer")
    value = b"\x0e" + b"\x02\xff\x02" * 50 + b"\x02\xff\x00"
    assert decoded(schema, value, id=int) == {"id": 7}


def test_a_named_type_is_read_where_the_class_has_it_and_skipped_elsewhere():
    state = enum("open", "in-progress")
    schema = record(("other", state), ("state", "E"), ("third", "E"))
    assert decoded(schema, b"\x00\x02\x06", state=str) == {"state": "in-progress"}
    reason, sentence = decoded(schema, b"\x00\x02\x00", state=int)
    assert (reason, sentence.split(",")[0]) == ("wrong-type", "field 'state' is a string")


INNER = make_dataclass("Inner", [("at", datetime)])
TIMES = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("kind", "value", "fields", "reason", "sentence"),
    [
        ("string", b"\x02\xff", str, "not-utf8", "field 'x' is a string that is not UTF-8"),
        ("string", b"\x04a", str, "not-avro", "field 'x' does not fit its schema: the record ends"),
        ("string", b"\x01", str, "not-avro", "field 'x' does not fit its schema: its size is -1"),
        (
            ["null", "long"],
            b"\x04",
            int,
            "not-avro",
            "field 'x' does not fit its schema: it has no",
        ),
        (enum("A"), b"\x02", str, "not-avro", "field 'x' is no enum"),
        (
            {"type": "int", "logicalType": "date"},
            long(2**31 - 1),
            date,
            "out-of-range",
            "field 'x' is outside the years 1 to 9999",
        ),
        (
            {"type": "array", "items": record(("at", TIMES), name="I")},
            long(2) + long(0) + long(2**62) + b"\x00",
            list[INNER],
            "out-of-range",
            "field 'x[1].at' is outside the years 1 to 9999",
        ),
        (
            {"type": "map", "values": "string"},
            b"\x02\x06key\x02\xff\x00",
            dict[str, str],
            "not-utf8",
            "field 'x['key']' is a string that is not UTF-8",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_rejected_with_its_field(
    kind, value, fields, reason, sentence
):
    rejected = decoded(record(("before", "string"), ("x", kind)), b"\x00" + value, x=fields)
    assert rejected[0] == reason
    assert rejected[1].replace('"', "'").startswith(sentence)


def test_a_value_that_ends_within_a_skipped_field_is_rejected_with_that():
    rejected = decoded(record(("id", "long"), ("other", "string")), b"\x0e\x06a", id=int)
    words = "field 'other' does not fit its schema: the record ends within it"
    assert rejected == ("not-avro", words)


def test_a_schema_by_which_nothing_can_be_read_is_not_called_unknown():
    reason, sentence = decoded(record(("id", "Elsewhere")), b"\x0e", id=int)
    assert reason == "unreadable-schema"
    assert sentence.startswith(
        "the schema with the id 1 can't be read: it names the type 'Elsewhere'"
    )


def fixed(size, name="F"):
    return {"type": "fixed", "name": name, "size": size}


ODD_SIZES = (1.5, 3.0, "3", None, {}, True, -1)


@pytest.mark.parametrize("records", [1, 60])
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        *((fixed(size), f"its type 'F' has {size!r} bytes") for size in ODD_SIZES),
        *((["null", fixed(size)], f"its type 'F' has {size!r} bytes") for size in ODD_SIZES),
        ([fixed(3, "null"), "null"], "it names a type 'null', and Avro has a type of that name"),
        (record(("x", "int"), name="int"), "it names a type 'int'"),
    ],
)
def test_a_schema_with_a_type_that_avro_forbids_is_unreadable(kind, why, records):
    schema = record(("id", "string"), ("x", kind))
    event = make_dataclass("Event", [("id", str), ("x", bytes | None)])
    decoder = AvroDecoder(event_schema(event), {1: schema}.get)
    result = decoder.decode([HEADER.pack(0, 1) + b"\x02a\x02abc"] * records)
    assert len(result.rejected) == records
    reason, sentence = result.rejected[0]
    assert reason == "unreadable-schema"
    assert why in sentence


def test_a_record_may_say_anything_of_its_size():
    schema = record(("x", "int")) | {"size": "large"}
    assert decoded(schema, b"\x02", x=int) == {"x": 1}


def test_a_type_of_a_namespace_may_have_the_name_of_one_of_avro():
    schema = record(("x", fixed(3, "null"))) | {"namespace": "shop"}
    assert decoded(schema, b"abc", x=bytes) == {"x": b"abc"}
