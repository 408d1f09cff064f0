"""What a decoder says about a record does not depend on its neighbours, and agrees with json."""

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.model import EpochMillis, Json, event_schema
from headrace.pipelines.source.decode import decoder_for
from headrace.pipelines.source.decode.checks import EventTimeBounds, RowChecks

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Event:
    name: str
    at: EpochMillis
    kind: Literal["view", "click"]
    count: int
    price: float | None
    paid: bool | None
    sent: datetime | None
    note: str | None


DECODER = decoder_for(Json(), event_schema(Event))
CHECKED = RowChecks(EventTimeBounds("at", 0, 2_000_000_000_000_000), ["name"])
CHECKS = settings(max_examples=200)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["5", "-1.5e3", "true", "null", "{", '{"a": 1}', "[1]", "..", "a/b", "\x00", "😀"]
)
TIMES = st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat)
EXTRAS = st.dictionaries(TEXTS, st.none() | st.integers() | TEXTS | st.lists(TEXTS), max_size=2)
EVENTS = st.fixed_dictionaries(
    {
        "name": TEXTS,
        "at": st.integers(-10, 3 * 10**12),
        "kind": st.sampled_from(["view", "click"]),
        "count": st.integers(-(2**63), 2**63 - 1),
    },
    optional={
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
        "paid": st.none() | st.booleans(),
        "sent": st.none() | TIMES,
        "note": st.none() | TEXTS,
    },
)


@st.composite
def valid_records(draw):
    fields = {**draw(EXTRAS), **draw(EVENTS)}
    order = draw(st.permutations(list(fields)))
    return json.dumps(
        {name: fields[name] for name in order},
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.none() | st.just(1)),
    ).encode()


SNIPPETS = st.sampled_from(
    [
        *(bytes([byte]) for byte in b'{}[]",:\\+-.0159eEunltTZ \n\r\t\x00\x7f'),
        *(b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xc3\xa9"),
        *(b"\\ud800", b"\\udc00", b"\\u12", b"NaN", b"Infinity", b"1e400", b"null", b"true"),
        *(b'"count": 1,', b'"count": "1",', b'"name": 5,', b"9" * 25, b'{"a": 1}', b"{} "),
    ]
)


@st.composite
def mutated_records(draw):
    record = draw(valid_records())
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(record)))
        removed = draw(st.sampled_from([0, 0, 1, 2, 7]))
        inserted = draw(SNIPPETS | st.just(b""))
        record = record[:start] + inserted + record[start + removed :]
    return record


@st.composite
def records_with_a_replaced_value(draw):
    fields = draw(EVENTS)
    name = draw(st.sampled_from(list(Event.__annotations__)))
    value = draw(SNIPPETS | TIMES.map(json.dumps).map(str.encode) | st.just(b'"x"'))
    record = json.dumps({**fields, name: "@@"}, ensure_ascii=False).encode()
    return record.replace(b'"@@"', value, 1)


RECORDS = (
    valid_records()
    | mutated_records()
    | records_with_a_replaced_value()
    | st.binary(max_size=12)
    | st.none()
)


def decode(values):
    decoded = CHECKED.applied(DECODER.decode(values), len(values))
    assert decoded.rows.schema == DECODER.arrow_schema
    assert decoded.rows.num_rows + len(decoded.rejected) == len(values)
    return decoded.rows.to_pylist(), [(index, *why) for index, why in decoded.rejected.items()]


@CHECKS
@given(st.lists(RECORDS, max_size=12))
def test_a_chunk_is_decoded_as_each_record_alone(values):
    rows, bad = decode(values)
    alone = [decode([value]) for value in values]
    assert rows == [row for kept, _ in alone for row in kept]
    assert bad == [
        (index, reason, detail)
        for index, (_, rejected) in enumerate(alone)
        for _, reason, detail in rejected
    ]


