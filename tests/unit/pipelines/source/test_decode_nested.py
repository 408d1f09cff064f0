"""Nested fields: their columns, and that they are read as strictly as flat ones."""

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.json_records import GOOD, POISON, Impression, good

from headrace.model import EpochMillis, Json, Precision, event_schema
from headrace.pipelines.source.decode import decoder_for

CHECKS = settings(max_examples=200)
TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class Item:
    sku: str
    price: Annotated[Decimal, Precision(8, scale=2)]
    shipped: date | None
    at: datetime | None


@dataclass(frozen=True)
class Shop:
    name: str
    opened: EpochMillis | None
    tier: Literal["gold", "iron"] | None


@dataclass(frozen=True)
class Order:
    id: int
    shop: Shop
    previous: Shop | None
    items: list[Item]
    labels: dict[str, int | None]
    by_day: dict[str, list[Item]] | None
    matrix: list[list[float] | None] | None
    receipt: bytes | None
    total: Decimal | None
    payload: Any
    extras: list[Any] | None


DECODER = decoder_for(Json(), event_schema(Order))
SHOP = {"name": "s", "opened": 1574553617004, "tier": "gold"}
ITEM = {"sku": "a", "price": 1.50, "shipped": "2019-11-24", "at": "2019-11-24T00:00:17Z"}
ORDER = {"id": 1, "shop": SHOP, "items": [ITEM], "labels": {"x": 1}}


def order(**changes):
    return json.dumps(ORDER | changes).encode()


def text(field, json_text, **changes):
    """An order but for one field's JSON text."""
    return order(**{field: "@@"}, **changes).replace(b'"@@"', json_text)


def decode(values, decoder=DECODER):
    decoded = decoder.decode(values)
    assert decoded.rows.schema == decoder.arrow_schema
    decoded.rows.validate(full=True)
    assert decoded.rows.num_rows + len(decoded.rejected) == len(values)
    return decoded.rows.to_pylist(), decoded.rejected


def why(value, decoder=DECODER):
    _, rejected = decode([order(), value, order()] if decoder is DECODER else [value], decoder)
    assert len(rejected) == 1
    return rejected[1 if decoder is DECODER else 0]


def test_columns_are_structs_lists_maps_decimals_and_dates():
    price, shipped = pa.decimal128(8, 2), pa.date32()
    item = pa.struct([("sku", pa.string()), ("price", price), ("shipped", shipped), ("at", TIME)])
    shop = pa.struct([("name", pa.string()), ("opened", TIME), ("tier", pa.string())])
    assert DECODER.arrow_schema == pa.schema(
        {
            "id": pa.int64(),
            "shop": shop,
            "previous": shop,
            "items": pa.list_(item),
            "labels": pa.map_(pa.string(), pa.int64()),
            "by_day": pa.map_(pa.string(), pa.list_(item)),
            "matrix": pa.list_(pa.list_(pa.float64())),
            "receipt": pa.binary(),
            "total": pa.decimal128(38, 18),
            "payload": pa.string(),
            "extras": pa.list_(pa.string()),
        }
    )


def test_an_event_with_every_kind_of_field_becomes_a_row():
    value = order(
        previous={"name": "p"},
        items=[ITEM, {"sku": "b", "price": "3"}],
        labels={"x": 1, "y": None, "": 2},
        by_day={"monday": [ITEM], "none": []},
        matrix=[[1, 2.5], None, []],
        receipt="AAH/",
        total="0.000000000000000001",
        payload={"a": [1, {"b": None}]},
        extras=["x", None, 1.0],
    )
    shop = {"name": "s", "opened": datetime(2019, 11, 24, 0, 0, 17, 4000, UTC), "tier": "gold"}
    item = {
        "sku": "a",
        "price": Decimal("1.50"),
        "shipped": date(2019, 11, 24),
        "at": datetime(2019, 11, 24, 0, 0, 17, tzinfo=UTC),
    }
    row = {
        "id": 1,
        "shop": shop,
        "previous": {"name": "p", "opened": None, "tier": None},
        "items": [item, {"sku": "b", "price": Decimal("3.00"), "shipped": None, "at": None}],
        "labels": [("x", 1), ("y", None), ("", 2)],
        "by_day": [("monday", [item]), ("none", [])],
        "matrix": [[1.0, 2.5], None, []],
        "receipt": b"\x00\x01\xff",
        "total": Decimal("0.000000000000000001"),
        "payload": '{"a": [1, {"b": null}]}',
        "extras": ['"x"', None, "1.0"],
    }
    least = {
        **dict.fromkeys(row),
        "id": 2,
        "shop": {"name": "t", "opened": None, "tier": None},
        "items": [],
        "labels": [],
    }
    sparse = json.dumps({"id": 2, "shop": {"name": "t"}, "items": [], "labels": {}}).encode()
    assert decode([value, sparse, value]) == ([row, least, row], {})


