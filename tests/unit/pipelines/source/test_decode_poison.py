"""Every kind of bad record: its reason, and that its neighbours do not notice."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from tests.contracts.json_records import GOOD, POISON, Impression, good, raw, without

from headrace.errors import UnknownFormatError
from headrace.model import Json, Raw, event_schema
from headrace.pipelines.source.decode import decoder_for
from headrace.pipelines.source.decode.checks import EventTimeBounds, RowChecks

BOUNDS = EventTimeBounds("event_time", 946684800_000_000, 1600000000_000_000)
DECODER = decoder_for(Json(), event_schema(Impression))
CHECKS = RowChecks(BOUNDS, ["category"])


def decoded(values):
    return CHECKS.applied(DECODER.decode(values), len(values))


def decode(values):
    checked = decoded(values)
    rows, rejected = checked.rows, checked.rejected
    assert rows.schema == DECODER.arrow_schema
    return rows.to_pylist(), [(index, reason) for index, (reason, _) in rejected.items()]


def detail(value):
    (_, sentence) = decoded([value]).rejected[0]
    return sentence


GOOD_ROWS = decode([good(number) for number in range(6)])[0]


def test_a_good_record_becomes_a_row_with_the_types_of_its_schema():
    assert GOOD_ROWS[3] == GOOD | {
        "item_id": 3,
        "event_time": datetime(2019, 11, 24, 0, 0, 17, 4000, UTC),
        "sent_at": datetime(2019, 11, 24, 0, 0, 17, 4101, UTC),
        "score": 2.0,
    }
    time = pa.timestamp("us", tz="UTC")
    assert dict(zip(DECODER.arrow_schema.names, DECODER.arrow_schema.types, strict=True)) == {
        "event_id": pa.string(),
        "event_time": time,
        "category": pa.string(),
        "kind": pa.string(),
        "item_id": pa.int64(),
        "price": pa.float64(),
        "paid": pa.bool_(),
        "sent_at": time,
        "note": pa.string(),
        "score": pa.float64(),
    }


@pytest.mark.parametrize(("value", "reason"), POISON.values(), ids=POISON)
def test_a_bad_record_is_told_by_its_reason_wherever_it_stands(value, reason):
    goods = [good(number) for number in range(6)]
    assert decode([value]) == ([], [(0, reason)])
    for position in (0, 3, 6):
        mixed = [*goods[:position], value, *goods[position:]]
        assert decode(mixed) == (GOOD_ROWS, [(position, reason)])


def test_all_bad_records_at_once_leave_the_good_ones_in_order():
    poison = [value for value, _ in POISON.values()]
    goods = [good(number) for number in range(len(poison))]
    rows, bad = decode([value for pair in zip(goods, poison, strict=True) for value in pair])
    assert [row["item_id"] for row in rows] == list(range(len(poison)))
    assert bad == [(2 * i + 1, reason) for i, (_, reason) in enumerate(POISON.values())]


def test_nothing_but_bad_records_leaves_no_row():
    rows, bad = decode([value for value, _ in POISON.values()])
    assert rows == []
    assert [reason for _, reason in bad] == [reason for _, reason in POISON.values()]


def test_an_empty_chunk_is_an_empty_table():
    assert decode([]) == ([], [])


def test_indices_count_on_over_blocks():
    values = [good(number) for number in range(20_000)]
    for index in (0, 3_999, 4_000, 12_345, 19_999):
        values[index] = b"bad"
    values[8_000] = good(category="..")
    rows, bad = decode(values)
    refused = [0, 3_999, 4_000, 8_000, 12_345, 19_999]
    assert [index for index, _ in bad] == refused
    assert [row["item_id"] for row in rows] == sorted(set(range(20_000)) - set(refused))


FINE = {
    "escaped pair": (raw("note", rb'"\ud83d\ude00"'), "note", "😀"),
    "utf-8": (good(note="żółć 😀"), "note", "żółć 😀"),
    "raw utf-8": (raw("note", '"żółć 😀"'.encode()), "note", "żółć 😀"),
    "escaped nul": (good(note="a\x00"), "note", "a\x00"),
    "numeric string": (good(note="-5.0e1"), "note", "-5.0e1"),
    "boolean string": (good(note="true"), "note", "true"),
    "brace string": (good(note='{"a": 1}'), "note", '{"a": 1}'),
    "empty string": (good(note=""), "note", ""),
    "absent nullable field": (without("note"), "note", None),
    "empty category": (good(category=""), "category", ""),
    "undeclared fields": (good(more={"a": [1, {}]}, category="x"), "category", "x"),
    "undeclared number too large": (
        good()[:-1] + b', "more": 1e400, "most": ' + b"9" * 5000 + b"}",
        "category",
        "shoes",
    ),
    "pretty-printed": (json.dumps(GOOD, indent=2).replace("\n", "\r\n").encode(), "item_id", 7),
    "white space around": (b"\n \t" + good(9) + b" \r\n", "item_id", 9),
    "2^63-1": (good(2**63 - 1), "item_id", 2**63 - 1),
    "-2^63": (good(-(2**63)), "item_id", -(2**63)),
    "minus zero": (raw("item_id", b"-0"), "item_id", 0),
    "integer for number": (good(price=3), "price", 3.0),
    "20 digits for number": (good(price=2**66), "price", 2.0**66),
    "largest double": (raw("price", b"1.7976931348623157e308"), "price", 1.7976931348623157e308),
    "underflow": (raw("price", b"1e-400"), "price", 0.0),
    "escaped name": (good(9).replace(b'"item_id"', rb'"\u0069tem_id"'), "item_id", 9),
    "last of a repeated field": (good(1)[:-1] + b', "item_id": 2}', "item_id", 2),
    "first of a repeated field wrong": (b'{"item_id": "x", ' + good(2)[1:], "item_id", 2),
    "900 kB": (good(note="n" * 900_000), "note", "n" * 900_000),
    "deep, but not too deep": (
        good()[:-1] + b',"x":' + b"[" * 500 + b"]" * 500 + b"}",
        "paid",
        True,
    ),
}


@pytest.mark.parametrize(("value", "field", "expected"), FINE.values(), ids=FINE)
def test_an_unusual_record_that_is_a_valid_event_is_a_row(value, field, expected):
    rows, bad = decode([good(), value, b"bad"])
    assert bad == [(2, "not-json")]
    assert rows[1][field] == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (good(price="1.5"), "field 'price' is a string, expected a finite number"),
        (good(note=[]), "field 'note' is an array, expected a string or null"),
        (good(item_id=2.5), "expected an integer within 64 bits"),
        (good(item_id=None), "field 'item_id' is null"),
        (without("paid"), "field 'paid' is missing, expected true or false"),
        (good(kind="hover"), "expected one of 'view', 'click'"),
        (good(event_time=0), "field 'event_time' is 1970-01-01T00:00:00+00:00, before"),
        (good(event_time=2**60 // 10**4), "after the latest accepted, 2020-09-13T12:26:40+00:00"),
        (good(category="../../x"), "field 'category' holds '/', which separates directories"),
        (good(sent_at="now"), "field 'sent_at' is a string that is not an RFC 3339 time"),
        (b"[1, 2]", "an array, expected an object"),
        (b"{} {}", "at 3"),
        (b"{}\xff", "byte 0xff at 2"),
    ],
)
def test_a_detail_names_the_field_its_json_type_and_what_was_expected(value, words):
    assert words in detail(value)


def test_a_detail_never_shows_a_string_of_the_event():
    for value in (good(price="secret"), good(kind="secret"), good(sent_at="secret")):
        assert "secret" not in detail(value)


def test_the_first_reason_in_the_order_of_judging_wins():
    value = good(event_time=0, category="..", sent_at="never")
    assert decode([value])[1] == [(0, "wrong-type")]
    assert decode([good(event_time=0, category="..")])[1] == [(0, "event-time-out-of-bounds")]


def test_raw_records_are_kept_as_they_are():
    decoder = decoder_for(Raw(), None)
    values = [b"a", None, b"", b"\xff\x00", b'{"a":1}']
    decoded = decoder.decode(values)
    assert decoded.rejected == {}
    assert decoded.rows.schema == decoder.arrow_schema == pa.schema({"value": pa.binary()})
    assert decoded.rows.column("value").to_pylist() == values
    assert decoder.decode([]).rows.num_rows == 0


def test_a_format_without_a_decoder_is_an_error_that_names_it():
    for schema in (None, event_schema(Impression)):
        with pytest.raises(UnknownFormatError, match="format 'Protobuf'"):
            decoder_for("Protobuf", schema)
