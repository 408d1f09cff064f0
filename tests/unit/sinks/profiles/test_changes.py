"""What a task makes of its rows before it asks the store."""

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace import Latest, Profiles
from headrace.errors import TableMismatchError
from headrace.sinks.profiles.changes import RowMerger, RowsSpec
from headrace.sinks.profiles.store import ListChange, ProfileChange, Version

NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000
HOUR = timedelta(hours=1)
TTL = timedelta(days=30)
SCHEMA = pa.schema(
    [
        ("user", pa.int64()),
        ("event", pa.string()),
        ("kind", pa.string()),
        ("item", pa.string()),
        ("at", pa.timestamp("ms", "UTC")),
        ("_offset", pa.int64()),
    ]
)
SINK = Profiles(
    "users",
    key="user",
    ttl=TTL,
    fields=("item",),
    lists={"views": Latest(2, where={"kind": "view"})},
    forget={"kind": "forget"},
    event_id="event",
)


def row(minute, **changes):
    at = NOON + timedelta(minutes=minute)
    return {"user": 1, "event": f"e{minute}", "kind": "view", "item": "a", "at": at} | changes


def merged(rows, sink=SINK, schema=SCHEMA, now=NOON + HOUR):
    spec = RowsSpec.of(sink, "at", schema)
    now_us = int(now.timestamp()) * 1_000_000
    return RowMerger(spec, pa.Table.from_pylist(rows, schema), now_us).merged()


def at(minute):
    return NOON_US + minute * 60_000_000


def test_the_rows_of_a_user_become_one_change_with_what_is_left_of_them():
    rows = [row(3), row(1), row(2, kind="click", item="b"), row(4, item=None), row(0, user=7)]
    assert merged(rows).changes == [
        ProfileChange(
            "1",
            fields={"item": Version(at(3), '["e3","a"]')},
            lists={
                "views": ListChange(
                    2,
                    {
                        "e4": Version(at(4), '{"kind":"view","item":null}'),
                        "e3": Version(at(3), '{"kind":"view","item":"a"}'),
                    },
                )
            },
        ),
        ProfileChange(
            "7",
            fields={"item": Version(at(0), '["e0","a"]')},
            lists={"views": ListChange(2, {"e0": Version(at(0), '{"kind":"view","item":"a"}')})},
        ),
    ]


def test_a_list_without_columns_has_all_but_those_of_the_record():
    schema = SCHEMA.append(pa.field("_id", pa.string()))
    assert RowsSpec.of(SINK, "at", schema).lists["views"].columns == ("kind", "item", "_id")


def test_a_row_that_forgets_leaves_what_comes_after_it():
    rows = [row(1), row(2), row(3), row(2, kind="forget"), row(1, kind="forget")]
    result = merged(rows)
    [change] = result.changes
    assert (change.forgotten_us, result.forget) == (at(2), 2)
    assert (list(change.fields), list(change.lists["views"].entries)) == (["item"], ["e3"])


def test_many_rows_of_a_user_are_trimmed_as_they_come():
    rows = [row(minute % 50, event=f"e{minute:05}") for minute in range(5_000)]
    [change] = merged(rows).changes
    assert list(change.lists["views"].entries) == ["e04999", "e04949"]


def test_of_equal_times_the_greater_id_and_of_equal_ids_the_greater_value_stay():
    rows = [row(1, event="e9"), row(1, event="e10", item="z"), row(1, event="e9", item="b")]
    for order in (rows, rows[::-1]):
        [change] = merged(order).changes
        assert change.fields == {"item": Version(at(1), '["e9","b"]')}
        assert [
            json.loads(each.json)["item"] for each in change.lists["views"].entries.values()
        ] in (
            ["b", "z"],
            ["z", "b"],
        )


def test_old_rows_are_counted_and_not_sent():
    result = merged([row(0), row(60), row(1, kind="forget")], now=NOON + TTL)
    assert (result.expired, [change.user for change in result.changes]) == (1, ["1"])
    result = merged([row(0)], now=NOON + TTL)
    assert (result.expired, result.changes) == (1, [])