def test_an_empty_chunk_has_the_columns():
    assert decode([]) == ([], {})


KEPT_TEXTS = [
    b'{"b":1,  "a":[ 1e300, 12345678901234567890.10 ]}',
    b"[]",
    b'"\\u00e9 \\"q\\""',
    b"-0.0",
    b"true",
    '"żółć"'.encode(),
]


@pytest.mark.parametrize("given_text", KEPT_TEXTS)
def test_any_is_kept_as_the_text_that_came(given_text):
    ((row,), _) = decode([text("payload", given_text)])
    assert row["payload"] == given_text.decode()


def test_of_a_repeated_key_of_a_map_the_last_value_counts():
    ((row,), _) = decode([text("labels", b'{"a": 1, "b": 2, "a": 3}')])
    assert row["labels"] == [("a", 3), ("b", 2)]


DECIMALS = {
    b"1.5": "1.50",
    b"1.50": "1.50",
    b"1.500": "1.50",
    b"15e-1": "1.50",
    b"1E2": "100.00",
    b"-0": "0.00",
    b"0e9999999": "0.00",
    b"999999.99": "999999.99",
    b'"-999999.99"': "-999999.99",
    b'"\\u0031"': "1.00",
}


@pytest.mark.parametrize(("given_text", "number"), DECIMALS.items())
def test_a_decimal_is_read_without_loss_from_a_number_or_a_string(given_text, number):
    ((row,), _) = decode([order(items=[ITEM | {"price": "@@"}]).replace(b'"@@"', given_text)])
    assert row["items"][0]["price"] == Decimal(number)


PRICES = {
    b"1.505": "out-of-range",
    b"1000000": "out-of-range",
    b"1e400": "out-of-range",
    b"1e-400": "out-of-range",
    b'"1e999999999999999999999"': "out-of-range",
    b'"1e-999999999999999999999"': "out-of-range",
    b"9" * 5000: "out-of-range",
    b'"x"': "wrong-type",
    b'""': "wrong-type",
    b'" 1"': "wrong-type",
    b'"1_0"': "wrong-type",
    b'"+1"': "wrong-type",
    b'"01"': "wrong-type",
    b'".5"': "wrong-type",
    b'"NaN"': "wrong-type",
    b'"Infinity"': "wrong-type",
    '"\u0661"'.encode(): "wrong-type",
    b"null": "wrong-type",
    b"true": "wrong-type",
    b"[1]": "wrong-type",
    b'{"a": 1}': "wrong-type",
    b"NaN": "not-json",
    b"01": "not-json",
    b"+1": "not-json",
    b"1.": "not-json",
    b".5": "not-json",
    b"1e": "not-json",
    b'"\\ud800"': "lone-surrogate",
    b'"\xff"': "not-utf8",
}


@pytest.mark.parametrize(("given_text", "reason"), PRICES.items())
def test_a_decimal_that_does_not_fit_or_is_no_number_is_rejected(given_text, reason):
    value = order(items=[ITEM, ITEM | {"price": "@@"}]).replace(b'"@@"', given_text)
    code, sentence = why(value)
    assert code == reason
    if reason in ("out-of-range", "wrong-type"):
        assert sentence.startswith("field 'items[1].price' is ")


