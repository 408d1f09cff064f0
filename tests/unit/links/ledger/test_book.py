"""When the two ends of a link balance."""

import pytest

from headrace.ledger.sums import Fate, Sums
from headrace.ledger.windows import WindowState
from headrace.links.ledger.book import LinkCount, link_windows
from headrace.links.ledger.records import LinkKey

SECONDS = 60
LATER = 1_000_000.0
OPEN, CLOSING, BALANCED, UNBALANCED, UNKNOWN = WindowState


def sums(**numbers):
    """Of partition 0 and the first window: how many records are of each fate, by its name."""
    return {
        LinkKey(0, 0, Fate[name.upper()]): Sums(number, 10 * number, 7 * number)
        for name, number in numbers.items()
    }


def window(source, target, now=LATER, **count):
    [made] = link_windows(LinkCount({0: "t/0"}, source, target, **count), SECONDS, now)
    return made


@pytest.mark.parametrize(
    ("source", "target", "state"),
    [
        ({"out": 3}, {"out": 3}, BALANCED),
        ({"out": 3, "filtered": 2, "left_out": 1}, {"out": 3}, BALANCED),
        ({"out": 3}, {"out": 2, "late": 1}, BALANCED),
        ({"out": 3, "waiting": 2}, {"out": 3}, CLOSING),
        ({"out": 3, "waiting": 2}, {"out": 3, "waiting": 2}, CLOSING),
        ({"waiting": 2}, {}, CLOSING),
        ({}, {"out": 1}, UNBALANCED),
        ({"out": 3, "waiting": 2}, {"out": 2, "waiting": 2}, UNBALANCED),
        ({"out": 3, "waiting": 2}, {"out": 3, "waiting": 3}, UNBALANCED),
    ],
)
def test_what_the_position_says_is_done_must_be_there(source, target, state):
    assert window(sums(**source), sums(**target), is_exact=True).state is state


@pytest.mark.parametrize(
    ("waiting", "there", "number"), [(2, 3, None), (2, 5, None), (2, 2, 1), (2, 6, -1), (0, 4, -1)]
)
def test_of_a_merger_those_that_wait_may_be_there(waiting, there, number):
    made = window(sums(out=3, waiting=waiting), sums(out=there))
    assert [each.number for each in made.differences] == ([] if number is None else [number])


def test_as_many_records_with_another_sum_of_hashes_are_a_difference():
    other = {LinkKey(0, 0, Fate.OUT): Sums(3, 30, 22)}
    [difference] = window(sums(out=3), other, is_exact=True).differences
    assert (difference.number, difference.ids_differ, difference.partition) == (0, True, "t/0")


def test_a_window_is_open_until_it_is_over_and_unknown_where_a_partition_is():
    ends = (sums(out=1), sums(out=1))
    assert window(*ends, now=59.0).state is OPEN
    assert window(*ends, now=60.0).state is BALANCED
    made = window(*ends, unknown=("no broker leads it",))
    assert (made.state, made.unknown) == (UNKNOWN, "no broker leads it")


def test_records_without_a_time_come_first():
    source = {LinkKey(0, start, Fate.OUT): Sums(1, 1, 1) for start in (60, None, 0)}
    made = link_windows(LinkCount({0: "t/0"}, source, source), SECONDS, LATER)
    assert [each.start and each.start.timestamp() for each in made] == [None, 0, 60]
