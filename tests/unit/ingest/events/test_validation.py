"""Events of a topic: the bad-input matrix, one row after the other."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ingest.events.json_limits import JsonLimits, JsonLimitsCheck
from headrace.ingest.events.validation import MAX_ID_CHARACTERS, EventCheck, derived_id
from headrace.model import ByHash, ByShard, EpochMillis, Topic, partition_of

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=65_536)


class Occurrence:
    event_id: str
    at: datetime
    message: str
    count: int | None
    weight: float | None


class Tick:
    at: EpochMillis
    n: int


TOPIC = Topic("occurrences", event=Occurrence, event_id="event_id", event_time="at")
GOOD = {"event_id": "e-1", "at": "2026-05-01T11:00:00Z", "message": "hello"}


def check(topic=TOPIC, limits=LIMITS):
    return EventCheck(topic, limits, NOW.timestamp)


def text(**changes):
    document = {name: value for name, value in (GOOD | changes).items() if value is not ...}
    return json.dumps(document).encode()


def only(event, topic=TOPIC, account="acme"):
    """The one event, accepted, or the code it is rejected with."""
    accepted, rejected = check(topic).batch([event], account, ())
    assert len(accepted) + len(rejected) == 1
    return accepted[0] if accepted else rejected[0].code


def test_a_good_event_is_sent_as_it_came():
    event = text(extra={"any": ["thing", 1.5, None]})
    accepted = only(event)
    assert (accepted.value, accepted.key, accepted.event_id) == (event, b"acme", "e-1")


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (b"null", "not-an-object"),
        (b"[]", "not-an-object"),
        (b"3", "not-an-object"),
        (b"", "empty"),
        (b"{", "not-json"),
        (b"{} {}", "trailing-data"),
        (text() + b"x", "trailing-data"),
        (text(message=1), "wrong-type"),
        (text(message=None), "wrong-type"),
        (text(message=...), "missing-field"),
        (text(count=1.5), "wrong-type"),
        (text(count="1"), "wrong-type"),
        (text(count=2**63), "out-of-range"),
        (text(count=2**64), "out-of-range"),
        (text(other=2**64), "out-of-range"),
        (text(other=[{"deep": -(2**63) - 1}]), "out-of-range"),
        (text()[:-1] + b',"other":' + b"9" * 5000 + b"}", "out-of-range"),
        (text()[:-1] + b',"weight":NaN}', "not-json"),
        (text()[:-1] + b',"other":Infinity}', "not-json"),
        (text()[:-1] + b',"weight":1e400}', "out-of-range"),
        (text(message="\ud800"), "lone-surrogate"),
        (text(other="\udfff"), "lone-surrogate"),
        (text()[:-1] + b',"other":"\xff"}', "not-utf8"),
        (text(message="a\0b"), "nul-character"),
        (text(other={"a\0b": 1}), "nul-character"),
        (text(message="x" * 65_537), "text-too-long"),
        (text()[:-1] + b',"message":"again"}', "repeated-key"),
        (text()[:-1] + b',"message" :"again"}', "repeated-key"),
        (text()[:-1] + b',"o":{"a":1,"\\u0061":2}}', "repeated-key"),
        (b'{"a":1,"a" :2}', "repeated-key"),
        (text()[:-1] + b',"o":' + b"[" * 70 + b"]" * 70 + b"}", "too-deep"),
        (text()[:-1] + b',"o":' + b"[" * 1000 + b"]" * 1000 + b"}", "too-deep"),
        (text()[:-1] + b',"o":' + b"[" * 500_000 + b"]" * 500_000 + b"}", "too-deep"),
        (text(other={f"k{n}": n for n in range(1000)}), "too-many-keys"),
        (text(event_id=...), "missing-field"),
        (text(event_id=""), "bad-event-id"),
        (text(event_id="x" * (MAX_ID_CHARACTERS + 1)), "bad-event-id"),
        (text(event_id="\u017c\u00f3\u0142w"), "bad-event-id"),
        (text(event_id="a b"), "bad-event-id"),
        (text(event_id="a\r\nb"), "bad-event-id"),
        (text(at="1970-01-01T00:00:00Z"), "event-time-out-of-bounds"),
        (text(at="9999-12-31T23:59:59Z"), "event-time-out-of-bounds"),
        (text(at="2036-05-01T12:00:00Z"), "event-time-out-of-bounds"),
        (text(at="2026-05-01T12:00:00"), "wrong-type"),
        (text(at="2026-06-30T23:59:60Z"), "wrong-type"),
        (text(at=1777636800), "wrong-type"),
        (text(at=""), "wrong-type"),
    ],
)
def test_what_is_wrong_has_a_name(event, code):
    assert only(event) == code


@pytest.mark.parametrize(
    "event",
    [
        text(message=""),
        text(message='../../x %2e%2e \U0001f600 a":b :c'),
        text(count=2**63 - 1, other=-(2**63)),
        text(at="2026-05-01T13:00:00+02:00"),
        text(event_id="x" * MAX_ID_CHARACTERS),
        text(other={f"k{n}": n for n in range(996)}),
        text(message="x" * 65_536),
        text(other=[[[]]] * 30),
        json.dumps(GOOD | {"a": {"b": 1}, "c": [{"b": 2}]}, indent=3).encode(),
        b' {"event_id" : "e" , "at":"2026-05-01T11:00:00Z" ,\n"message"\t:\t"m" }',
    ],
)
def test_what_is_only_unusual_is_accepted(event):
    assert only(event).value == event


def test_one_bad_of_a_thousand_costs_only_itself():
    events = [text(event_id=str(n)) for n in range(1000)]
    events[500] = b'{"event_id": NaN}'
    accepted, rejected = check().batch(events, "acme", ())
    assert [event.event_id for event in accepted] == [str(n) for n in range(1000) if n != 500]
    assert [(problem.index, problem.code) for problem in rejected] == [(500, "not-json")]


def test_a_rejection_names_the_field_what_it_is_and_what_was_expected():
    _, (problem,) = check().batch([text(count="1")], "acme", ())
    expected = "field 'count' is a string, expected an integer within 64 bits or null"
    assert problem.document() == {
        "type": "urn:headrace:problem:wrong-type",
        "title": "wrong type",
        "status": 400,
        "detail": expected,
        "code": "wrong-type",
        "index": 0,
    }


def test_the_second_of_one_id_in_a_request_is_rejected():
    accepted, rejected = check().batch([text(), text(message="other")], "acme", ())
    assert (len(accepted), rejected[0].index, rejected[0].code) == (1, 1, "repeated-event-id")


@pytest.mark.parametrize(
    ("at", "code"),
    [
        ("", "wrong-type"),
        ("2026-05-01", "wrong-type"),
        ("0001-01-01T00:00:00+05:00", "out-of-range"),
    ],
)
def test_every_time_is_a_time_though_it_is_not_the_event_time(at, code):
    assert only(text(at=at), Topic("untimed", event=Occurrence)) == code


class Anonymous:
    event_id: str
    at: datetime
    message: str


DERIVING = Topic("derived", event=Anonymous, event_id="event_id", derive_event_id=True)


@pytest.mark.parametrize(
    "event", [text(event_id=...), b'{"at":"2026-05-01T11:00:00Z","message":"m"}']
)
def test_a_missing_id_is_made_of_the_bytes_and_the_account(event):
    first, again = only(event, DERIVING), only(event, DERIVING)
    assert first == again
    assert uuid.UUID(first.event_id).version == 8
    assert json.loads(first.value) == {"event_id": first.event_id} | json.loads(event)
    assert only(event, DERIVING, account="other").event_id != first.event_id
    assert first.event_id == derived_id("derived", "acme", event)


def test_an_id_that_is_there_is_kept_where_ids_are_derived():
    assert only(text(), DERIVING).value == text()
    assert only(text(event_id=""), DERIVING) == "bad-event-id"
    assert only(text(event_id=None), DERIVING) == "wrong-type"
    assert only(b"{}", DERIVING) == "missing-field"


@pytest.mark.parametrize(("message", "key"), [("m", b"m"), ("\u00e9", "\u00e9".encode())])
def test_a_declared_key_takes_the_place_of_the_account(message, key):
    topic = Topic("keyed", event=Occurrence, key="message")
    assert only(text(message=message), topic).key == key


def test_a_strategy_of_the_topic_places_the_event():
    hour = timedelta(hours=1)
    by_key = Topic("t", event=Occurrence, partitions=8)
    assert only(text(), by_key).partition == -1
    sharded = Topic("t", event=Occurrence, partitions=8, partitioning=ByShard("message", {"m": 5}))
    assert only(text(message="m"), sharded).partition == 5
    windowed = ByHash(("message",), hour)
    topic = Topic("t", event=Occurrence, event_time="at", partitions=8, partitioning=windowed)
    expected = partition_of(windowed, 8)({"message": "hello"}, "", NOW - hour)
    assert only(text(), topic).partition == expected


def test_a_key_that_is_no_key_is_rejected():
    topic = Topic("keyed", event=Occurrence, key="message")
    assert only(text(message=""), topic) == "bad-key"
    assert only(text(message="x" * 1025), topic) == "bad-key"
    nullable = Topic("keyed", event=Occurrence, key="count")
    assert only(text(), nullable) == "bad-key"
    assert only(text(count=7), nullable).key == b"7"


@pytest.mark.parametrize(
    ("at", "good"),
    [
        (NOW, True),
        (NOW + timedelta(minutes=5), True),
        (NOW + timedelta(minutes=5, seconds=1), False),
        (datetime(2020, 1, 1, tzinfo=UTC), True),
        (datetime(2019, 12, 31, tzinfo=UTC), False),
    ],
)
def test_a_topic_sets_the_bounds_of_its_event_time(at, good):
    topic = Topic(
        "ticks",
        event=Tick,
        event_time="at",
        earliest_event_time=datetime(2020, 1, 1, tzinfo=UTC),
        latest_ahead=timedelta(minutes=5),
    )
    event = json.dumps({"at": int(at.timestamp() * 1000), "n": 1}).encode()
    assert (only(event, topic) == "event-time-out-of-bounds") is not good


def test_an_event_must_fit_into_a_message_of_its_topic():
    topic = Topic("small", event=Occurrence, config={"max.message.bytes": "2000"})
    _, (problem,) = check(topic).batch([text(message="x" * 1900)], "acme", ())
    assert (problem.code, problem.status.value) == ("event-too-large", 413)
    assert only(text(message="x" * 500), topic).value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='ab":\\ '), inner, max_size=3)
    ),
)


@given(
    st.lists(st.tuples(st.text(alphabet='ab":\\ '), JSON), max_size=5),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :")]),
)
def test_a_repeated_key_is_found_and_nothing_else(pairs, separators):
    comma, colon = separators
    members = (json.dumps(name) + colon + json.dumps(value) for name, value in pairs)
    _, why = JsonLimitsCheck(LIMITS)(("{" + comma.join(members) + "}").encode())
    names = [name for name, _ in pairs]
    nul = "\\u0000" in json.dumps(pairs)
    assert (why is not None and why[0] == "repeated-key") == (len(set(names)) < len(names)) or nul


@given(st.binary(max_size=80))
def test_any_bytes_get_a_verdict(event):
    events = [event, b"{" + event + b"}", b'{"a":"' + event + b'"}']
    accepted, rejected = check().batch(events, "a", ())
    assert accepted == []
    assert len(rejected) == 3
    msgspec.json.encode([problem.document() for problem in rejected])


SMALL = Topic("small", event=Occurrence, key="message", config={"max.message.bytes": "4096"})
OWNER = (("account", b"a" * 256), ("project", b"p" * 256))


@pytest.mark.parametrize("key_bytes", [1, 1024])
@pytest.mark.parametrize("headers", [(), OWNER])
def test_key_and_headers_count_towards_the_size_of_an_event(key_bytes, headers):
    owner = sum(len(name) + len(value) + 10 for name, value in headers)
    most = 4096 - 128 - key_bytes - owner
    empty = len(text(message="k" * key_bytes, pad=""))
    fits = text(message="k" * key_bytes, pad="x" * (most - empty))
    over = text(message="k" * key_bytes, pad="x" * (most - empty + 1))
    accepted, (problem,) = check(SMALL).batch([fits, over], "acme", headers)
    assert [event.value for event in accepted] == [fits]
    assert (problem.code, problem.status.value, problem.index) == ("event-too-large", 413, 1)


def test_a_derived_id_counts_towards_the_size_of_an_event():
    topic = Topic(
        "small",
        event=Occurrence,
        event_id="event_id",
        derive_event_id=True,
        config={"max.message.bytes": "4096"},
    )
    empty = len(text(event_id=..., pad=""))
    pad = 4096 - 128 - 4 - empty
    assert only(text(event_id=..., pad="x" * pad), topic) == "event-too-large"
    assert only(text(event_id=..., pad="x" * (pad - 51)), topic).event_id


def test_a_topic_may_be_without_a_latest_time():
    topic = Topic(
        "any-time",
        event=Occurrence,
        event_id="event_id",
        event_time="at",
        latest_ahead=timedelta.max,
    )
    late = text(at="9999-12-31T23:59:59Z")
    assert only(late, topic).value == late
