"""Protobuf to columns: presence, types, what is not declared, and what no class can hold."""

import itertools
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal
from uuid import UUID

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from headrace.errors import InvalidRecordError, RegistryUnreachableError
from headrace.events.instances import event_reader
from headrace.events.protobuf.schemas import protobuf_schema
from headrace.events.wire_format import HEADER
from headrace.model import Precision, Protobuf, RegisteredSchema, Topic, event_schema
from headrace.pipelines.source.decode.protobuf import ProtobufDecoder

HEAD = (
    'syntax = "proto3"; import "google/protobuf/timestamp.proto"; '
    'import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto"; '
)
PROTO2 = 'syntax = "proto2"; '


def schema(text, **imports):
    return RegisteredSchema("PROTOBUF", text, tuple(imports.items()))


def written(text, *, indices=b"\0", message=(0,), **fields):
    """A value of a message with these fields, as JSON of Protobuf has them."""
    made = GetMessageClass(protobuf_schema(schema(text)).message(message))()
    return HEADER.pack(0, 1) + indices + ParseDict(fields, made).SerializeToString()


def decoded(event, text, *values):
    """Rows and rejections of values; a worker is given the same, and rejects for the same."""
    lookup = {1: schema(text)}.get
    columns = ProtobufDecoder(event_schema(event), lookup).decode(list(values))
    read = event_reader(Topic("t", event=event, format=Protobuf()), protobuf=lookup)
    for index, why in columns.rejected.items():
        with pytest.raises(InvalidRecordError) as raised:
            read(values[index])
        assert (raised.value.reason, raised.value.detail) == why
    for index in set(range(len(values))) - set(columns.rejected):
        read(values[index])
    return columns.rows.to_pylist(), columns.rejected


def one(event, text, value):
    rows, rejected = decoded(event, text, value)
    return rows[0] if rows else rejected[0]


class Text:
    field: str | None


class Number:
    field: int | None


class Required:
    field: int


class Real:
    field: float | None


class Money:
    field: Annotated[Decimal, Precision(22, scale=2)] | None


class Time:
    field: datetime | None


class Kind:
    field: Literal["NEW", "USED"] | None


class Texts:
    field: list[str]


class ByText:
    field: dict[str, int]


class Within:
    field: Number | None


def of(kind):
    return f"{HEAD} enum State {{ NEW = 0; USED = 1; GONE = 7; }} message M {{ {kind} field = 3; }}"


@pytest.mark.parametrize(
    ("kind", "event", "fields", "value"),
    [
        ("string", Text, {}, ""),
        ("optional string", Text, {}, None),
        ("optional string", Text, {"field": ""}, ""),
        ("google.protobuf.StringValue", Text, {}, None),
        ("google.protobuf.StringValue", Text, {"field": ""}, ""),
        ("State", Text, {}, "NEW"),
        ("State", Text, {"field": 7}, "GONE"),
        ("State", Kind, {"field": 1}, "USED"),
        ("optional State", Kind, {}, None),
        ("int32", Number, {"field": -1}, -1),
        ("sint64", Number, {"field": -(2**63)}, -(2**63)),
        ("fixed32", Number, {"field": 2**32 - 1}, 2**32 - 1),
        ("sfixed64", Number, {"field": -7}, -7),
        ("uint64", Number, {"field": 2**63 - 1}, 2**63 - 1),
        ("google.protobuf.UInt64Value", Number, {"field": 8}, 8),
        ("float", Real, {"field": 0.5}, 0.5),
        ("uint32", Real, {"field": 3}, 3.0),
        ("string", Money, {"field": "1.50"}, Decimal("1.50")),
        ("uint64", Money, {"field": 2**63}, Decimal(2**63)),
        ("google.protobuf.Timestamp", Time, {"field": "2026-05-01T10:00:00.123456789Z"}, None),
        ("google.protobuf.Timestamp", Time, {"field": "1969-12-31T23:59:59.999999999Z"}, None),
        ("string", Time, {"field": "2026-05-01T10:00:00.123456Z"}, None),
        ("repeated string", Texts, {}, []),
        ("repeated google.protobuf.StringValue", Texts, {"field": ["a", ""]}, ["a", ""]),
        ("map<string, int32>", ByText, {"field": {"b": 2, "a": 1}}, [("a", 1), ("b", 2)]),
    ],
)
def test_a_value_is_that_of_the_message(kind, event, fields, value):
    row = one(event, of(kind), written(of(kind), **fields))
    if event is Time:
        second = 59 if "1969" in fields["field"] else 0
        micros = 999_999 if second else 123_456
        assert (row["field"].second, row["field"].microsecond) == (second, micros)
    else:
        assert row == {"field": value}


