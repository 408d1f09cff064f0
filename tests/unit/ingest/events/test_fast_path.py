"""What is accepted at first sight is what the closer look would accept, and comes often."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.ingest.events.fast_path import FastPathReader
from headrace.ingest.events.json_limits import JsonLimits
from headrace.ingest.events.validation import Accepted, EventCheck
from headrace.model import EpochMillis, Topic

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LIMITS = JsonLimits(depth=64, keys=1000, string_bytes=65_536)


class Everything:
    event_id: str
    at: datetime
    seen: datetime | None
    message: str | None
    count: int
    weight: float
    is_shown: bool | None
    ended: EpochMillis


TOPICS = [
    Topic("a", event=Everything, event_id="event_id", event_time="at"),
    Topic("b", event=Everything, event_time="ended", key="count"),
    Topic("c", event=Everything, key="message"),
    Topic("d", event=Everything, key="weight"),
    Topic("e", event=Everything, key="seen", event_id="event_id", derive_event_id=True),
]
MAX_BYTES = 1_000_000
CHECKS = [EventCheck(topic, LIMITS, NOW.timestamp) for topic in TOPICS]
for check in CHECKS:
    check.batch([], "acme", ())  # looks at the clock
GOOD = {
    "event_id": '"e-1"',
    "at": '"2026-05-01T11:00:00Z"',
    "seen": "null",
    "message": '"hello"',
    "count": "3",
    "weight": "0.5",
    "is_shown": "true",
    "ended": "1777633200000",
}
TIMES = [
    "2026-05-01T11:00:00Z",
    "2026-05-01 11:00:00.123456789+02:00",
    "2026-05-01t11:00:00z",
    "2026-05-01T11:00:00+0200",
    "2026-05-01T11:00:00+02",
    "2026-05-01T11:00:00",
    "2026-05-01T11:00:60Z",
    "2026-05-01T24:00:00Z",
    "2026-05-01T11:00Z",
    "2026-05-01",
    "20260501T110000Z",
    "2026-W18-5T11:00:00Z",
    "2026-05-01T11:00:00,5Z",
    "2026-05-01T11:00:00.Z",
    "2026-05-01T11:00:00+24:00",
    "2026-05-01T11:00:00-00:00",
    "2026-05-01T11:00:00+23:60",
    "0001-01-01T00:00:00+01:00",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59-01:00",
    "0000-01-01T00:00:00Z",
    "2026-02-29T00:00:00Z",
    " 2026-05-01T11:00:00Z",
    "٢026-05-01T11:00:00Z",
    "1777633200",
]
numbers = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["-0", "1e400", "1E5", "5.0", "01", "NaN", str(2**63), str(-(2**63)), "9" * 30]
    ),
)
texts = st.one_of(
    st.text(max_size=8).map(json.dumps),
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(TIMES).map(json.dumps),
    st.sampled_from(['"\\u0000"', '"\\ud800"', '"a\\"b"', '"a b"', '""', '"\ud800"', '"\0"']),
)
values = st.one_of(
    numbers, texts, st.sampled_from(["true", "null", "[]", "{}", '{"a":{"b":[1,"c"]}}', ""])
)
spaces = st.sampled_from(["", " ", "\t", "\n", "\r\n "])
members = st.tuples(st.sampled_from([*GOOD, "other", "event\\u005fid", ""]), spaces, spaces, values)


def document(changes, order=None):
    """An event's text: the good one with members replaced or repeated; in any order."""
    lines = {name: f'"{name}":{value}' for name, value in GOOD.items()}
    again = []
    for name, before, after, value in changes:
        line = f'{before}"{name}"{after}:{before}{value}'
        if order is None or name in again:
            lines[name] = line
        else:
            again.append(name)
            lines[f"{name}#"] = line
    parts = list(lines.values())
    if order is not None:
        order.shuffle(parts)
    return ("{" + ",".join(parts) + "}").encode("utf-8", "surrogatepass")


@given(
    st.one_of(
        st.lists(members, max_size=2).map(document),
        st.tuples(st.lists(members, max_size=2), st.randoms()).map(lambda drawn: document(*drawn)),
    ),
    st.sampled_from(CHECKS),
)
@example(document([]), CHECKS[0])
def test_first_sight_accepts_nothing_that_the_closer_look_does_not(text, check):
    accepted = check._at_first_sight(text, "acme")
    assert accepted in (None, check._verdict(text, "acme", MAX_BYTES))


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("field", ["at", "seen"])
def test_a_time_of_first_sight_is_one_of_the_closer_look(field, time):
    text = document([(field, "", "", json.dumps(time, ensure_ascii=False))])
    for check in CHECKS:
        assert check._at_first_sight(text, "acme") in (
            None,
            check._verdict(text, "acme", MAX_BYTES),
        )


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [("message", "", " ", '"caf\u00e9"')],
        [("message", "\n  ", "", "null"), ("seen", "", "", '"2026-05-01T11:00:00+02:00"')],
    ],
)
def test_the_usual_event_needs_no_closer_look(changes):
    check = CHECKS[0]
    assert isinstance(check._at_first_sight(document(changes), "acme"), Accepted)


def test_an_optional_field_that_is_absent_needs_none_either():
    text = b'{"event_id":"e","at":"2026-05-01T11:00:00Z","count":1,"weight":2,"ended":5}'
    assert isinstance(CHECKS[0]._at_first_sight(text, "acme"), Accepted)


@pytest.mark.parametrize(
    "text",
    [
        document([("other", "", "", "1")]),
        document([("message", "", "", '"a\\\\b"')]),
        document([])[:-1] + b',"count":3}',
        document([]) + b"{}",
    ],
)
def test_anything_else_does(text):
    assert FastPathReader(TOPICS[0].schema, LIMITS)(text) is None


def test_limits_of_structure_hold():
    tight = JsonLimits(depth=64, keys=7, string_bytes=65_536)
    assert FastPathReader(TOPICS[0].schema, tight)(document([])) is None
    tight = JsonLimits(depth=64, keys=8, string_bytes=len(document([])) - 1)
    assert FastPathReader(TOPICS[0].schema, tight)(document([])) is None
