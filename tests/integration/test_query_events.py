"""Spark reads the events that the decoder reads, and no others, but for what is listed."""

from __future__ import annotations

import json
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pyspark.sql import functions as f

from headrace.events.parsing.parser import slots
from headrace.model.event import EpochMillis, FieldType, Precision, event_schema
from headrace.pipelines.source.decode.json_events import JsonDecoder
from headrace.queries.compile.spark import column_of, with_event
from headrace.queries.language.tree import Path

pytestmark = pytest.mark.usefixtures("without_call_sites")


class Person:
    name: str
    Name: str | None
    age: int | None


class Loose:
    count: int | None
    anything: Any


class Everything:
    id: int
    text: str
    part: Loose
    count: int | None
    price: float | None
    note: str | None
    kind: Literal["x", "1"] | None
    is_new: bool | None
    at: datetime | None
    seen: EpochMillis | None
    day: date | None
    cost: Annotated[Decimal, Precision(9, 2)] | None
    amount: Decimal | None
    blob: bytes | None
    anything: Any
    counts: list[int] | None
    notes: list[str | None] | None
    times: list[datetime] | None
    people: list[Person] | None
    things: list[Any] | None
    scores: dict[str, int | None] | None
    labels: dict[str, str] | None
    owner: Person | None


EVERYTHING = event_schema(Everything)
TIMES = [
    *("2026-05-01T10:00:00Z", "2026-05-01t10:00:00.1234567z", "2026-05-01 10:00:00.1+0530"),
    *("1969-12-31T23:59:59.9999999-08:00", "0000-12-31T00:00:00Z", "0001-01-01T00:00:00Z"),
    *("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-01:00"),
    *("2026-05-01T10:00:60Z", "2026-02-29T10:00:00Z", "2026-05-01T24:00:00Z", "2026-05-01T10:00Z"),
    *("2026-05-01T10:00:00", "2026-05-01T10:00:00+17:00", "2026-05-01T10:00:00+1:00"),
    *("2026-05-01T10:00:00 UTC", "2026-05-01T10:00:00.Z", "2026-05-01T10:00:00,5Z", "2026-05-01"),
    *("2026-05-01T10:00:00.123456789012345Z", "+2026-05-01T10:00:00Z", "now", "epoch"),
]
DATES = [
    *("2026-05-01", "2026-02-29", "0000-01-01", "0001-01-01", "9999-12-31", "2026-5-1", "20260501"),
    *("2026-05-01 ", "2026-05-01T00:00:00Z", "1582-10-10", "1500-02-29"),
]
NUMBERS = [
    *("1", "-1", "0", "-0", "1.5", "1.500", "1.555", "1e2", "1.5e-1", "1e-3", "1E+2", "1.0", "0.1"),
    *("1234567.89", "12345678.9", "99999999999999999999.123", "9223372036854775807", "-5.00"),
    *("9223372036854775808", "-9223372036854775808", "123456789012345678901234567890.12"),
    *("0.005", "0.00", "9999999.995", "9999999.99", "100000000000000000000", "5e-324"),
    *("62135596800000", "-62135596800000", "-62135596800001", "253402300799999", "253402300800000"),
]
HUGE_NUMBERS = ["1e400", "-1e400", "1e308", "1e-400"]
DECIMAL_TEXTS = [" 1", "1,000", "+1", "1.", ".5", "01", "1e", "-", "--1", "1_0", "NaN", "", "0x1"]
TEXTS = [
    *("", "a", "é", "😀", "?", "a?b", "\0", "x", "1", "-5", "1e5", "true", "false", "null", "[1]"),
    *('{"a":1}', '"', "٣", "NaN", "Infinity", "-", "t", "trueish", "1.2.3", " 5", "5 ", "😀?"),
]
BASE64 = [
    "aGk=",
    "aGk",
    "aGkA",
    "====",
    "YWJj",
    "YQ==",
    "YR==",
    "a-_b",
    "YQ=",
    "YQ==YQ==",
    "aG k=",
    "YWJj YWJj",
    "\0",
]
HALVES = [r'"\ud800"', r'"\udc00x"', r'"a\ud83d"', r'"\ud800\ud800\udc00"']
WHOLE = [r'"\ud83d\ude00"', r'"\\ud800"', r'"\u0041?"', r'"\/"', r'"?\ud83d\ude00"']


def one_of(*texts):
    """A generator, which is a function of a :class:`random.Random`, of any of the texts."""
    choices = [text for some in texts for text in some]
    return lambda chance: chance.choice(choices)


def any_of(*generators):
    return lambda chance: chance.choice(generators)(chance)


def quoted(*texts):
    text = one_of(*texts)
    return lambda chance: json.dumps(text(chance), ensure_ascii=chance.random() < 0.5)


