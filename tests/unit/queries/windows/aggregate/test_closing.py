"""When windows end, and which have ended without being open, for each way to end them."""

from __future__ import annotations

import pytest

from headrace.queries.language import parse_query
from headrace.queries.windows.aggregate.closing import closing_of

END, CHANGED = 60_000_000, 50_000_000
SECOND, HOUR = 1_000_000, 3_600_000_000


def closing(clauses):
    return closing_of(parse_query(f"SELECT count(*) FROM views {clauses}"))


@pytest.mark.parametrize(
    ("clauses", "ordered_by", "due_us", "result_us"),
    [
        ("ALLOWED LATENESS 5 seconds", "views", END + 5 * SECOND, END + 5 * SECOND),
        ("CLOSE BY CLOCK 7 seconds", "", END + 7 * SECOND, END + 7 * SECOND),
        ("CLOSE BY QUIET TIME 9 seconds", "", CHANGED + 9 * SECOND, HOUR),
    ],
)
def test_a_window_ends_by_its_clock(clauses, ordered_by, due_us, result_us):
    way = closing(clauses)
    assert way.ordered_by == ordered_by
    assert way.due_us(END, CHANGED) == due_us
    assert way.result_us(due_us, HOUR) == result_us


@pytest.mark.parametrize(
    ("clauses", "event_us", "planned_us", "has_ended"),
    [
        ("", None, 2 * HOUR, False),
        ("", END - 1, 2 * HOUR, False),
        ("", END, None, True),
        ("CLOSE BY CLOCK 0 seconds", END, None, False),
        ("CLOSE BY CLOCK 0 seconds", END, END + HOUR - 1, False),
        ("CLOSE BY CLOCK 0 seconds", None, END + HOUR, True),
        ("CLOSE BY QUIET TIME 1 second", END, END + HOUR, False),
    ],
)
def test_a_window_has_ended(clauses, event_us, planned_us, has_ended):
    assert closing(clauses).has_ended(END, event_us, planned_us) is has_ended


def test_event_time_alone_says_which_windows_have_ended():
    clauses = ("", "CLOSE BY CLOCK 1 second", "CLOSE BY QUIET TIME 1 second")
    assert [closing(each).needs_markers for each in clauses] == [False, True, True]
