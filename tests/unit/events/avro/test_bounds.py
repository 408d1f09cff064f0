"""What a few bytes of Avro may become, whatever schema they name and whatever they claim."""

import base64
import io
import subprocess
import sys
from dataclasses import make_dataclass

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.events.avro_bytes import long

from headrace.events.avro.bounds import MAX_DEPTH, MAX_EMPTY, BoundedWalk, is_bounded
from headrace.events.avro.values import HEADER, AvroTexts
from headrace.model import event_schema

START = HEADER.pack(0, 1)
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "id", "type": "string"}, {"name": "next", "type": ["null", "Node"]}],
}
# Poison that ends a process is given to another one.
DEEP = """
import sys
from headrace.events.avro.values import HEADER, AvroTexts
tree, levels, first, more, end = eval(sys.stdin.read())
value = HEADER.pack(0, 1) + first + more * levels + end
print(AvroTexts(lambda _: tree)(value)[0])
"""


def holding(kind):
    return {"type": "record", "name": "E", "fields": [{"name": "x", "type": kind}]}


def text(schema, value, start=START):
    return AvroTexts(lambda _: schema)(start + value)


def written(schema, value):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


LIST = holding({"type": "array", "items": ["null", "E"]})
MAP = holding({"type": "map", "values": "E"})
ITSELF = holding("E")


@pytest.mark.parametrize(
    ("schema", "levels", "parts"),
    [
        (NODE, 100_000, (b"", b"\x02a\x02", b"\x02a\x00")),
        (LIST, 100_000, (b"", b"\x02\x02", b"\x00")),
        (MAP, 100_000, (b"", b"\x02\x02k", b"\x00")),
        (ITSELF, 0, (b"", b"", b"")),
    ],
)
def test_a_value_that_nests_without_end_is_too_deep_and_the_process_goes_on(schema, levels, parts):
    command = [sys.executable, "-c", DEEP]
    given = repr((schema, levels, *parts))
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "too-deep"), done.stderr


def test_values_of_a_recursive_schema_are_read_up_to_the_bound():
    def of(levels):
        return text(NODE, b"\x02a\x02" * levels + b"\x02a\x00")

    assert of(2) == b'{"id":"a","next":{"id":"a","next":{"id":"a","next":null}}}'
    assert of(300).count(b"id") == 301
    assert of(MAX_DEPTH)[0] == "too-deep"


def test_types_that_name_each_other_are_looked_at_once_and_may_nest_deep_without_recursion():
    first = {"type": "record", "name": "T0", "fields": []}
    types = [first]
    for number in range(1, 2000):
        inner = [{"name": name, "type": f"T{number - 1}"} for name in "ab"]
        types.append({"type": "record", "name": f"T{number}", "fields": inner})
    fields = [{"name": f"t{n}", "type": ["null", kind]} for n, kind in enumerate(types)]
    schema = {"type": "record", "name": "E", "fields": fields}
    assert text(schema, b"\x00" * 2000).startswith(b'{"t0":null,')
    assert text(schema, b"\x00" * 1999 + b"\x02")[0] == "too-deep"
    assert text(schema, b"\x00" * 60 + b"\x02" + b"\x00" * 1939)[0] == "too-many-items"


NOTHING = {"type": "record", "name": "Nothing", "fields": []}
NONE_AT_ALL = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}
NO_BYTES = {"type": "fixed", "name": "F", "size": 0}


@pytest.mark.parametrize("empty", ["null", NOTHING, NONE_AT_ALL, NO_BYTES])
@pytest.mark.parametrize("count", [10**12, -(10**12)])
def test_a_count_of_items_that_take_no_bytes_is_bounded(empty, count):
    schema = holding({"type": "array", "items": empty})
    claimed = long(count) + (long(0) if count < 0 else b"") + b"\x00"
    assert text(schema, claimed)[0] == "too-many-items"
    few = text(schema, long(3) + b"\x00")
    assert few.startswith(b'{"x":[')
    assert few.count(b",") == 2


def test_the_bound_counts_all_arrays_of_a_value():
    nulls = holding({"type": "array", "items": {"type": "array", "items": "null"}})
    half = long(MAX_EMPTY // 2) + b"\x00"
    assert text(nulls, long(2) + half * 2 + b"\x00").count(b"null") == MAX_EMPTY
    assert text(nulls, long(3) + half * 3 + b"\x00")[0] == "too-many-items"


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "array", "items": "long"},
        {"type": "array", "items": ["null", "string"]},
        {"type": "array", "items": "boolean"},
        {"type": "map", "values": "null"},
        {"type": "map", "values": "long"},
        "bytes",
        "string",
    ],
)
def test_a_count_of_more_items_than_there_are_bytes_fails_at_the_end_of_them(kind):
    assert text(holding(kind), long(10**12) + b"\x00\x00")[0] == "not-avro"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x02a",
        b"\x02a\x04",
        b"\x02a\x01",
        b"\x01",
        b"\x80" * 9 + b"\x7f",
        b"\xff" * 20,
    ],
)
def test_what_is_no_value_of_a_recursive_schema_is_rejected_as_of_any_other(value):
    assert text(NODE, value)[0] == "not-avro"


def test_a_schema_that_bounds_its_values_needs_no_walk():
    kinds = [
        "string",
        ["null", "long"],
        ["null", NOTHING],
        {"type": "array", "items": {"type": "map", "values": ["null", "double"]}},
    ]
    for kind in kinds:
        named = {}
        assert is_bounded(fastavro.parse_schema(holding(kind), named), named)