@pytest.mark.parametrize(
    ("kind", "event", "fields", "reason", "words"),
    [
        ("uint64", Number, {"field": 2**63}, "out-of-range", "field 'field' is out of range"),
        ("double", Real, {"field": "NaN"}, "out-of-range", "'field' is nan"),
        ("float", Real, {"field": "-Infinity"}, "out-of-range", "'field' is -inf"),
        ("int64", Real, {"field": 1}, "wrong-type", "'field' is Protobuf's int64, expected double"),
        ("double", Money, {"field": 1.5}, "wrong-type", "is Protobuf's double, expected string or"),
        ("string", Money, {"field": "x"}, "wrong-type", "'field' is a string that is not a number"),
        (
            "bytes",
            Text,
            {"field": ""},
            "wrong-type",
            "'field' is Protobuf's bytes, expected string",
        ),
        ("State", Kind, {"field": 7}, "unknown-value", "expected one of 'NEW', 'USED'"),
        ("State", Text, {"field": 5}, "unknown-value", "'field' is 5, which its enum does not"),
        ("google.protobuf.Struct", Text, {"field": {}}, "wrong-type", "'field' is an object"),
        ("repeated string", Text, {"field": ["a"]}, "wrong-type", "'field' is an array"),
        ("repeated int32", Texts, {"field": [1]}, "wrong-type", "field 'field[0]' is an integer"),
        ("map<int32, int32>", ByText, {"field": {"1": 1}}, "wrong-type", "keys that are int32"),
        ("optional int32", Required, {}, "missing-field", "field 'field' is missing"),
        ("string", Required, {}, "wrong-type", "field 'field' is a string, expected an integer"),
    ],
)
def test_what_the_class_can_t_hold_is_rejected_with_its_field(kind, event, fields, reason, words):
    code, sentence = one(event, of(kind), written(of(kind), **fields))
    assert (code, words in sentence) == (reason, True), sentence


def test_a_timestamp_beyond_the_calendar_is_rejected():
    text = of("google.protobuf.Timestamp")
    for seconds, nanos in ((253402300800, 0), (-62135596801, 0), (0, -1), (0, 10**9), (2**62, 0)):
        made = GetMessageClass(protobuf_schema(schema(text)).message([0]))()
        made.field.seconds, made.field.nanos = seconds, nanos
        value = HEADER.pack(0, 1) + b"\0" + made.SerializeToString()
        assert one(Time, text, value) == (
            "out-of-range",
            "field 'field' is outside the years 1 to 9999",
        )


@pytest.mark.parametrize(
    ("event", "kind", "value"),
    [
        (Number, "optional int32 field = 1 [default = 5];", 5),
        (Number, "optional int32 field = 1;", None),
        (Kind, "optional State field = 1 [default = USED];", "USED"),
        (Text, r'optional string field = 1 [default = "a\"\n\x01"];', 'a"\n\x01'),
        (Real, "optional double field = 1 [default = -1e300];", -1e300),
    ],
)
def test_what_is_absent_in_proto2_is_its_default_if_it_declares_one(event, kind, value):
    text = f"{PROTO2} enum State {{ USED = 3; NEW = 1; }} message M {{ {kind} }}"
    assert one(event, text, written(text)) == {"field": value}


def test_a_group_is_a_message():
    text = f"{PROTO2} message M {{ optional group Field = 1 {{ optional int64 field = 2; }} }}"
    made = GetMessageClass(protobuf_schema(schema(text)).message([0]))()
    made.field.field = 7
    value = HEADER.pack(0, 1) + b"\0" + made.SerializeToString()
    assert one(Within, text, value) == {"field": {"field": 7}}


def test_a_type_within_itself_is_read_as_deep_as_the_class():
    text = f"{HEAD} message M {{ M other = 1; optional int64 field = 2; }}"

    class Pair:
        other: Number | None
        field: int | None

    value = written(text, field=1, other={"field": 2, "other": {"field": 3}})
    assert one(Pair, text, value) == {"other": {"field": 2}, "field": 1}


def test_of_a_oneof_the_others_are_null():
    text = f"{HEAD} message M {{ oneof of {{ string text = 1; int64 number = 2; }} }}"

    class Either:
        text: str | None
        number: int | None

    assert one(Either, text, written(text, number=0)) == {"text": None, "number": 0}


def test_what_the_class_lacks_is_skipped_whatever_it_holds():
    text = f"{HEAD} message M {{ int64 field = 1; string other = 2; M more = 3; }}"
    odd = b"\x08\x07" + b"\x12\x02\xff\xfe" + b"\x1a\x03\xff\xff\xff" + b"\x7a\x01x"
    assert one(Number, text, HEADER.pack(0, 1) + b"\0" + odd) == {"field": 7}


def test_a_text_that_is_not_utf8_is_named():
    text = f"{HEAD} message M {{ repeated string field = 1; }}"
    value = HEADER.pack(0, 1) + b"\0" + b"\x0a\x01a\x0a\x02\xff\xfe"
    assert one(Texts, text, value) == ("not-utf8", "field 'field[1]' is a string that is not UTF-8")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not-protobuf"),
        (b"\x02", "not-protobuf"),
        (b"\x02\x08", "not-protobuf"),
        (b"\x02\x01", "not-protobuf"),
        (b"\xff" * 20, "not-protobuf"),
        (b"\0\x1a\x05x", "not-protobuf"),
        (b"\0\x00", "not-protobuf"),
    ],
)
def test_a_value_that_is_no_message_is_rejected_between_its_neighbours(body, reason):
    good = written(of("string"), field="x")
    rows, rejected = decoded(Text, of("string"), good, HEADER.pack(0, 1) + body, good)
    assert rows == [{"field": "x"}] * 2
    assert {index: code for index, (code, _) in rejected.items()} == {1: reason}


