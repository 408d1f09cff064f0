"""Texts of envelopes to texts of events."""

import contextlib
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.events.envelopes import splitter_of, wrapped
from headrace.events.parsing.splitting import UnsplittableError
from headrace.model import ArrayEnvelope, LinesEnvelope, ObjectEnvelope

OBJECT = ObjectEnvelope(
    events="payload.events", copied={"account": "account", "host": "agent.host"}
)
FORMS = [ArrayEnvelope(), LinesEnvelope(), ObjectEnvelope(), OBJECT]
EVENTS = st.dictionaries(
    st.sampled_from(["a", "account", "host", "é"]),
    st.none() | st.integers() | st.text() | st.lists(st.integers()),
)


def split(text, envelope):
    return splitter_of(envelope)(text)


def refusal(text, envelope):
    with pytest.raises(UnsplittableError) as caught:
        split(text, envelope)
    return caught.value.reason


@pytest.mark.parametrize(
    ("envelope", "text"),
    [
        (ArrayEnvelope(), b' [ {"n": 1}, {"n": [2]} ] \n'),
        (LinesEnvelope(), b'{"n": 1}\r\n\n {"n": [2]} \n'),
        (ObjectEnvelope(), b'{"x": {"events": 1}, "events": [{"n": 1}, {"n": [2]}]}'),
        (OBJECT, b' {"payload": {"y": [], "events": [{"n": 1}, {"n": [2]}]}}'),
    ],
)
def test_events_come_in_their_order_with_their_own_bytes(envelope, text):
    assert split(text, envelope) == [b'{"n": 1}', b'{"n": [2]}']


@pytest.mark.parametrize(
    ("envelope", "text"),
    [
        (ArrayEnvelope(), b" [ ]"),
        (LinesEnvelope(), b" \n\n"),
        (LinesEnvelope(), b""),
        (ObjectEnvelope(), b'{"events": []}'),
    ],
)
def test_an_envelope_may_be_without_events(envelope, text):
    assert split(text, envelope) == []


@pytest.mark.parametrize("bad", ["NaN", '"\\ud800"', "1e999", "9" * 5000, "-Infinity"])
@pytest.mark.parametrize(
    ("envelope", "text"),
    [
        (ArrayEnvelope(), '[{"a": 1}, {"b": %s}, {"c": 3}]'),
        (LinesEnvelope(), '{"a": 1}\n{"b": %s}\n{"c": 3}'),
        (ObjectEnvelope(), '{ "x" : {}, "events" : [{"a": 1}, {"b": %s}, {"c": 3}] , "y": null}'),
        (
            ObjectEnvelope(events="p.events"),
            '{"e": {}, "p": {"events": [{"a": 1}, {"b": %s}, {"c": 3}]}}',
        ),
    ],
)
def test_a_bad_event_leaves_the_others_in_place(bad, envelope, text):
    events = [b'{"a": 1}', f'{{"b": {bad}}}'.encode(), b'{"c": 3}']
    assert split((text % bad).encode(), envelope) == events


def test_copied_fields_stand_before_those_of_the_event():
    text = (
        b'{"account": 7, "agent": {"host": "h"}, '
        b'"payload": {"events": [{"n": 1}, { }, {}, 5, {"host": "own"}]}}'
    )
    assert split(text, OBJECT) == [
        b'{"account":7,"host":"h","n": 1}',
        b'{"account":7,"host":"h" }',
        b'{"account":7,"host":"h"}',
        b"5",
        b'{"account":7,"host":"h","host": "own"}',
    ]


@pytest.mark.parametrize(
    "agent", [b"", b'"agent": {}, ', b'"agent": {"port": 1}, ', b'"agent": {"NaN": NaN}, ']
)
def test_what_the_object_lacks_is_not_copied(agent):
    text = b'{"account": 7, ' + agent + b'"payload": {"events": [{"n": 1}]}}'
    assert split(text, OBJECT) == [b'{"account":7,"n": 1}']


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b'{"agent": {"host": "a"}, "agent": {"x": 1}, "payload": {"events": [%s]}}', [b'{"n":1}']),
        (
            b'{"agent": {"host": "a"}, "agent": {"host": "b"}, "payload": {"events": [%s]}}',
            [b'{"host":"b","n":1}'],
        ),
        (
            b'{"payload": {"events": [5]}, "agent": {"host": "a"}, "payload": {"events": [%s]}}',
            [b'{"host":"a","n":1}'],
        ),
    ],
)
@pytest.mark.parametrize("bad", [b"", b',{"n":NaN}'])
def test_the_last_object_of_a_name_counts_alone(text, events, bad):
    assert split(text % (b'{"n":1}' + bad), OBJECT)[:1] == events


@pytest.mark.parametrize("number", [b"1", b"NaN"])
def test_events_of_an_object_that_is_given_again_are_missing(number):
    text = b'{"payload": {"events": [{"n": %s}]}, "payload": {"other": 1}}' % number
    assert refusal(text, OBJECT) == "missing-events"


def members(names, values):
    """Members of an object, whose names may be repeated, each behind a comma."""
    member = st.tuples(st.sampled_from(names), values).map(lambda pair: f',"{pair[0]}":{pair[1]}')
    return st.lists(member, max_size=4).map("".join)


SCALARS = st.sampled_from(["1", "{}", '"\\ud83d\\ude00"', '"\\\\ud800"', '"NaN"', '"[ ]"'])
OBJECTS = members(["host", "events"], SCALARS.map("[{}]".format)).map(
    lambda text: f"{{{text[1:]}}}"
)