def test_a_schema_with_a_size_that_is_no_number_is_unreadable():
    schema = holding({"type": "array", "items": {"type": "fixed", "name": "F", "size": "5"}})
    reason, sentence = text(schema, b"\x00")
    assert reason == "unreadable-schema"
    assert sentence.startswith("the schema with the id 1 can't be read: ")


COLORS = {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}
UNION = ["string", "null", COLORS]


def read_as(schema, fields, value):
    reader = AvroTexts(lambda _: schema, event_schema(make_dataclass("Event", fields)))
    return reader(START + value)


@pytest.mark.parametrize("index", [-1, -2, -3, -(2**63), 3])
@pytest.mark.parametrize(
    ("kind", "begin", "end"),
    [
        (UNION, b"", b"\x02a"),
        (COLORS, b"", b""),
        (["null", COLORS], b"\x02", b""),
        ({"type": "array", "items": UNION}, b"\x02", b"\x02a\x00"),
        ({"type": "map", "values": COLORS}, b"\x02\x02k", b"\x00"),
        ({"type": "record", "name": "R", "fields": holding(UNION)["fields"]}, b"", b"\x02a"),
    ],
)
def test_a_branch_or_symbol_that_is_not_there_is_rejected(kind, begin, end, index):
    value = begin + long(index) + end
    assert text(holding(kind), value)[0] == "not-avro"
    named_twice = holding(kind)
    named_twice["fields"].append({"name": "color", "type": "Color"})
    assert text(named_twice, begin + long(0) + end + long(index))[0] == "not-avro"


@pytest.mark.parametrize("index", [-1, -2, 2])
def test_a_branch_that_is_not_there_is_rejected_at_the_root_and_where_it_is_skipped(index):
    events = [holding("long"), holding("string") | {"name": "F"}]
    assert text(events, long(index) + b"\x02a")[0] == "not-avro"
    skipped = holding(["long", "null"])
    skipped["fields"].append({"name": "n", "type": "long"})
    assert read_as(skipped, [("n", int)], long(index) + b"\x02\x04")[0] == "not-avro"


@pytest.mark.parametrize(
    "number", [b"\x80" * 10 + b"\x02", b"\x80" * 9 + b"\x02", b"\xff" * 20 + b"\0"]
)
@pytest.mark.parametrize(
    ("kind", "begin", "end"),
    [
        ("long", b"", b""),
        ("int", b"", b""),
        (["null", "long"], b"\x02", b""),
        ({"type": "long", "logicalType": "timestamp-micros"}, b"", b""),
        (["long", "null"], b"", b"\x02"),
        (COLORS, b"", b""),
        ({"type": "array", "items": "long"}, b"\x02", b"\x00"),
        ({"type": "array", "items": "long"}, b"", b"\x02"),
    ],
)
def test_an_integer_beyond_64_bits_is_rejected(kind, begin, end, number):
    schema = holding(kind)
    schema["fields"] += [{"name": "n", "type": "long"}, {"name": "text", "type": "string"}]
    value = begin + number + end + b"\x02" + written("string", "カテゴリー")
    assert text(schema, value)[0] == "not-avro"
    assert read_as(schema, [("n", int), ("text", str)], value)[0] == "not-avro"


@settings(max_examples=50, deadline=None)
@given(
    st.text(st.characters(min_codepoint=0x80, codec="utf-8")),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(),
)
def test_texts_of_any_script_and_integers_of_any_size_are_read(script, number, content):
    names = {"s": "string", "n": "long", "b": "bytes"}
    fields = [{"name": name, "type": kind} for name, kind in names.items()]
    schema = {"type": "record", "name": "E", "fields": fields}
    value = written(schema, {"s": script, "n": number, "b": content})
    expected = {"s": script, "n": number, "b": base64.b64encode(content).decode()}
    assert msgspec.json.decode(text(schema, value)) == expected
    assert msgspec.json.decode(read_as(schema, [("n", int)], value))["n"] == number


EVERYTHING = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "next", "type": ["null", "All"]},
        {"name": "flag", "type": "boolean"},
        {"name": "n", "type": {"type": "array", "items": "long"}},
        {"name": "f", "type": {"type": "map", "values": ["float", "double", "null"]}},
        {"name": "b", "type": ["bytes", {"type": "fixed", "name": "F", "size": 3}]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
    ],
}
VALUES = st.recursive(
    st.none(),
    lambda inner: st.fixed_dictionaries(
        {
            "next": inner,
            "flag": st.booleans(),
            "n": st.lists(st.integers(-(2**63), 2**63 - 1)),
            "f": st.dictionaries(st.text(), st.none() | st.floats(width=32)),
            "b": st.binary(),
            "e": st.sampled_from("AB"),
        }
    ),
    max_leaves=4,
).filter(bool)


@settings(max_examples=100, deadline=None)
@given(VALUES, st.integers(0, 400), st.binary(max_size=2))
def test_the_walk_lets_pass_what_can_be_read_and_nothing_that_ends_early(value, start, other):
    encoded = written(EVERYTHING, value)
    named = {}
    walk = BoundedWalk(fastavro.parse_schema(EVERYTHING, named), named)
    assert not is_bounded(EVERYTHING, named)
    assert walk(encoded, 0) is None
    reason, sentence = walk(encoded[:-1], 0)
    assert (reason, sentence.split("'")[0]) == ("not-avro", "field ")
    changed = encoded[:start] + other + encoded[start + len(other) :]
    assert not isinstance(text(EVERYTHING, changed), bytes) or walk(changed, 0) is None
