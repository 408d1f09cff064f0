"""The transforms that headrace ships, held against the contract of transforms."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.contracts.transform import TransformCase, TransformContract
from tests.integration.flow import NOW_MS, click

from headrace import count_windows, deduplicate

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
START_MS = NOW_MS // HOUR_MS * HOUR_MS - 6 * HOUR_MS


def at(n, minutes):
    return click(n, event_time=START_MS + minutes * MINUTE_MS)


class TestDeduplicate(TransformContract):
    @pytest.fixture
    def case(self):
        return TransformCase(
            step=deduplicate(by=["event_id"], within=timedelta(minutes=30)),
            runs=[[at(0, 0), at(1, 1), at(0, 2)], [at(1, 5), at(2, 6)]],
            columns=["event_id"],
            rows={("e0",): 1, ("e1",): 1, ("e2",): 1},
            figures={"deduplicate_state_rows": 3},
            late=at(3, -60),
        )


class TestCountWindows(TransformContract):
    @pytest.fixture
    def case(self):
        start = datetime.fromtimestamp(START_MS / 1000, UTC)
        return TransformCase(
            step=count_windows(timedelta(minutes=10), ["category"], within=timedelta(0)),
            runs=[[at(0, 1), at(1, 2)], [at(3, 3), at(4, 25)]],
            columns=["window_start", "category", "count"],
            rows={(start, "c0", 2): 1, (start, "c1", 1): 1},
            figures={"count_windows_state_rows": 1},
            late=at(6, 4),
        )
