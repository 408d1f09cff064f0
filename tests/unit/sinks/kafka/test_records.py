"""Rows as records of a topic, whatever its event class holds."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, TypedDict

import pyarrow as pa
import pytest

from headrace import ByField, EpochMillis, Kafka, Topic
from headrace.errors import InvalidRecordError, TableMismatchError
from headrace.events.instances import event_reader
from headrace.kafka.write.record import ProducerRecord
from headrace.sinks.api import DeclaredRows, SinkContext
from headrace.sinks.kafka.records import RecordsOf, batch_size_at_most, batch_size_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AT = datetime(2026, 11, 22, 12, 0, 0, 250_000, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


class Item:
    sku: str
    price: Decimal
    packed: EpochMillis | None


class Order:
    order_id: str
    at: datetime
    made: EpochMillis
    day: date
    paid: bool
    weight: float | None
    item: Item
    items: list[Item]
    labels: dict[str, int]
    channel: Literal["web", "app"]
    content: bytes
    payload: Any


ITEM = pa.struct([("sku", pa.string()), ("price", pa.decimal128(12, 2)), ("packed", TIME)])
COLUMNS = pa.schema(
    [
        ("order_id", pa.string()),
        ("at", TIME),
        ("made", TIME),
        ("day", pa.date32()),
        ("paid", pa.bool_()),
        ("weight", pa.float64()),
        ("item", ITEM),
        ("items", pa.list_(ITEM)),
        ("labels", pa.map_(pa.string(), pa.int64())),
        ("channel", pa.string()),
        ("content", pa.binary()),
        ("payload", pa.string()),
    ]
)
ROW = {
    "order_id": "o1",
    "at": AT,
    "made": AT,
    "day": date(2026, 11, 22),
    "paid": True,
    "weight": 0.5,
    "item": {"sku": "a", "price": Decimal("1.50"), "packed": AT},
    "items": [{"sku": "b", "price": Decimal("0.10"), "packed": None}],
    "labels": [("x", 1)],
    "channel": "web",
    "content": b"\x00\xff",
    "payload": '{"any": [1.50]}',
}
ORDERS = Topic("orders", event=Order, key="item.sku", event_id="order_id", event_time="at")


def records_of(*rows, topic=ORDERS, columns=COLUMNS):
    return RecordsOf(topic, AT.timestamp).of(pa.Table.from_pylist(list(rows), columns))


def test_a_row_is_an_event_of_the_class_as_readers_take_it():
    records, rejected = records_of(ROW)
    assert rejected == []
    assert json.loads(records[0].value) == {
        "order_id": "o1",
        "at": "2026-11-22T12:00:00.250000Z",
        "made": 1795348800250,
        "day": "2026-11-22",
        "paid": True,
        "weight": 0.5,
        "item": {"sku": "a", "price": "1.50", "packed": 1795348800250},
        "items": [{"sku": "b", "price": "0.10", "packed": None}],
        "labels": {"x": 1},
        "channel": "web",
        "content": "AP8=",
        "payload": {"any": [1.5]},
    }
    assert b'{"any": [1.50]}' in records[0].value
    assert (records[0].key, records[0].headers) == (b"a", (("event-id", b"o1"),))


@pytest.mark.parametrize(
    ("change", "reason", "detail"),
    [
        ({"paid": None}, "wrong-type", "'paid'"),
        ({"weight": float("nan")}, None, ""),  # JSON has null for it, and the field takes null
        ({"channel": "mail"}, "unknown-value", "'channel'"),
        ({"item": {"sku": "a", "price": None, "packed": None}}, "wrong-type", "item.price"),
        ({"items": [None]}, "wrong-type", "items[0]"),
        ({"payload": '1,"order_id":"another"'}, "wrong-type", "'payload'"),
        ({"payload": "no JSON"}, "wrong-type", "'payload'"),
        ({"payload": ""}, "wrong-type", "'payload'"),
        ({"payload": "1e400"}, "out-of-range", "'payload'"),
    ],
)
def test_a_row_that_no_reader_would_take_is_rejected_with_its_field(change, reason, detail):
    records, rejected = records_of(ROW, ROW | change, ROW)
    assert [(each.index, each.reason) for each in rejected] == ([(1, reason)] if reason else [])
    assert all(detail in each.detail for each in rejected)
    assert list(records) == ([0, 2] if reason else [0, 1, 2])


PARTS = AT + timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"made": PARTS}, "made"),
        ({"made": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)}, "made"),
        ({"item": ROW["item"] | {"packed": PARTS}}, "item.packed"),
        ({"items": [ROW["item"], ROW["item"] | {"packed": PARTS}]}, "items[].packed"),
    ],
)
def test_a_time_is_kept_or_its_row_is_rejected_where_milliseconds_would_cut_it(change, path):
    records, [rejected] = records_of(ROW, ROW | change, ROW | {"at": PARTS})
    assert (list(records), rejected.index, rejected.reason) == ([0, 2], 1, "wrong-value")
    assert repr(path) in rejected.detail
    assert json.loads(records[2].value)["at"] == "2026-11-22T12:00:00.250001Z"


def not_utf8():
    """A column as a step makes it that casts bytes to a string."""
    buffers = pa.array([b"\xff", b"a"]).buffers()
    return pa.Array.from_buffers(pa.string(), 2, buffers)


def test_a_text_that_is_not_utf8_rejects_its_row():
    rows = pa.table({"user": not_utf8(), "n": [1, 2]})
    records, [rejected] = RecordsOf(Topic("clicks", event=Click)).of(rows)
    assert (list(records), rejected.index, rejected.reason) == ([1], 0, "not-utf8")
    assert "field 'user'" in rejected.detail


def test_a_raw_topic_takes_the_bytes_of_any_text():
    rows = pa.table({"value": not_utf8(), "key": not_utf8()})
    records, _ = RecordsOf(Topic("raw")).of(rows)
    assert [(record.key, record.value) for record in records.values()] == [
        (b"\xff", b"\xff"),
        (b"a", b"a"),
    ]


@pytest.mark.parametrize("field", ["at", "made", "item"])
def test_a_time_beyond_the_year_9999_rejects_its_row_alone(field):
    rows = pa.Table.from_pylist([ROW, ROW, ROW], COLUMNS)
    far = pa.scalar(2**60, TIME)
    if field == "item":
        far = pa.StructArray.from_arrays(
            [["a"], pa.array([Decimal(1)], ITEM[1].type), pa.array([far])], fields=list(ITEM)
        )[0]
    at = rows[field].to_pylist()[0]
    column = pa.concat_arrays([pa.array([at], far.type), pa.array([far]), pa.array([at], far.type)])
    rows = rows.set_column(rows.column_names.index(field), COLUMNS.field(field), column)
    records, [rejected] = RecordsOf(ORDERS, AT.timestamp).of(rows)
    assert (list(records), rejected.index, rejected.reason) == ([0, 2], 1, "out-of-range")
    assert repr(field) in rejected.detail


class Notes:
    notes: list[Any]
    more: dict[str, Any]


NOTES = pa.schema([("notes", pa.list_(pa.string())), ("more", pa.map_(pa.string(), pa.string()))])


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({"notes": ["1", "1], [2"], "more": []}, "notes[]"),
        ({"notes": ["1"], "more": [("a", "1}, {")]}, "more[]"),
    ],
)
def test_nested_text_that_is_no_json_value_rejects_its_row(row, path):
    good = {"notes": ["1", None], "more": [("a", '{"b": 2}')]}
    topic = Topic("notes", event=Notes)
    records, [rejected] = records_of(good, row, topic=topic, columns=NOTES)
    assert json.loads(records[0].value) == {"notes": [1, None], "more": {"a": {"b": 2}}}
    assert (rejected.index, rejected.reason) == (1, "wrong-type")
    assert path in rejected.detail


class Click:
    user: str | None
    n: int


CLICKS = pa.schema([("user", pa.string()), ("n", pa.int64())])


def test_a_row_without_a_key_is_rejected():
    topic = Topic("clicks", event=Click, key="user")
    rows = [{"user": "a", "n": 1}, {"user": None, "n": 2}]
    records, [rejected] = records_of(*rows, topic=topic, columns=CLICKS)
    assert (list(records), rejected.index, rejected.reason) == ([0], 1, "bad-key")


class Seen:
    at: datetime


class SeenMillis:
    at: EpochMillis


NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEEN = pa.schema([("at", TIME)])


@pytest.mark.parametrize("event", [Seen, SeenMillis])
@pytest.mark.parametrize(
    ("declared", "accepted"),
    [
        ({}, [1, 2]),
        ({"earliest_event_time": datetime(1970, 1, 1, tzinfo=UTC)}, [0, 1, 2]),
        ({"latest_ahead": timedelta.max}, [1, 2, 3]),
        ({"latest_ahead": timedelta(0)}, [1]),
    ],
)
def test_a_row_whose_event_time_readers_do_not_accept_is_rejected(event, declared, accepted):
    ahead = NOW + timedelta(days=1)
    times = [datetime(1999, 12, 31, tzinfo=UTC), NOW, ahead, ahead + timedelta(milliseconds=1)]
    topic = Topic("seen", event=event, event_time="at", **declared)
    rows = pa.Table.from_pylist([{"at": at} for at in times], SEEN)
    records, rejected = RecordsOf(topic, NOW.timestamp).of(rows)
    assert list(records) == accepted
    read = event_reader(topic, clock=NOW.timestamp)
    assert [read(record.value).at for record in records.values()] == [times[n] for n in accepted]
    for row in rejected:
        milliseconds = (times[row.index] - EPOCH) // timedelta(milliseconds=1)
        at = milliseconds if event is SeenMillis else times[row.index].isoformat()
        with pytest.raises(InvalidRecordError) as reader_says:
            read(json.dumps({"at": at}).encode())
        assert (row.reason, row.detail) == (reader_says.value.reason, reader_says.value.detail)


def test_rows_go_where_the_topics_strategy_says():
    topic = Topic("clicks", event=Click, partitions=7, partitioning=ByField("n"))
    rows = [{"user": "a", "n": n % 3} for n in range(30)]
    records, _ = records_of(*rows, topic=topic, columns=CLICKS)
    places = {(rows[index]["n"], record.partition) for index, record in records.items()}
    assert len(places) == 3
    assert all(0 <= place < 7 for _, place in places)


def test_a_raw_topic_takes_values_and_keys_as_they_are():
    columns = pa.schema([("value", pa.binary()), ("key", pa.string())])
    rows = [{"value": b"\x00", "key": "k"}, {"value": None, "key": None}]
    records, _ = records_of(*rows, topic=Topic("raw"), columns=columns)
    assert [(record.key, record.value) for record in records.values()] == [
        (b"k", b"\x00"),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (CLICKS.append(pa.field("extra", pa.string())), "Click has no field 'extra'"),
        (CLICKS.append(pa.field("_id", pa.string())), "Click has no field '_id'"),
        (CLICKS.remove(1), "the rows have no Click.n"),
        (CLICKS.set(1, pa.field("n", pa.string())), "n is long in the class and string in the"),
    ],
)
def test_rows_that_do_not_fit_are_refused_at_the_start(columns, reason):
    with pytest.raises(TableMismatchError, match=reason):
        Kafka(Topic("clicks", event=Click)).open(SinkContext("p", "", {}), columns)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([("key", pa.string())], "needs a column 'value'"),
        ([("value", pa.int64())], "column 'value' is int64"),
        ([("value", pa.binary()), ("key", pa.int64())], "column 'key' is int64"),
        ([("value", pa.binary()), ("n", pa.int64())], "'value' and 'key', and the rows have 'n'"),
    ],
)
def test_a_raw_topic_takes_a_value_and_a_key_of_text_or_bytes(columns, reason):
    with pytest.raises(TableMismatchError, match=reason):
        Kafka(Topic("raw")).open(SinkContext("p", "", {}), pa.schema(columns))


@pytest.mark.parametrize("length", [0, 63, 64, 8_191, 8_192, 2**20])
def test_no_record_is_larger_than_its_size_at_most(length):
    """Lengths take a byte more from some of these on."""
    part = b"x" * length
    headers = (("event-id", part), ("origin", None))
    for record in (
        ProducerRecord("t", None, part, ()),
        ProducerRecord("t", part, part, headers),
        ProducerRecord("t", part, None, headers),
    ):
        assert 0 <= batch_size_at_most(record) - batch_size_of(record) <= 50


def test_a_sink_that_is_no_topic_is_a_fault():
    [fault] = Kafka("clicks").faults(DeclaredRows(None, None))
    assert "Kafka.topic is 'clicks'" in fault.message


class Dotted:
    id: str
    parts: TypedDict("Parts", {"a": str | None, ".a": str})


def test_a_field_of_a_struct_whose_name_begins_with_a_dot_is_no_path():
    parts = [{"a": "x", ".a": None}, {"a": None, ".a": "y"}]
    kind = pa.struct([("a", pa.string()), (".a", pa.string())])
    rows = pa.table({"id": ["1", "2"], "parts": pa.array(parts, kind)})
    records, rejected = RecordsOf(Topic("dotted", event=Dotted, key="id")).of(rows)
    assert [json.loads(record.value)["parts"] for record in records.values()] == parts[1:]
    assert [row.index for row in rejected] == [0]
