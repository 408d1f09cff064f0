"""Results as their topic has them, and records that are none."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.queries.expected_results import result

from headrace.queries.records.result import decode_result, result_of

RESULT = result(minute=1)
VALUE = msgspec.json.encode(RESULT)


def changed(**members):
    return msgspec.json.encode(msgspec.to_builtins(RESULT) | members)


def test_what_is_written_is_read():
    assert decode_result(VALUE) == RESULT
    assert decode_result(changed(registered="2026-05-01T10:00:00.250000Z"))


@pytest.mark.parametrize("member", ["registered", "begin", "end"])
@pytest.mark.parametrize("time", ["yesterday", "", "2026-05-01T10:00:00", "2026-13-01T10:00:00Z"])
def test_a_time_that_is_none_or_has_no_zone_is_named(member, time):
    with pytest.raises(ValueError, match=f"{member} is '{time}', expected a time with a time zone"):
        decode_result(changed(**{member: time}))


def test_other_records_have_no_result_of_a_query(caplog):
    assert result_of("a", b"a", VALUE) == RESULT
    assert result_of("a", b"b", VALUE) is None
    assert result_of("a", b"a", None) is None
    assert caplog.text == ""
    assert result_of("a", b"a", changed(end="soon")) is None
    assert "A record of query a is no result: end is 'soon'" in caplog.text