SCALARS = any_of(
    quoted(TEXTS, TIMES, DATES, NUMBERS, BASE64),
    one_of(NUMBERS, WHOLE, ["true", "false", "null"]),
)
NAMES = ["name", "Name", "age", "count", "other"]
FIELDS_OF_PERSON = ["name", "Name", "age"]


def arrays(items):
    return lambda chance: f"[{','.join(items(chance) for _ in range(chance.randint(0, 2)))}]"


def objects(values, names=NAMES):
    def generate(chance):
        chosen = chance.sample(names, chance.randint(0, 3))
        return object_text((name, values(chance)) for name in chosen)

    return generate


def object_text(members):
    return "{" + ", ".join(f'"{name}": {value}' for name, value in members) + "}"


def anything(chance):
    """A value of any type; half of them are scalars, so that the nesting ends."""
    return any_of(SCALARS, SCALARS, arrays(anything), objects(anything))(chance)


TEXT_VALUES = any_of(quoted(TEXTS, TIMES, NUMBERS), one_of(WHOLE, HALVES))
PEOPLE = any_of(
    objects(any_of(TEXT_VALUES, one_of(["7", "null"])), FIELDS_OF_PERSON), one_of(['{"name":"a"}'])
)
FIELDS = {
    "count": one_of(NUMBERS),
    "price": one_of(NUMBERS, HUGE_NUMBERS[:3]),
    "note": TEXT_VALUES,
    "kind": one_of(['"x"', '"1"', "1", '"y"']),
    "is_new": one_of(["true", "false"]),
    "at": quoted(TIMES),
    "seen": one_of(NUMBERS),
    "day": quoted(DATES),
    "cost": any_of(one_of(NUMBERS), quoted(NUMBERS, DECIMAL_TEXTS)),
    "amount": any_of(one_of(NUMBERS), quoted(NUMBERS, DECIMAL_TEXTS)),
    "blob": quoted(BASE64),
    "anything": anything,
    "counts": arrays(one_of(["1", "2", "null", "1.5", '"1"'])),
    "notes": arrays(any_of(TEXT_VALUES, one_of(["null", "5", "[]"]))),
    "times": arrays(quoted(TIMES)),
    "people": arrays(any_of(PEOPLE, one_of(["null"]))),
    "things": arrays(anything),
    "scores": objects(one_of(["1", "null", '"1"'])),
    "labels": objects(any_of(TEXT_VALUES, one_of(["null"]))),
    "owner": PEOPLE,
    "undeclared": anything,
    "ID": anything,
}
REQUIRED = {"id": "1", "text": '"a"', "part": "{}"}


def document(chance):
    """A JSON object, most of which are events, and some of which are no JSON."""
    members = dict(REQUIRED)
    for name in chance.choices(sorted(FIELDS), k=chance.randint(0, 2)):
        members[name] = FIELDS[name](chance)
    if chance.random() < 0.1:
        members[chance.choice([*FIELDS, *REQUIRED])] = anything(chance)
    if chance.random() < 0.05:
        del members[chance.choice(sorted(REQUIRED))]
    pairs = list(members.items())
    repeated = chance.sample(pairs, chance.randint(0, 1))
    text = object_text(chance.sample(pairs + repeated, len(pairs + repeated)))
    # A damaged name may leave half of a surrogate pair in a field that is not declared. Of repeated
    # fields, Spark looks at the last alone, which may be right where the first is damaged.
    may_be_damaged = not repeated and "\\ud" not in text
    is_damaged = chance.random() < 0.1 and may_be_damaged
    return (damaged(text, chance) if is_damaged else text).encode()


def damaged(text, chance):
    place = chance.randrange(len(text))
    after = chance.choice([" ", "\n", "x", "}", "{}", ",", '"', "]", " 1"])
    before = chance.choice([" ", "\t\n", "[", "\ufeff", "x"])
    replaced = chance.choice('{}[]",:01x\\\n\x01')
    texts = [text + after, before + text, f"[{text}]", text[:place]]
    return chance.choice([*texts, text[:place] + replaced + text[place + 1 :]])


BEFORE, AFTER = b'{"id":1,"text":"a","part":{}', b"}"
OTHERS = [
    *(None, b"", b" ", b"null", b"5", b'"a"', b"[]", b"{}", b'{"id":1,"text":"a","part":{}}{}'),
    *(b'{"id":1,"text":"\xff","part":{}}', b"\xff", b'{"id":NaN,"text":"a","part":{}}'),
    *(b'{\'id\':1,"text":"a","part":{}}', b'{"id":1,"text":"a","part":{}/**/}'),
    *(BEFORE + b',"other":NaN' + AFTER, BEFORE + b',"price":"NaN"' + AFTER),
    *(BEFORE + b',"note":5,"note":"a"' + AFTER, BEFORE + b',"kind":"y","kind":null' + AFTER),
    b'{"id":1,"text":"a","part":' + b'{"anything":' * 5_000 + b"1" + b"}" * 5_001,
    b'{"id":1,"part":{},"text":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
]


