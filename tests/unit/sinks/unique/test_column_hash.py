"""Hashes of values: equal for equal values, whatever Arrow type holds them."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from headrace.model import event_schema
from headrace.sinks.any_values import fields_with_any
from headrace.sinks.unique.any_texts import any_texts
from headrace.sinks.unique.column_hash import hash_rows, hash_values
from headrace.sinks.unique.compared_rows import ComparedRows

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
ITEM = pa.struct([("name", pa.string()), ("tags", pa.list_(pa.int64()))])
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("blob", pa.binary()),
        ("number", pa.int64()),
        ("double", pa.float64()),
        ("flag", pa.bool_()),
        ("time", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
        ("items", pa.list_(ITEM)),
        ("sizes", pa.map_(pa.string(), pa.int64())),
    ]
)
LONGS = st.integers(-(2**63), 2**63 - 1)
ITEMS = st.fixed_dictionaries(
    {"name": st.none() | st.text(max_size=3), "tags": st.none() | st.lists(LONGS, max_size=3)}
)
ROWS = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(max_size=20),
        "blob": st.none() | st.binary(max_size=20),
        "number": st.none() | LONGS,
        "double": st.none() | st.floats(),
        "flag": st.none() | st.booleans(),
        "time": st.none() | st.datetimes(timezones=st.just(UTC)),
        "day": st.none() | st.dates(),
        "price": st.none() | st.decimals(-1_000_000, 1_000_000, places=2),
        "items": st.none() | st.lists(st.none() | ITEMS, max_size=3),
        "sizes": st.none() | st.dictionaries(st.text(max_size=3), st.none() | LONGS, max_size=3),
    }
)


JSON = st.recursive(
    st.none() | st.booleans() | LONGS | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


class Part:
    doc: Any
    docs: dict[str, Any]


class Doc:
    doc: Any
    docs: list[Any]
    parts: dict[str, Part]


DOC = {field.name: field for field in event_schema(Doc).fields}
PART_TYPE = pa.struct([("doc", pa.string()), ("docs", pa.map_(pa.string(), pa.string()))])
DOC_SCHEMA = pa.schema(
    [
        ("doc", pa.string()),
        ("docs", pa.list_(pa.string())),
        ("parts", pa.map_(pa.string(), PART_TYPE)),
    ]
)


def shuffled(value, chance):
    """The same JSON value, with the names of its objects in another order."""
    if isinstance(value, list):
        return [shuffled(each, chance) for each in value]
    if not isinstance(value, dict):
        return value
    names = list(value)
    chance.shuffle(names)
    return {name: shuffled(value[name], chance) for name in names}


def value_hashes(doc):
    """The hash of a row whose columns hold a JSON value at several depths."""
    text, items = json.dumps(doc), [json.dumps(each) for each in (doc, [doc])]
    pairs = doc if isinstance(doc, dict) else {"a": doc}
    docs = [(name, json.dumps(each)) for name, each in pairs.items()]
    parts = [(name, {"doc": json.dumps(each), "docs": docs}) for name, each in pairs.items()]
    row = {"doc": text, "docs": items, "parts": parts}
    rows = pa.Table.from_pylist([row, dict.fromkeys(row)], DOC_SCHEMA)
    assert fields_with_any(DOC, DOC_SCHEMA) == DOC
    rule = ComparedRows(("at",), tuple(row), "at", DOC)
    return rule.hashes(rows).values.tolist()


@given(JSON, JSON, st.randoms(use_true_random=False))
def test_any_at_every_depth_is_compared_as_json_whose_objects_have_no_order(doc, other, chance):
    assert value_hashes(doc) == value_hashes(shuffled(doc, chance))
    is_same = json.dumps(doc, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (value_hashes(doc) == value_hashes(other)) is is_same


def test_a_struct_with_any_that_has_gained_a_field_is_the_same_in_older_files():
    class Place:
        city: str
        street: str | None

    class Click:
        anything: Any
        place: Place | None
        places: list[Place]
        more: Any
        extra: str | None

    class Event:
        click: Click

    [field] = event_schema(Event).fields
    place = pa.struct([("city", pa.string())])
    fields = [("anything", pa.string()), ("place", place), ("places", pa.list_(place))]
    value = {"anything": "1", "place": {"city": "A"}, "places": [{"city": "B"}]}
    older = pa.array([value, {"anything": "1", "places": []}, None], pa.struct(fields))
    place = pa.struct([("city", pa.string()), ("street", pa.string())])
    fields = [("anything", pa.string()), ("place", place), ("places", pa.list_(place))]
    fields += [("more", pa.string()), ("extra", pa.string())]
    newer = pa.array(older.to_pylist(), pa.struct(fields))
    assert any_texts(older, field).to_pylist() == any_texts(newer, field).to_pylist()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ('{"x":1.5}', """{"x":"Decimal('1.5')"}"""),
        ("1" * 5_000, '"' + "1" * 5_000 + '"'),
        ("1e99999999999999999999", '"1e99999999999999999999"'),
        ("1e99999999999999999999", "1e99999999999999999998"),
        ("[1.5]", """[[NaN,"Decimal('1.5')"]]"""),
        ("[" + "1" * 5_000 + ",1]", "[" + "1" * 5_000 + ",2]"),
        ('{"a":' + "1" * 5_000 + ',"b":2}', '{"b":2,"a":"' + "1" * 5_000 + '"}'),
    ],
)
def test_a_number_is_no_text(number, text):
    one, other = any_texts(pa.array([number, text]), DOC["doc"]).to_pylist()
    assert one != other


def test_objects_with_a_number_of_thousands_of_digits_have_no_order():
    long = "1" * 5_000
    texts = pa.array([f'{{"a":{long},"b":2}}', f'{{"b": 2, "a": {long}}}'])
    assert len(set(any_texts(texts, DOC["doc"]).to_pylist())) == 1


def test_a_text_that_a_step_put_in_place_of_any_is_compared_as_it_is():
    texts = pa.array(["{", "{}", "{ }", None])
    assert any_texts(texts, DOC["doc"]).to_pylist() == ['"{"', "{}", "{}", None]
    changed = pa.schema([("doc", pa.int64()), ("docs", pa.list_(pa.int64())), ("more", pa.int64())])
    assert fields_with_any(DOC, changed) == {}


@given(st.dictionaries(st.text(max_size=3), ITEMS), st.randoms(use_true_random=False))
def test_the_entries_of_a_map_have_no_order(entries, chance):
    pairs = list(entries.items())
    chance.shuffle(pairs)
    kind = pa.map_(pa.string(), ITEM)
    maps = pa.array([pairs, list(entries.items()), [*pairs, ("long key", None)]], kind)
    first, second, more = hash_values(maps)
    assert first == second != more


def hashes(rows):
    return hash_rows(((n, rows[n].combine_chunks()) for n in rows.column_names), rows.num_rows)


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_rows_have_the_same_hash_when_they_are_read_back_or_cut_out_of_others(given_rows):
    rows = pa.Table.from_pylist(given_rows, SCHEMA)
    sink = pa.BufferOutputStream()
    parquet.write_table(rows, sink)
    back = parquet.read_table(pa.BufferReader(sink.getvalue()))
    expected = hashes(rows).tolist()
    assert hashes(back).tolist() == expected
    assert [int(hashes(rows.slice(n, 1))[0]) for n in range(len(given_rows))] == expected


@pytest.mark.parametrize(
    "types",
    [
        (pa.string(), pa.large_string(), pa.string_view()),
        (pa.int8(), pa.int16(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC")),
        (pa.list_(pa.int32()), pa.large_list(pa.int64())),
        (pa.binary(), pa.large_binary(), pa.binary_view()),
    ],
    ids=str,
)
def test_a_value_has_one_hash_in_all_types_that_can_hold_it(types):
    values = {
        "string": ["a", "", None],
        "int8": [1, 0, None],
        "float": [0.5, 0.0, None],
        "timestamp[ms, tz=UTC]": [NOON, None],
        "list<item: int32>": [[1, None], [], None],
        "binary": [b"a", None],
    }[str(types[0])]
    first, *others = (hash_values(pa.array(values, kind)).tolist() for kind in types)
    assert all(other == first for other in others)


DIFFERENT = [
    (pa.int64(), [0, 1, -1, None]),
    (pa.float64(), [0.0, 0.5, float("nan"), None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [date(1970, 1, 1), date(1970, 1, 2), None]),
    (pa.decimal128(5, 2), [Decimal("1.00"), Decimal("0.01"), None]),
    (pa.list_(pa.int64()), [[], [None], [0], [0, 0], [1, 2], [2, 1], None]),
    (pa.list_(pa.string()), [[], ["a", "b"], ["ab"], ["b", "a"], None]),
    (ITEM, [{"name": None, "tags": None}, {"name": "a", "tags": []}, {"name": "a"}, None]),
    (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", 2)], [("b", 1)], None]),
]


@pytest.mark.parametrize(("kind", "values"), DIFFERENT, ids=lambda value: str(value)[:30])
def test_different_values_have_different_hashes_and_null_has_0(kind, values):
    of_values = hash_values(pa.array(values, kind)).tolist()
    assert len(set(of_values)) == len(values)
    assert of_values[-1] == 0


def test_values_that_change_their_columns_make_another_row():
    rows = pa.table({"a": ["x", "y"], "b": ["y", "x"]})
    first, second = hashes(rows)
    assert first != second


def test_a_column_of_nulls_and_the_order_of_columns_change_nothing():
    rows = pa.table({"a": ["x"], "b": [1]})
    more = pa.table({"c": pa.nulls(1, pa.int64()), "b": [1], "a": ["x"]})
    assert hashes(rows).tolist() == hashes(more).tolist()
    assert hashes(pa.table({"a": [None, ""]})).tolist() == [0, 0]


def test_all_zeros_and_all_nans_are_equal():
    zero, minus_zero, nan, other = hash_values(pa.array([0.0, -0.0, float("nan"), -float("nan")]))
    assert (zero, nan) == (minus_zero, other)
