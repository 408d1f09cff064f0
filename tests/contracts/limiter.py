"""What every rate limiter must do: run on the mapped file and on a real Redis.

A test module subclasses ``LimiterContract`` and gives the fixtures ``clock`` and ``open_limiter``,
which is called while an event loop runs and gives a limiter on the same buckets each time.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import pytest

from headrace.ingest.limits import BucketRequest, Limiter

SLOW = 1e-3
"""Events a second: nothing to speak of comes back while a test runs."""


class Clock(Protocol):
    """The limiter's own time, in seconds."""

    def now(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


OpenLimiter = Callable[[], Limiter]


def a_bucket() -> str:
    """A name nobody else has."""
    return f"account/{uuid.uuid4().hex}/zażółć events"


def of_ten(amount: float, bucket: str, *, per_second: float = SLOW) -> BucketRequest:
    """A charge to a bucket of ten."""
    return BucketRequest(bucket, amount, per_second, 10 / per_second)


@contextlib.asynccontextmanager
async def opened(open_limiter: OpenLimiter, count: int = 1) -> AsyncIterator[list[Limiter]]:
    limiters = [open_limiter() for _ in range(count)]
    try:
        yield limiters
    finally:
        for one in limiters:
            await one.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


class LimiterContract:
    def test_a_bucket_holds_its_burst(self, open_limiter):
        async def scenario():
            bucket = a_bucket()
            async with opened(open_limiter) as (limiter,):
                waits = [await limiter.acquire([of_ten(1, bucket)]) for _ in range(12)]
            assert waits[:10] == [0.0] * 10
            assert waits[10:] == [pytest.approx(1 / SLOW, rel=0.1)] * 2

        run(scenario)

    def test_who_waits_as_long_as_told_is_admitted(self, open_limiter, clock):
        async def scenario():
            bucket, taken, began = a_bucket(), 0, clock.now()
            async with opened(open_limiter) as (limiter,):
                while taken < 20:
                    wait = await limiter.acquire([of_ten(1, bucket, per_second=20)])
                    if wait:
                        await clock.sleep(wait + 1e-4)
                        assert await limiter.acquire([of_ten(1, bucket, per_second=20)]) == 0
                    taken += 1
                    assert taken <= 20 * (clock.now() - began) + 10 + 1e-3

        run(scenario)

    def test_a_charge_is_taken_from_all_its_buckets_or_from_none(self, open_limiter):
        async def scenario():
            one, other = a_bucket(), a_bucket()
            async with opened(open_limiter) as (limiter,):
                assert await limiter.acquire([of_ten(10, one), of_ten(5, other)]) == 0
                assert await limiter.acquire([of_ten(5, other), of_ten(1, one)]) > 0
                assert await limiter.acquire([of_ten(1, one), of_ten(5, other)]) > 0
                assert await limiter.acquire([of_ten(5, other)]) == 0
                assert await limiter.acquire([of_ten(1, other)]) > 0

        run(scenario)

    def test_the_longest_wait_of_all_buckets_is_told(self, open_limiter):
        async def scenario():
            one, other = a_bucket(), a_bucket()
            async with opened(open_limiter) as (limiter,):
                await limiter.acquire([of_ten(10, one), of_ten(10, other)])
                charges = [of_ten(1, one), of_ten(8, other), of_ten(3, a_bucket())]
                assert await limiter.acquire(charges) == pytest.approx(8 / SLOW, rel=0.1)

        run(scenario)

    def test_a_charge_larger_than_its_bucket_is_taken_when_that_is_full(self, open_limiter):
        async def scenario():
            bucket = a_bucket()
            async with opened(open_limiter) as (limiter,):
                assert await limiter.acquire([of_ten(50, bucket)]) == 0
                wait = await limiter.acquire([of_ten(1, bucket)])
                assert wait == pytest.approx(41 / SLOW, rel=0.1)
                wait = await limiter.acquire([of_ten(50, bucket)])
                assert wait == pytest.approx(50 / SLOW, rel=0.1)

        run(scenario)

    def test_a_debt_is_paid_back_at_the_rate(self, open_limiter, clock):
        async def scenario():
            bucket, began = a_bucket(), clock.now()
            async with opened(open_limiter) as (limiter,):
                await limiter.acquire([of_ten(30, bucket, per_second=100)])
                wait = await limiter.acquire([of_ten(10, bucket, per_second=100)])
                assert wait > 0 or clock.now() - began >= 0.3
                await clock.sleep(0.3001)
                assert await limiter.acquire([of_ten(30, bucket, per_second=100)]) == 0

        run(scenario)

    def test_no_limit_is_no_charge(self, open_limiter):
        async def scenario():
            async with opened(open_limiter) as (limiter,):
                assert await limiter.acquire([]) == 0

        run(scenario)

    def test_limiters_share_their_buckets(self, open_limiter):
        async def scenario():
            bucket = a_bucket()
            async with opened(open_limiter, 2) as (one, other):
                assert await one.acquire([of_ten(6, bucket)]) == 0
                assert await other.acquire([of_ten(6, bucket)]) > 0
                assert await other.acquire([of_ten(4, bucket)]) == 0
                assert await one.acquire([of_ten(1, bucket)]) > 0

        run(scenario)

    def test_of_many_who_take_at_once_exactly_the_burst_is_admitted(self, open_limiter):
        async def scenario():
            one, other = a_bucket(), a_bucket()
            async with opened(open_limiter, 4) as limiters:
                waits = await asyncio.gather(
                    *(
                        limiters[number % 4].acquire([of_ten(1, one), of_ten(0.5, other)])
                        for number in range(400)
                    )
                )
                assert waits.count(0.0) == 10
                assert await limiters[0].acquire([of_ten(5, other)]) == 0
                assert await limiters[0].acquire([of_ten(1, other)]) > 0

        run(scenario)
