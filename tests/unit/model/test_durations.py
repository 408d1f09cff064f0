"""Durations are whole, whatever a float of seconds makes of them."""

from datetime import timedelta

import pytest

from headrace.model.durations import microseconds, milliseconds


@pytest.mark.parametrize("number", [0, 1, 249, 978, 10**16 + 251])
def test_no_unit_is_lost(number):
    assert microseconds(timedelta(microseconds=number)) == number
    assert milliseconds(timedelta(milliseconds=number // 1000)) == number // 1000
