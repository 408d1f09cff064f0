"""Bodies to events."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ingest.events.splitting import is_lines, split_events
from headrace.ingest.http.problem import RefusedRequestError

NDJSON = "application/x-ndjson"


def split(body, content_type="application/json", most=1000):
    return split_events(body, most, as_lines=is_lines(content_type))


def refusal(body, content_type="application/json", most=1000):
    with pytest.raises(RefusedRequestError) as caught:
        split(body, content_type, most)
    return caught.value.problem.status.value, caught.value.problem.code


def test_an_object_is_one_event_and_no_batch():
    assert split(b' {"a": 1} \n') == ([b'{"a": 1}'], False)


def test_an_array_is_a_batch_of_its_elements():
    assert split(b'[{"a": 1}, {"a": [2]}]') == ([b'{"a": 1}', b'{"a": [2]}'], True)


def test_lines_are_a_batch_and_blank_ones_are_nothing():
    assert split(b'{"a": 1}\r\n\n  \n{"a": 2}\n', NDJSON) == (
        [b'{"a": 1}', b'{"a": 2}'],
        True,
    )


@pytest.mark.parametrize(
    "bad", ["NaN", '"\\ud800"', "1e999", "9" * 5000, "-Infinity", '{"a":1,"a":2}']
)
def test_a_bad_element_leaves_the_others_in_place(bad):
    body = f'[ {{"a": 1}} , {{"b": {bad}}},\n{{"c": 3}} ]'.encode()
    assert split(body) == ([b'{"a": 1}', f'{{"b": {bad}}}'.encode(), b'{"c": 3}'], True)


def test_bytes_that_are_not_utf8_stay_in_their_element():
    assert split(b'[{"a": "\xff"}, {"b": NaN}]') == ([b'{"a": "\xff"}', b'{"b": NaN}'], True)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "empty"),
        (b" \r\n\t", "empty"),
        (b"[]", "empty"),
        (b"[ ]", "empty"),
        (b"\xef\xbb\xbf{}", "byte-order-mark"),
        (b"[1,]", "not-json"),
        (b"[1", "not-json"),
        (b"[1] [2]", "not-json"),
        (b"[NaN 1]", "not-json"),
        (b"[" * 1_000_000, "too-deep"),
    ],
)
def test_a_body_without_events_is_refused(body, code):
    assert refusal(body) == (400, code)


@pytest.mark.parametrize(
    "content_type",
    ["text/html", "application/xml", "application/json; charset=latin-1", "multipart/form-data"],
)
def test_other_content_types_are_refused(content_type):
    assert refusal(b"{}", content_type) == (415, "unknown-content-type")


@pytest.mark.parametrize(
    "content_type",
    [
        *("", "application/json", "Application/JSON; charset=UTF-8", NDJSON),
        *("application/cloudevents+json", "application/cloudevents-batch+json; charset=UTF-8"),
    ],
)
def test_known_content_types_are_taken(content_type):
    assert split(b"{}", content_type)[0] == [b"{}"]


@pytest.mark.parametrize("body", [b"[1,1,1]", b"[NaN,1,1]", b"1\n1\n1"])
def test_a_batch_may_be_as_large_as_the_limit_and_no_larger(body):
    content_type = NDJSON if b"\n" in body else "application/json"
    assert len(split(body, content_type, most=3)[0]) == 3
    assert refusal(body, content_type, most=2) == (413, "too-many-events")


def peak_bytes(body, content_type):
    """What splitting takes at most beside the body, and the code that it is refused with."""
    split(b"[" + b"1," * 50_000 + b"1]", most=100_000)  # what is made once is made before
    tracemalloc.start()
    try:
        _, code = refusal(body, content_type)
        return code, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"[" + b"11," * 1_000_000 + b"1]", "", "too-many-events"),
        (b"[" + b'"",' * 1_000_000 + b'""]', "", "too-many-events"),
        (b"[" + b"[]," * 1_000_000 + b"x]", "", "too-many-events"),
        (b"[NaN" + b",[]" * 1_000_000 + b"]", "", "not-json"),
        (b"[NaN,[" + b"[]," * 1_000_000 + b"[]]]", "", "not-json"),
        (b"1\n" * 1_500_000, NDJSON, "too-many-events"),
        (b"\n" * 1_500_000 + b"1\n" * 1_500_000 + b"1", NDJSON, "too-many-events"),
    ],
    ids=["numbers", "texts", "wrong-end", "bad-first", "bad-first-deep", "lines", "blank-lines"],
)
def test_events_beyond_the_limit_are_not_made(body, content_type, expected):
    code, peak = peak_bytes(body, content_type)
    assert code == expected
    assert peak < 2 * len(body) + 500_000


def test_blank_lines_beyond_the_limit_are_no_events():
    body = b"\n \r\n".join([b'{"a": 1} '] * 3 + [b"\n" * 5000, b"{} "])
    assert split(body, NDJSON, most=4) == ([b'{"a": 1}'] * 3 + [b"{}"], True)
    assert refusal(body, NDJSON, most=3) == (413, "too-many-events")


def test_a_large_array_is_split_as_a_small_one():
    events = [json.dumps({"n": number, "a": ["x" * 500, None]}).encode() for number in range(400)]
    assert split(b"[ " + b" ,\n".join(events) + b" ]") == (events, True)
    assert refusal(b"[" + b",".join(events) + b"]", most=399) == (413, "too-many-events")


def test_a_large_array_with_a_bad_element_leaves_the_others_in_place():
    events = [b'{"a": NaN}', *(json.dumps({"a": "x" * 500}).encode() for _ in range(400))]
    assert split(b"[" + b",".join(events) + b"]") == (events, True)


def test_a_very_large_array_must_be_json_as_a_whole():
    events = [b'{"a": NaN}', *(json.dumps({"a": "x" * 5000}).encode() for _ in range(400))]
    assert refusal(b"[" + b",".join(events) + b"]") == (400, "not-json")
    assert len(split(b"[" + b",".join(events[1:]) + b"]")[0]) == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.lists(JSON, min_size=1, max_size=5), st.booleans())
def test_the_elements_of_any_array_are_found(values, ascii_only):
    texts = [json.dumps(value, ensure_ascii=ascii_only) for value in values]
    body = ("[" + " ,\n".join(texts) + "]").encode("utf-8", "surrogatepass")
    found, _ = split(body)
    assert found == [text.encode("utf-8", "surrogatepass") for text in texts]


@given(st.binary(max_size=60))
def test_any_bytes_give_events_or_a_refusal(body):
    for content_type in ("application/json", NDJSON):
        try:
            events, _ = split(body, content_type)
        except RefusedRequestError:
            continue
        assert events
