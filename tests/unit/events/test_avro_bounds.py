"""What a few bytes of Avro may become, whatever schema they name and whatever they claim."""

import io
import subprocess
import sys

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.events.avro_bytes import long

from headrace.events.avro import HEADER, AvroTexts
from headrace.events.avro_bounds import MAX_DEPTH, MAX_EMPTY, bounded_walk

START = HEADER.pack(0, 1)
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "id", "type": "string"}, {"name": "next", "type": ["null", "Node"]}],
}
# Poison that ends a process is given to another one.
DEEP = """
import sys
from headrace.events.avro import HEADER, AvroTexts
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
        assert bounded_walk(fastavro.parse_schema(holding(kind), named), named) is None


def test_a_schema_with_a_size_that_is_no_number_is_unreadable():
    schema = holding({"type": "array", "items": {"type": "fixed", "name": "F", "size": "5"}})
    reason, sentence = text(schema, b"\x00")
    assert reason == "unreadable-schema"
    assert sentence.startswith("the schema with the id 1 can't be read: ")


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
    walk = bounded_walk(fastavro.parse_schema(EVERYTHING, named), named)
    assert walk(encoded, 0) is None
    reason, sentence = walk(encoded[:-1], 0)
    assert (reason, sentence.split("'")[0]) == ("not-avro", "field ")
    changed = encoded[:start] + other + encoded[start + len(other) :]
    assert not isinstance(text(EVERYTHING, changed), bytes) or walk(changed, 0) is None
