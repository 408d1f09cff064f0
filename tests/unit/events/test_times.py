"""Times as numbers, and those that mean another time on each machine."""

from datetime import UTC, datetime

import pytest

from headrace.events.times import milliseconds_since_1970
from headrace.testing import WorkerBench
from headrace.topics.tail import TailOptions
from headrace.workers import WorkerTask

AT = datetime(2026, 11, 21, tzinfo=UTC)


class Idle(WorkerTask):
    async def process(self, record):
        """Nothing comes."""


@pytest.mark.parametrize(
    ("microsecond", "milliseconds"), [(0, 0), (1, 1), (1000, 1), (1001, 2), (123_000, 123)]
)
def test_a_record_of_the_millisecond_before_is_older(microsecond, milliseconds):
    at = AT.replace(microsecond=microsecond)
    assert milliseconds_since_1970(at) == int(AT.timestamp()) * 1000 + milliseconds


@pytest.mark.parametrize(
    "take",
    [lambda time: TailOptions(start=time), lambda time: WorkerBench(Idle, now=time).close()],
)
def test_a_time_without_a_zone_is_refused(take):
    take(AT)
    with pytest.raises(ValueError, match="2026-11-21T00:00:00, a time without a zone"):
        take(AT.replace(tzinfo=None))
