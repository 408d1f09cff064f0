"""Waits that end in time, and those that do not."""

import asyncio

from tests.waiting import LIMIT_SECONDS

from headrace.ingest.http.deadlines import Deadlines


def test_a_wait_that_takes_too_long_is_ended_once_and_another_is_not():
    async def drill():
        deadlines, short, long = Deadlines(), asyncio.Event(), asyncio.Event()
        deadlines.begin("long", 3600, long.set)
        deadlines.begin("short", 0, short.set)
        await asyncio.wait_for(short.wait(), LIMIT_SECONDS)
        assert not deadlines.end("short")
        assert deadlines.end("long")
        assert not long.is_set()

    asyncio.run(drill())


def test_a_wait_that_ended_is_left_alone_and_the_next_one_is_watched():
    async def drill():
        deadlines, first, second = Deadlines(), asyncio.Event(), asyncio.Event()
        deadlines.begin("first", 0, first.set)
        assert deadlines.end("first")
        await asyncio.sleep(0.3)
        deadlines.begin("second", 0, second.set)
        await asyncio.wait_for(second.wait(), LIMIT_SECONDS)
        assert not first.is_set()

    asyncio.run(drill())