@pytest.mark.parametrize(
    ("value", "code", "words"),
    [
        (order(shop=None), "wrong-type", "field 'shop' is null, expected an object"),
        (order(shop=[]), "wrong-type", "field 'shop' is an array, expected an object"),
        (order(shop={}), "missing-field", "field 'shop.name' is missing, expected a string"),
        (order(shop=SHOP | {"name": 5}), "wrong-type", "field 'shop.name' is an integer"),
        (order(shop=SHOP | {"opened": 2**62}), "out-of-range", "field 'shop.opened' is"),
        (order(shop=SHOP | {"tier": "wood"}), "unknown-value", "expected one of 'gold', 'iron'"),
        (order(previous={}), "missing-field", "field 'previous.name' is missing"),
        (order(items={}), "wrong-type", "field 'items' is an object, expected an array"),
        (order(items=[ITEM, None]), "wrong-type", "field 'items[1]' is null, expected an object"),
        (order(items=[ITEM] * 3 + [{"sku": "a"}]), "missing-field", "field 'items[3].price' is"),
        (order(items=[ITEM | {"shipped": "2019-02-30"}]), "wrong-type", "not a date as"),
        (order(items=[ITEM | {"shipped": "20191124"}]), "wrong-type", "'items[0].shipped' is"),
        (order(items=[ITEM | {"at": "never"}]), "wrong-type", "'items[0].at' is a string that"),
        (
            order(items=[ITEM, ITEM | {"at": "0001-01-01T00:00:00+10:00"}]),
            "out-of-range",
            "field 'items[1].at' is outside the years",
        ),
        (order(labels=[]), "wrong-type", "field 'labels' is an array, expected an object"),
        (order(labels={"a": "x"}), "wrong-type", "field \"labels['a']\" is a string, expected"),
        (order(labels={"k" * 60: 2**63}), "out-of-range", "labels['" + "k" * 40 + "'...]"),
        (order(by_day={"m": [ITEM, 5]}), "wrong-type", "by_day['m'][1]\" is an integer"),
        (order(matrix=[[1], [2, "x"]]), "wrong-type", "field 'matrix[1][1]' is a string"),
        (text("matrix", b"[[1e400]]"), "out-of-range", "field 'matrix[0][0]' is out of range"),
        (order(receipt="AAH"), "wrong-type", "field 'receipt' is a string that is not base64"),
        (order(receipt="AA-_"), "wrong-type", "not base64"),
        (order(receipt="A\nAH/"), "wrong-type", "not base64"),
        (order(receipt="ż"), "wrong-type", "not base64"),
        (order(receipt=5), "wrong-type", "expected a string of base64 or null"),
        (text("payload", b'"\\ud800"'), "lone-surrogate", "field 'payload' holds a string"),
        (text("payload", b'{"\\udc00": 1}'), "lone-surrogate", "field 'payload' holds"),
        (text("payload", b'"\xff"'), "not-utf8", "byte 0xff"),
        (text("payload", b"NaN"), "not-json", ""),
        (text("payload", b"01"), "not-json", ""),
        (text("payload", b"[1,]"), "not-json", ""),
        (text("payload", b'"a\x01"'), "not-json", ""),
        (text("payload", b'"\\q"'), "not-json", ""),
        (text("payload", b"[" * 100_000 + b"]" * 100_000), "too-deep", ""),
        (text("extras", b'[1, "\xff"]'), "not-utf8", ""),
        (text("labels", b'{"\\ud800": 1}'), "lone-surrogate", "field 'labels' has a key"),
        (text("labels", b'{"a": 1, "a": "x"}'), "wrong-type", "labels['a']"),
    ],
)
def test_a_rejection_names_the_path_of_the_field(value, code, words):
    found, sentence = why(value)
    assert found == code
    assert words in sentence


def test_a_rejection_never_shows_a_value_of_the_event():
    for value in (
        order(items=[ITEM | {"price": "secret"}]),
        order(items=[ITEM | {"shipped": "secret"}]),
        order(receipt="secret!"),
        order(labels={"a": "secret"}),
        text("payload", b'"secret\\ud800"'),
    ):
        assert "secret" not in why(value)[1]