@pytest.mark.parametrize("number", [None, math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_leaves_the_field_as_it_is(number):
    sink = Profiles("u", key="user", ttl=TTL, fields=("price",), event_id="event")
    schema = SCHEMA.append(pa.field("price", pa.float64()))
    [change] = merged([row(0, price=1.5), row(1, price=number)], sink, schema).changes
    assert change.fields == {"price": Version(at(0), '["e0",1.5]')}


def test_an_event_id_has_a_length_at_most():
    assert merged([row(0, event="é" * 512)]).rejected == []
    [rejected] = merged([row(0, event="é" * 513)]).rejected
    assert rejected.reason == "row-too-large"
    assert "column 'event' is the event id, and has 1,026 bytes, of 1,024" in rejected.detail


@pytest.mark.parametrize(
    ("column", "reason"), [("user", "bad-key"), ("event", "wrong-value"), ("item", "wrong-value")]
)
def test_a_text_that_is_not_utf8_is_a_row_of_its_own(column, reason):
    schema = SCHEMA.set(0, pa.field("user", pa.string()))
    rows = pa.Table.from_pylist([row(0, user="u"), row(1, user="v")], schema)
    bad = pa.array([b"u", b"\xff"]).view(pa.string())
    rows = rows.set_column(schema.get_field_index(column), schema.field(column), bad)
    found = RowMerger(RowsSpec.of(SINK, "at", schema), rows, NOON_US).merged()
    assert [(each.index, each.reason) for each in found.rejected] == [(1, reason)]
    assert len(found.changes) == 1


def test_a_row_that_says_nothing_makes_no_change():
    assert merged([row(0, kind=None, item=None)]).changes == []


def test_without_ids_the_id_of_an_entry_is_a_hash_of_its_time_and_values():
    sink = Profiles("u", key="user", ttl=TTL, lists={"all": Latest(9, columns=("item",))})
    [change] = merged([row(0), row(0), row(0, item="b"), row(1)], sink).changes
    ids = list(change.lists["all"].entries)
    assert len(ids) == 3
    assert all(len(event_id) == 32 for event_id in ids)


def test_values_are_json_whatever_their_type():
    price = pa.struct([("amount", pa.decimal128(9, 2)), ("day", pa.date32())])
    schema = pa.schema(
        [
            ("user", pa.large_string()),
            ("at", pa.timestamp("ns")),
            ("price", price),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("visits", pa.map_(pa.struct([("x", pa.int64())]), pa.int64())),
            ("content", pa.binary()),
            ("ratio", pa.float64()),
            ("seen", pa.timestamp("us", "UTC")),
        ]
    )
    values = {
        "price": {"amount": Decimal("1.50"), "day": date(2026, 1, 2)},
        "tags": ["a", None],
        "counts": [("x", 1)],
        "visits": [({"x": 1}, 2)],
        "content": b"\xff",
        "ratio": float("nan"),
        "seen": NOON,
    }
    sink = Profiles("u", key="user", ttl=TTL, lists={"all": Latest(9)})
    rows = [{"user": "u", "at": NOON.replace(tzinfo=None)} | values]
    [change] = merged(rows, sink, schema).changes
    [version] = change.lists["all"].entries.values()
    assert version.at_us == NOON_US
    assert json.loads(version.json) == {
        "price": {"amount": "1.50", "day": "2026-01-02"},
        "tags": ["a", None],
        "counts": {"x": 1},
        "visits": {'{"x":1}': 2},
        "content": "/w==",
        "ratio": None,
        "seen": "2026-11-24T12:00:00Z",
    }


def test_a_time_that_python_does_not_know_rejects_its_row_alone():
    schema = pa.schema(
        [("user", pa.string()), ("at", pa.timestamp("us")), ("seen", pa.timestamp("us"))]
    )
    columns = [["u", "v"], [NOON_US, NOON_US], [2**62, 5]]
    arrays = [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
    sink = Profiles("u", key="user", ttl=TTL, fields=("seen",))
    spec = RowsSpec.of(sink, "at", schema)
    result = RowMerger(spec, pa.Table.from_arrays(arrays, schema=schema), NOON_US).merged()
    assert [(each.index, each.reason) for each in result.rejected] == [(0, "wrong-value")]
    assert [change.user for change in result.changes] == ["v"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "at"}, r"Profiles\.key: 'at' is timestamp \(long, string\)"),
        ({"fields": ("country",)}, "'country' is no column of the rows"),
        ({"forget": {"kind": 5}}, r"Profiles\.forget: 'kind' is string"),
    ],
)
def test_rows_that_do_not_fit_are_refused_behind_steps_too(changes, message):
    declared = {"key": "user", "ttl": TTL, "lists": {"all": Latest(1)}} | changes
    with pytest.raises(TableMismatchError, match=message):
        RowsSpec.of(Profiles("u", **declared), "at", SCHEMA)