@CHECKS
@given(st.lists(RECORDS, max_size=12), st.sets(st.sampled_from(list(Event.__annotations__))))
def test_columns_that_are_not_needed_change_neither_the_others_nor_what_is_rejected(values, needed):
    decoder = decoder_for(Json(), event_schema(Event), needed=needed)
    some, all_ = decoder.decode(values), DECODER.decode(values)
    # Which times can't be read shows in their column.
    assert some.rows.column_names == [n for n in all_.rows.column_names if n in {*needed, "sent"}]
    assert some.rows.equals(all_.rows.select(some.rows.column_names))
    assert some.rejected == all_.rejected


@CHECKS
@given(valid_records() | mutated_records() | records_with_a_replaced_value())
def test_a_row_holds_what_json_reads(value):
    rows, _ = decode([value])
    for row in rows:
        document = json.loads(value.decode(errors="replace"))
        assert row == {name: expected(name, document.get(name)) for name in Event.__annotations__}


def expected(name, value):
    if name == "at":
        return EPOCH + timedelta(milliseconds=value)
    if name == "sent" and value is not None:
        return instant(value)
    return float(value) if name == "price" and value is not None else value


def sent_at(text):
    return b'{"name": "", "at": 0, "kind": "view", "count": 0, "sent": "%s"}' % text.encode()


@CHECKS
@given(RECORDS)
@example(b'\xef\xbb\xbf{"name": "", "at": 0, "kind": "view", "count": 0}')
@example(sent_at("2000-01-01T00:00:00+01"))
@example(sent_at("2000-01-01:00:00:00+00:00"))
@example(sent_at("2000-01-01T00:00Z"))
@example(sent_at("20000101T000000Z"))
@example(sent_at("2000-01-01T00:00:00+00:00:30"))
@example(sent_at("2000-01-01T00:00:00.Z"))
@example(sent_at("2000-01-01t00:00:00z"))
@example(sent_at("9999-12-31T23:59:59-01:00"))
def test_a_record_is_a_row_exactly_when_json_reads_an_event(value):
    if value is not None and is_utf8(value):
        assert bool(decode([value])[0]) == is_event(value)


def is_utf8(value):
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_event(value):
    """The rule, said again the slow way."""
    try:
        # As text: of bytes, Python would pass over a byte order mark, which JSON forbids.
        members = json.loads(value.decode(), object_pairs_hook=Members, parse_constant=refuse)
        json.dumps(members, ensure_ascii=False).encode()
    except ValueError:
        return False
    if not isinstance(members, Members):
        return False
    last = dict(members)
    return (
        all(name not in RULES or RULES[name](given) for name, given in last.items())
        and {"name", "at", "kind", "count"} <= set(last)
        and 0 <= last["at"] <= 2_000_000_000_000
        and not any(c in "/\\" or c < " " or "\x7f" <= c <= "\x9f" for c in last["name"])
        and last["name"] not in (".", "..")
        and (last.get("sent") is None or is_time(last["sent"]))
    )


class Members(list):
    pass


def refuse(word):
    raise ValueError(word)


RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)", re.ASCII)


def is_time(text):
    """Python alone takes other forms of ISO 8601, and any character after the date."""
    try:
        return bool(RFC_3339.fullmatch(text) and instant(text).astimezone(UTC))
    except (ValueError, OverflowError):
        return False


def instant(text):
    return datetime.fromisoformat(text.upper())


RULES = {
    "name": lambda value: type(value) is str,
    "at": lambda value: type(value) is int and -62135596800000 <= value < 253402300800000,
    "kind": lambda value: value in ("view", "click") and type(value) is str,
    "count": lambda value: type(value) is int and -(2**63) <= value < 2**63,
    "price": lambda value: value is None or (type(value) in (int, float) and is_finite(value)),
    "paid": lambda value: value is None or type(value) is bool,
    "sent": lambda value: value is None or type(value) is str,
    "note": lambda value: value is None or type(value) is str,
}


def is_finite(value):
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


@CHECKS
@given(RECORDS)
def test_every_rejection_is_explained_in_our_own_words(value):
    for _, reason, detail in decode([value])[1]:
        assert reason
        assert not detail.startswith("the value was rejected"), detail
