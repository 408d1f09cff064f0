"""How far a table is complete: no partition that is behind may have events from before."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.pipelines.complete_until import complete_until

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("ends", "clocks", "seconds"),
    [
        ({0: 10, 1: 10}, {0: 500 * SECOND, 1: 300 * SECOND}, 440),
        ({0: 10, 1: 11}, {0: 500 * SECOND, 1: 300 * SECOND}, 240),
        ({0: 11, 1: 10}, {0: 500 * SECOND, 1: 300 * SECOND}, 440),
        ({0: 10}, {0: 500 * SECOND, 1: 300 * SECOND}, 240),
        ({}, {0: 500 * SECOND, 1: 300 * SECOND}, 240),
        ({0: 10, 1: 10}, {0: 500 * SECOND}, 440),
        ({0: 10, 1: 11}, {0: 500 * SECOND}, None),
        ({0: 10, 1: 10}, {}, None),
    ],
)
def test_it_is_the_clock_of_the_partition_that_is_furthest_behind(ends, clocks, seconds):
    expected = None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    allowed = timedelta(seconds=60)
    assert complete_until({0: 10, 1: 10}, ends, clocks, allowed) == expected
