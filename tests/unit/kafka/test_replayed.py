"""Replayed records: whom each is for, and where they can be."""

from __future__ import annotations

import pytest

from headrace.kafka.replayed import Window, addressees, is_for


def test_a_record_is_for_those_that_its_header_names():
    headers = [("trace", b"1"), addressees(["b", "a", "b"])]
    assert headers[1] == ("headrace-replay-for", b"a,b")
    assert [is_for(name, headers) for name in ("a", "b", "a,b", "c", "")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_record_without_the_header_is_for_all():
    assert is_for("a", [])
    assert is_for("a", [("headrace-replays", b"1")])


@pytest.mark.parametrize(
    ("window", "overlapping"),
    [
        (Window(5, 8), [(0, 6), (5, 6), (7, 9), (0, 9)]),
        (Window(5, None), [(0, 6), (5, 6), (7, 9), (0, 9), (8, 9)]),
        (Window(5, 5), []),
    ],
)
def test_a_window_holds_its_first_and_not_its_end(window, overlapping):
    ranges = [(0, 5), (0, 6), (5, 5), (5, 6), (7, 9), (0, 9), (8, 9)]
    found = [one for one in ranges if window.overlaps(*one)]
    assert sorted(found) == sorted(overlapping)