def of_spark(spark, values, schema=EVERYTHING):
    """The event of each value, as a dictionary; None: it is no event."""
    records = spark.createDataFrame(list(enumerate(values)), "row bigint, value binary")
    table = with_event(records, schema).select("row", "event").toArrow().sort_by("row")
    return table.column("event").to_pylist()


def of_decoder(values, schema=EVERYTHING):
    read = JsonDecoder(schema).decode(values)
    rows = iter(read.rows.to_pylist())
    return [
        None if row in read.rejected else usable(next(rows), schema) for row in range(len(values))
    ]


UNUSABLE = {FieldType.DATE, FieldType.BINARY, FieldType.JSON, FieldType.LIST, FieldType.MAP}


def usable(values, schema):
    """The values that queries can use, as they see them."""
    if values is None:
        return None
    event = {}
    for slot, field in slots(schema).items():
        value = values[field.name]
        if field.schema is not None:
            value = usable(value, field.schema)
        if field.type is FieldType.DECIMAL and value is not None:
            value = float(str(value))
        if field.type not in UNUSABLE:
            event[slot] = value
    return event


@pytest.mark.usefixtures("ansi")
def test_events_are_those_of_the_decoder(spark, pytestconfig):
    chance = random.Random(pytestconfig.option.seed)
    values = OTHERS + [document(chance) for _ in range(2_500)]
    actual, expected = of_spark(spark, values), of_decoder(values)
    assert 500 < sum(event is None for event in expected) < 2_000
    for value, *events in zip(values, actual, expected, strict=True):
        assert events[0] == events[1], value


TAKEN = [
    b'},"more":{"a":1',
    rb',"undeclared":"\ud800"',
    rb',"anything":"\ud800"',
    b',"anything":1e400',
    b',"cost":1e-400',
    b',"amount":0.12345678901234567891',
    b',"anything":' + b"[" * 980 + b"]" * 980,
]
REJECTED = [
    b',"amount":"1e0001"',
    b',"undeclared":"\xff"',
    b',"\xff":1',
    b',"at":"2026-05-01T00:00:00+18:01"',
    b',"undeclared":' + b"1" * 1_001,
    b',"' + b"x" * 50_001 + b'":1',
    b',"note":"' + b"x" * 20_000_001 + b'"',
]


def test_what_is_different_is_what_is_documented(spark):
    taken, rejected = ([BEFORE + part + AFTER for part in parts] for parts in (TAKEN, REJECTED))
    assert None not in of_spark(spark, taken)
    assert of_decoder(taken) == [None] * len(taken)
    assert of_spark(spark, rejected) == [None] * len(rejected)
    assert None not in of_decoder(rejected)


class Names:
    a: int
    A: int
    b: Any
    x_y: Annotated[Decimal, Precision(38, 0)] | None


Names.__annotations__["a.b`c"] = str


def test_fields_are_told_apart_whatever_their_names(spark):
    schema = event_schema(Names)
    value = b'{"a":1,"A":2,"a.b`c":"x","x_y":12345678901234567890}'
    records = spark.createDataFrame([(value,)], "value binary")
    columns = [
        column_of(Path((name,)), schema, f.col("event")) for name in schema.names if name != "b"
    ]
    [row] = with_event(records, schema).select(*columns).collect()
    assert sorted(map(str, row)) == sorted(["1", "2", "x", "1.2345678901234567e+19"])


class Opaque:
    anything: Any
    days: list[date]


def test_an_event_may_have_no_field_that_queries_can_use(spark):
    values = [b'{"days":["2026-05-01"]}', b'{"days":["2026-05-01",5]}', b'{"days":null}']
    assert of_spark(spark, values, event_schema(Opaque)) == [{}, None, None]


class Count:
    count: int
    total: float | None


@pytest.mark.parametrize(("event", "parsers"), [(Count, 1), (Person, 2)])
def test_conditions_on_an_event_do_not_parse_it_again(spark, event, parsers):
    """The second parser is for texts that may be numbers."""
    rows = spark.sparkContext.parallelize([(bytearray(b"{}"), "a")])
    records = spark.createDataFrame(rows, "value binary, key string")
    events = with_event(records, event_schema(event))
    assert events.columns == ["value", "key", "event"]
    keys = events.where("event IS NOT NULL AND event.f0 IS NOT NULL").select("key")
    plan = keys._jdf.queryExecution().optimizedPlan().toString()
    assert plan.count("from_json(") == parsers
    [condition] = [line for line in plan.splitlines() if "Filter " in line]
    assert "parsed_document#" not in condition