@pytest.mark.parametrize(
    ("indices", "message"), [(b"\x02\x02", [1]), (b"\x04\x02\x00", [1, 0]), (b"\x02\x00", [0])]
)
def test_a_record_says_which_message_of_its_schema_it_is(indices, message):
    inner = "message In { string field = 5; }"
    text = f"{HEAD} message M {{ string field = 1; }} message N {{ {inner} string field = 2; }}"
    value = written(text, indices=indices, message=message, field="x")
    assert one(Text, text, value) == {"field": "x"}


def test_rows_of_several_schemas_stay_in_their_order():
    texts = [f"{HEAD} message M {{ int64 field = {number}; }}" for number in (1, 2, 3)]
    schemas = {number: schema(text) for number, text in enumerate(texts)}
    values, numbers = [], itertools.cycle([2, 0, 1, 1])
    for at, number in zip(range(50), numbers, strict=False):
        body = written(texts[number], field=at)[HEADER.size :]
        values.append(b"\0" if at % 7 == 3 else HEADER.pack(0, number) + body)
    found = ProtobufDecoder(event_schema(Number), schemas.get).decode(values)
    assert list(found.rejected) == [at for at in range(50) if at % 7 == 3]
    assert found.rows["field"].to_pylist() == [at for at in range(50) if at % 7 != 3]


def test_an_id_may_be_a_guid_in_a_header():
    topic = Topic("t", event=Text, format=Protobuf())
    guid = UUID(int=9)
    read = event_reader(topic, protobuf={guid: schema(of("string"))}.get)
    body = written(of("string"), field="x")[HEADER.size + 1 :]
    assert read(body, [("__value_schema_id", b"\x01" + guid.bytes + b"\0")]).field == "x"


def test_a_schema_that_can_t_be_read_is_said_to_be_there():
    def lookup(schema_id):
        if schema_id == 2:
            raise ValueError("it is of the type AVRO, and not PROTOBUF")
        return {1: schema("message {"), 3: schema('import "gone.proto";')}.get(schema_id)

    values = [HEADER.pack(0, number) + b"\0" for number in (1, 2, 3, 4)]
    rejected = ProtobufDecoder(event_schema(Text), lookup).decode(values).rejected
    assert [code for code, _ in rejected.values()] == ["unreadable-schema"] * 3 + ["unknown-schema"]
    words = ("it is no schema of Protobuf's", "of the type AVRO", "gone.proto", "the id 4")
    for at, word in enumerate(words):
        assert word in rejected[at][1]


def test_a_registry_that_does_not_answer_rejects_nothing():
    def away(schema_id):
        raise RegistryUnreachableError("http://registry", "no answer")

    with pytest.raises(RegistryUnreachableError):
        ProtobufDecoder(event_schema(Text), away).decode([HEADER.pack(0, 1) + b"\0"])


def test_a_schema_may_import_files_of_the_registry_and_well_known_ones():
    main = (
        f'{HEAD} package shop; import "shop/money.proto"; import "confluent/meta.proto"; '
        'import "google/type/date.proto"; '
        "message M { shop.Number field = 1; google.type.Date d = 2; }"
    )
    imported = {"shop/money.proto": f"{HEAD} package shop; message Number {{ int64 field = 4; }}"}
    registered = schema(main, **imported)
    made = GetMessageClass(protobuf_schema(registered).message([0]))()
    made.field.field = 6
    value = HEADER.pack(0, 1) + b"\0" + made.SerializeToString()
    found = ProtobufDecoder(event_schema(Within), {1: registered}.get).decode([value])
    assert found.rows.to_pylist() == [{"field": {"field": 6}}]


def test_a_name_of_an_imported_file_can_t_leave_its_folder():
    with pytest.raises(ValueError, match="which is no name of a file"):
        protobuf_schema(schema(HEAD, **{"../../x.proto": ""}))


@dataclass
class Reading:
    at: datetime
    value: float


def test_many_rows_are_those_of_the_messages():
    text = f"{HEAD} message M {{ google.protobuf.Timestamp at = 1; double value = 2; }}"
    made = GetMessageClass(protobuf_schema(schema(text)).message([0]))
    values = []
    for number in range(9000):
        message = made(value=number / 7)
        message.at.seconds = number
        values.append(HEADER.pack(0, 1) + b"\0" + message.SerializeToString())
    rows, rejected = decoded(Reading, text, *values)
    assert rejected == {}
    assert math.isclose(rows[8999]["value"], 8999 / 7)
    assert rows[8999]["at"] == datetime.fromtimestamp(8999, UTC)