@given(
    text=members(["payload", "agent", "agent"], OBJECTS | st.just("1")),
    bad=st.sampled_from(["NaN", "-Infinity", '"\\ude00"', '"\\\\\\ud83d"']),
)
def test_a_bad_field_leaves_the_meaning_of_the_others(text, bad):
    def outcome(text):
        try:
            return split(text.encode(), OBJECT)
        except UnsplittableError as error:
            return error.reason

    text = f'{{"payload":{{"events":[{{"n":1}}]}}{text}}}'
    assert outcome(f'{text[:-1]},"bad":{bad}}}') == outcome(text)


@pytest.mark.parametrize("name", ["NaN", "maxInfinity", "[ ]", "é", "\U0001f600"])
@pytest.mark.parametrize("number", ["1", "NaN"])
def test_a_field_of_any_name_is_copied(name, number):
    text = f'{{{json.dumps(name)}: "a", "events": [{{"n": {number}}}]}}'
    [event] = split(text.encode(), ObjectEnvelope(copied={"copied": name}))
    assert event == f'{{"copied":"a","n": {number}}}'.encode()


@given(events=st.lists(EVENTS, max_size=5), account=st.text(), host=st.text())
def test_copied_fields_are_those_of_the_event_where_it_has_none(events, account, host):
    text = json.dumps(
        {"payload": {"events": events}, "account": account, "agent": {"host": host}}
    ).encode()
    copied = {"account": account, "host": host}
    assert [json.loads(event) for event in split(text, OBJECT)] == [
        copied | event for event in events
    ]


@pytest.mark.parametrize("envelope", FORMS)
@given(event=EVENTS)
def test_a_wrapped_event_is_an_envelope_of_one(envelope, event):
    text = json.dumps(event).encode()
    assert split(wrapped(text, envelope), envelope) == [text]


@pytest.mark.parametrize(
    ("envelope", "text", "reason"),
    [
        (ArrayEnvelope(), b"", "empty"),
        (ArrayEnvelope(), b" \r\n", "empty"),
        (ArrayEnvelope(), b"{}", "not-an-array"),
        (ArrayEnvelope(), b"nothing", "not-json"),
        (ArrayEnvelope(), b'[{"n": 1}, {"n"', "not-json"),
        (ArrayEnvelope(), b"[1] [2]", "not-json"),
        (ArrayEnvelope(), b"\xef\xbb\xbf[]", "not-json"),
        (ArrayEnvelope(), b"[" * 100_000, "too-deep"),
        (ObjectEnvelope(), b"", "empty"),
        (ObjectEnvelope(), b"[]", "not-an-object"),
        (ObjectEnvelope(), b"null", "not-an-object"),
        (ObjectEnvelope(), b"{}", "missing-events"),
        (ObjectEnvelope(), b'{"event": []}', "missing-events"),
        (ObjectEnvelope(), b'{"NaN": NaN}', "missing-events"),
        (ObjectEnvelope(), b'{"events": null}', "not-an-array"),
        (ObjectEnvelope(), b'{"events": {}}', "not-an-array"),
        (ObjectEnvelope(), b'{"events": []} {}', "not-json"),
        (ObjectEnvelope(), b'{"events": [NaN]', "not-json"),
        (ObjectEnvelope(), b'{"events" []}', "not-json"),
        (ObjectEnvelope(), b'{"events": [] "a": 1}', "not-json"),
        (ObjectEnvelope(), b"{events: []}", "not-json"),
        (ObjectEnvelope(), b'{"events": [], }', "not-json"),
        (ObjectEnvelope(), b'{"a": ' + b"[" * 100_000, "too-deep"),
        (OBJECT, b'{"payload": []}', "not-an-object"),
        (OBJECT, b'{"payload": [], "a": NaN}', "not-an-object"),
        (OBJECT, b'{"payload": {"events": []}, "agent": "h"}', "not-an-object"),
        (ArrayEnvelope(max_events=2), b"[1, 2, 3]", "too-many-events"),
        (ArrayEnvelope(max_events=2), b"[1, 2, NaN]", "too-many-events"),
        (LinesEnvelope(max_events=2), b"1\n2\n\n3", "too-many-events"),
        (ObjectEnvelope(max_events=2), b'{"events": [1, 2, 3]}', "too-many-events"),
        (
            ObjectEnvelope(copied={"a": "a"}, max_bytes=99),
            b'{"a": "aaaaaaaaaa", "events": [{}, {}, {}, {}, {}, {}, {}, {}]}',
            "envelope-too-large",
        ),
    ],
)
def test_an_envelope_that_can_not_be_divided_has_a_reason(envelope, text, reason):
    assert refusal(text, envelope) == reason


@pytest.mark.parametrize("envelope", FORMS)
@given(text=st.binary(max_size=60) | st.text(alphabet='{}[]",:aevnts1N \\\n').map(str.encode))
def test_no_text_is_an_error_of_another_kind(envelope, text):
    with contextlib.suppress(UnsplittableError):
        assert all(isinstance(event, bytes) for event in split(text, envelope))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[" + b"0," * 4_000_000 + b"0]", "too-many-events"),
        (b"[NaN,[" + b'{"":0},' * 500_000 + b"{}],0,0]", "too-many-events"),
        (b"[NaN,[" + b"NaN," * 500_000 + b"NaN],0,0]", "too-many-events"),
        (b'[["' + rb"\ud800" * 500_000 + b'"],0,0,0]', "too-many-events"),
        (b"[NaN," + b'{"":' * 500_000 + b"0]", "too-deep"),
        (b'[NaN,"' + b"\\" * 2_000_001 + b'"]', "not-json"),
    ],
    ids=["elements", "objects", "NaN", "surrogates", "depth", "backslashes"],
)
def test_a_bomb_takes_little_memory(text, reason):
    tracemalloc.start()
    try:
        assert refusal(text, ArrayEnvelope(max_events=3)) == reason
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(text)
