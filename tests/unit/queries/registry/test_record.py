"""The record of a registered query: written, read, and what is wrong with one that is none."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queries.registry.record import RegisteredQuery, decode_query, encode_query

NOW = datetime(2026, 5, 1, 10, 0, 0, 123_000, UTC)
QUERY = RegisteredQuery(
    "clicks-1", "SELECT count(*)\nFROM clicks", "clicks", 3, NOW, NOW, NOW + timedelta(hours=1)
)
MEMBERS = json.loads(encode_query(QUERY)[1])


def test_a_record_is_the_id_and_json_with_times_to_the_millisecond():
    key, value = encode_query(QUERY)
    assert key == b"clicks-1"
    assert json.loads(value) == {
        "id": "clicks-1",
        "text": "SELECT count(*)\nFROM clicks",
        "topic": "clicks",
        "revision": 3,
        "registered_at": "2026-05-01T10:00:00.123Z",
        "updated_at": "2026-05-01T10:00:00.123Z",
        "expires_at": "2026-05-01T11:00:00.123Z",
    }


@pytest.mark.parametrize("query", [QUERY, replace(QUERY, expires_at=None)])
def test_what_is_written_is_read(query):
    assert decode_query(*encode_query(query)) == query


def test_constants_keep_their_types_and_their_order():
    constants = (("PL", 1, 1.0, True), (), (("b", "a"), (), (2**63 - 1, -(2**63))), (1e22, -1e-7))
    query = replace(QUERY, shape="00112233aabbccdd", constants=constants)
    key, value = encode_query(query)
    assert json.loads(value)["shape"] == "00112233aabbccdd"
    assert json.loads(value)["constants"][2] == [["b", "a"], [], [2**63 - 1, -(2**63)]]
    assert repr(decode_query(key, value)) == repr(query)


def test_members_of_a_later_version_are_left_out():
    value = json.dumps(MEMBERS | {"owner": "ads", "offset": 7})
    assert decode_query(b"clicks-1", value.encode()) == QUERY


def test_a_query_is_live_until_it_expires():
    assert QUERY.is_live(NOW + timedelta(minutes=59))
    assert not QUERY.is_live(NOW + timedelta(hours=1))
    assert replace(QUERY, expires_at=None).is_live(datetime.max.replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"clicks-1", b"", "truncated"),
        (b"clicks-1", b"[]", "Expected `object`, got `array`"),
        (b"clicks-1", b"{}", "missing required field `id`"),
        (b"clicks-1", {"revision": 0}, "$.revision"),
        (b"clicks-1", {"text": None}, "$.text"),
        (b"clicks-1", {"updated_at": "yesterday"}, "$.updated_at"),
        (b"clicks-1", {"expires_at": "2026-05-01T10:00:00"}, "$.expires_at"),
        (b"clicks-1", {"shape": 7}, "$.shape"),
        (b"clicks-1", {"constants": {}}, "$.constants"),
        (b"clicks-1", {"constants": [["PL", None]]}, "$.constants[0][1]"),
        (b"clicks-1", {"constants": [[[["PL"]]]]}, "$.constants[0][0][0]"),
        (b"a b", {"id": "a b"}, "id is 'a b'; possible are 1 to 100 letters"),
        (b"clicks-2", {}, "the key of the record is b'clicks-2', and id is 'clicks-1'"),
        (None, {}, "the key of the record is None"),
        (b"clicks-1", b'{"x": ' + b"[" * 100_000, "nested too deep"),
    ],
)
def test_the_reason_names_what_is_wrong(key, value, reason):
    content = value if isinstance(value, bytes) else json.dumps(MEMBERS | value).encode()
    with pytest.raises(ValueError, match=r".+") as raised:
        decode_query(key, content)
    assert reason in str(raised.value)


@given(st.one_of(st.none(), st.binary()), st.binary())
def test_any_other_bytes_are_a_value_error(key, value):
    with pytest.raises(ValueError, match=r".+"):
        decode_query(key, value)
