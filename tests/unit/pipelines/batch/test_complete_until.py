"""How far a table is complete: no partition that is behind may have events from before."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.pipelines.batch.complete_until import complete_until, event_time_reached

SECOND = 1_000_000
YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ends", "clocks", "seconds"),
    [
        ({0: 10, 1: 10}, {0: 500 * SECOND, 1: 300 * SECOND}, 500),
        ({0: 10, 1: 11}, {0: 500 * SECOND, 1: 300 * SECOND}, 300),
        ({0: 11, 1: 10}, {0: 500 * SECOND, 1: 300 * SECOND}, 500),
        ({0: 10}, {0: 500 * SECOND, 1: 300 * SECOND}, 300),
        ({}, {0: 500 * SECOND, 1: 300 * SECOND}, 300),
        ({0: 10, 1: 10}, {0: 500 * SECOND}, 500),
        ({0: 10, 1: 11}, {0: 500 * SECOND}, None),
        ({0: 10, 1: 10}, {}, None),
    ],
)
def test_it_is_the_clock_of_the_partition_that_is_furthest_behind(ends, clocks, seconds):
    reached_us = event_time_reached({0: 10, 1: 10}, ends, clocks)
    assert reached_us == (None if seconds is None else seconds * SECOND)


def test_a_table_is_complete_until_then_less_the_allowed_lateness():
    allowed = timedelta(seconds=60)
    assert complete_until(500 * SECOND, allowed) == datetime.fromtimestamp(440, UTC)


@pytest.mark.parametrize(
    ("reached_us", "allowed"),
    [
        (1_700_000_000 * SECOND, timedelta.max),
        (1_700_000_000 * SECOND, timedelta(days=365 * 2_100)),
        ((YEAR_1 - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1), timedelta(0)),
        (-62_135_596_800 * SECOND + 1, timedelta(hours=1)),
    ],
)
def test_a_table_that_takes_events_of_any_lateness_is_complete_from_the_year_1(reached_us, allowed):
    assert complete_until(reached_us, allowed) == YEAR_1