def test_rows_are_found_whatever_lists_they_hold():
    sizes = [0, 3, 1, 0, 5, 2]
    values = [order(id=n, items=[ITEM] * size) for n, size in enumerate(sizes)]
    values[4] = order(id=4, items=[*[ITEM] * 4, ITEM | {"at": "x"}])
    values[2] = order(id=2, by_day={"d": [ITEM], "e": [ITEM | {"shipped": "x"}]})
    rows, rejected = decode(values)
    assert [row["id"] for row in rows] == [0, 1, 3, 5]
    assert {index: words[: words.index(" is")] for index, (_, words) in rejected.items()} == {
        2: "field \"by_day['e'][0].shipped\"",
        4: "field 'items[4].at'",
    }


@dataclass
class Nest:
    shown: Impression | None
    many: list[Impression] | None
    named: dict[str, Impression] | None


NEST = decoder_for(Json(), event_schema(Nest))
# An object that ends too late or too early is another fault of what is around it.
REASONS = {"empty": "not-json", "trailing-data": "not-json", "not-an-object": "wrong-type"}
NESTED_POISON = {
    name: (value, REASONS.get(reason, reason))
    for name, (value, reason) in POISON.items()
    if reason not in ("null-value", "event-time-out-of-bounds", "unsafe-partition-value")
    and name not in ("trailing brace", "null")
}


@pytest.mark.parametrize(("value", "reason"), NESTED_POISON.values(), ids=NESTED_POISON)
@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        (b'{"shown": ', b"}", "shown"),
        (b'{"many": [' + good() + b", ", b"]}", "many[1]"),
        (b'{"named": {"a": ' + good() + b', "b": ', b"}}", "named['b']"),
    ],
    ids=["struct", "list", "map"],
)
def test_what_is_bad_in_a_flat_event_is_bad_in_a_nested_one(value, reason, before, after, path):
    code, sentence = why(before + value + after, NEST)
    assert code == reason
    if code in ("wrong-type", "out-of-range", "missing-field", "unknown-value"):
        assert path in sentence


def test_good_events_nest_wherever_they_stand():
    value = b'{"shown":%b,"many":[%b,%b],"named":{"a":%b}}' % ((good(7),) * 4)
    ((row,), _) = decode([value], NEST)
    flat = decode([good(7)], decoder_for(Json(), event_schema(Impression)))[0][0]
    assert row == {"shown": flat, "many": [flat, flat], "named": [("a", flat)]}
    assert flat["item_id"] == 7
    assert set(flat) == set(GOOD)


ITEMS = st.fixed_dictionaries(
    {"sku": st.text(st.characters(exclude_categories=["Cs"]), max_size=4)},
    optional={
        "price": st.decimals(-9, 9, places=2).map(str) | st.integers(-9, 9) | st.just("x"),
        "shipped": st.none() | st.dates().map(str) | st.just("x"),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)).map(str) | st.just("x"),
    },
)
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(0, 9),
        "shop": st.just(SHOP) | st.none(),
        "items": st.lists(ITEMS, max_size=3),
        "labels": st.dictionaries(st.text("ab", max_size=2), st.none() | st.integers(0, 9)),
    },
    optional={
        "previous": st.none() | st.just(SHOP) | st.just({"name": "n"}),
        "by_day": st.none() | st.dictionaries(st.text("ab", max_size=1), st.lists(ITEMS)),
        "matrix": st.none() | st.lists(st.none() | st.lists(st.integers(0, 9) | st.just("x"))),
        "payload": st.none() | st.lists(st.integers()) | st.text("ab"),
    },
).map(lambda fields: json.dumps(fields).encode())


@CHECKS
@given(st.lists(ORDERS | st.binary(max_size=4), max_size=8))
def test_a_chunk_of_nested_events_is_decoded_as_each_record_alone(values):
    rows, rejected = decode(values)
    alone = [decode([value]) for value in values]
    assert rows == [row for kept, _ in alone for row in kept]
    assert rejected == {index: bad[0] for index, (_, bad) in enumerate(alone) if bad}
    for _, sentence in rejected.values():
        assert not sentence.startswith("the value was rejected")
