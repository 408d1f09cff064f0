"""Rate limits in a real Redis: the contract, and what becomes of them when it is not well."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.contracts.limiter import (
    SLOW,
    LimiterContract,
    OpenLimiter,
    a_bucket,
    of_ten,
    opened,
    run,
)
from tests.integration.redis_server import RedisServer
from tests.waiting import LIMIT_SECONDS, until

from headrace.ingest.limits import BucketRequest, FallbackLimiter, LocalLimiter
from headrace.ingest.limits.redis import RedisLimiter
from headrace.settings import SecretUrl

PASSWORD = "the-right-one"


class RealClock:
    def now(self):
        return time.monotonic()

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)


@pytest.fixture
def clock():
    return RealClock()


@pytest.fixture
def open_limiter(redis_server) -> OpenLimiter:
    return lambda: RedisLimiter(redis_server.url, "test", LIMIT_SECONDS)


class TestRedisLimiter(LimiterContract):
    def test_a_bucket_that_is_full_again_leaves_no_key(self, open_limiter, redis_server):
        async def scenario():
            slow, fast = buckets = a_bucket(), a_bucket()
            slow_key, fast_key = (f"headrace:{{test}}:limits:{bucket}" for bucket in buckets)
            async with opened(open_limiter) as (limiter,):
                await limiter.acquire([of_ten(1, slow), of_ten(1, fast, per_second=10)])
                assert 0 < redis_server.command("PTTL", slow_key) <= 1_000 / SLOW + 1
                await until(lambda: redis_server.command("EXISTS", fast_key) == 0)

        run(scenario)

    def test_projects_have_buckets_of_their_own(self, redis_server):
        async def scenario():
            bucket = a_bucket()
            projects = (RedisLimiter(redis_server.url, name, LIMIT_SECONDS) for name in ("a", "b"))
            async with opened(lambda: next(projects), 2) as (one, other):
                assert await one.acquire([of_ten(10, bucket)]) == 0
                assert await other.acquire([of_ten(10, bucket)]) == 0

        run(scenario)

    def test_a_clock_that_was_set_back_neither_blocks_nor_fills(self, open_limiter, redis_server):
        async def scenario():
            bucket = a_bucket()
            key = f"headrace:{{test}}:limits:{bucket}"
            ahead = (time.time() + 3600) * 1_000_000
            redis_server.command("SET", key, f"9.5 {ahead:.0f}", "PX", "4000000")
            async with opened(open_limiter) as (limiter,):
                assert await limiter.acquire([of_ten(10, bucket, per_second=1)]) > 9
                missing, at = redis_server.command("GET", key).split()
                assert (float(missing), float(at) < ahead - 3_000_000_000) == (9.5, True)
                assert redis_server.command("PTTL", key) < 10_000

        run(scenario)

    def test_a_script_that_was_flushed_is_loaded_again(self, open_limiter, redis_server):
        async def scenario():
            bucket = a_bucket()
            async with opened(open_limiter) as (limiter,):
                assert await limiter.acquire([of_ten(10, bucket)]) == 0
                redis_server.command("SCRIPT", "FLUSH")
                assert await limiter.acquire([of_ten(1, bucket)]) > 0

        run(scenario)


def test_answers_belong_to_their_questions_after_some_were_given_up(own_redis):
    async def scenario():
        limiter = RedisLimiter(own_redis.url, "test")
        charges = [of_ten(10 + number, a_bucket()) for number in range(100)]
        await until_admitted(limiter, charges)
        for _ in range(3):
            own_redis.signal(signal.SIGSTOP)
            asking = [limiter.acquire([charge]) for charge in charges]
            given_up = await asyncio.gather(*asking, return_exceptions=True)
            assert any(isinstance(one, TimeoutError) for one in given_up)
            own_redis.signal(signal.SIGCONT)
        await until_admitted(limiter, [of_ten(1, a_bucket())])
        told = await answers_in_time(limiter, charges)
        assert told == {n: pytest.approx((10 + n) / SLOW, rel=0.01) for n in told}
        await limiter.close()

    run(scenario)


async def until_admitted(limiter: RedisLimiter, charges: Sequence[BucketRequest]) -> None:
    """Each in a bucket of its own; a machine under load may be late."""
    for charge in charges:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                with contextlib.suppress(TimeoutError):
                    await limiter.acquire([charge])
                    break


async def answers_in_time(
    limiter: RedisLimiter, charges: Sequence[BucketRequest]
) -> dict[int, float]:
    """The answers to all charges at once, by number: again until some of them are not late."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while True:
            asking = [limiter.acquire([charge]) for charge in charges]
            waits = await asyncio.gather(*asking, return_exceptions=True)
            told = {n: one for n, one in enumerate(waits) if not isinstance(one, TimeoutError)}
            if told:
                return told


class Host:
    """A host's limits with a Redis, and a bucket of ten that gets nothing back."""

    def __init__(self, folder: Path, url: SecretUrl, answer_seconds: float) -> None:
        self.locally, self.bucket = 0, a_bucket()
        remote = RedisLimiter(url, "test", answer_seconds)
        self.limiter = FallbackLimiter(remote, LocalLimiter(folder / "limits"), self._count)

    async def admitted(self, bucket: str = "", count: int = 30) -> int:
        """How many of so many events at once."""
        charge = of_ten(1, bucket or self.bucket)
        waits = await asyncio.gather(*(self.limiter.acquire([charge]) for _ in range(count)))
        return waits.count(0.0)

    async def until_shared(self) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while await self._is_local():  # noqa: ASYNC110 - it is of another process
                await asyncio.sleep(0.02)

    async def _is_local(self) -> bool:
        before = self.locally
        await self.admitted(a_bucket(), 1)
        return before != self.locally

    def _count(self) -> None:
        self.locally += 1


@contextlib.asynccontextmanager
async def host(folder: Path, url: SecretUrl, answer_seconds: float = LIMIT_SECONDS):
    found = Host(folder, url, answer_seconds)
    try:
        yield found
    finally:
        await found.limiter.close()


@pytest.fixture
def own_redis(tmp_path, stop_at_end) -> Iterator[RedisServer]:
    """A Redis to be killed and frozen."""
    server = RedisServer(tmp_path, PASSWORD)
    stop_at_end(tmp_path)
    server.start()
    yield server
    server.kill()


def test_hosts_share_their_limits(tmp_path, redis_server):
    async def scenario():
        url = redis_server.url
        async with host(tmp_path / "a", url) as one, host(tmp_path / "b", url) as other:
            await one.until_shared()
            await other.until_shared()
            both = await asyncio.gather(one.admitted(one.bucket), other.admitted(one.bucket))
            assert sum(both) == 10

    run(scenario)


def test_a_redis_that_is_killed_and_comes_back_empty_never_lifts_a_limit(
    tmp_path, own_redis, caplog
):
    async def scenario():
        async with host(tmp_path, own_redis.url) as here:
            await here.until_shared()
            assert await here.admitted() == 10
            own_redis.kill()
            assert await here.admitted() == 0
            assert await here.admitted(a_bucket()) == 10
            own_redis.start()
            await here.until_shared()
            assert await here.admitted() == 10
            own_redis.kill()
            assert await here.admitted() == 0
            await until(lambda: len(caplog.records) == 3)
            own_redis.start()

    run(scenario)
    said = [record.getMessage() for record in caplog.records]
    assert ["alone" in text for text in said] == [True, False, True]


def test_a_redis_that_comes_and_goes_gives_a_host_no_more_than_two_bursts(tmp_path, own_redis):
    async def hammer(limiter, ended):
        admitted = 0
        while not ended.is_set():
            wait = await limiter.acquire([BucketRequest("a", 1, 200, 1)])
            admitted += wait == 0
            await asyncio.sleep(min(wait, 0.005))
        return admitted

    async def scenario():
        async with host(tmp_path, own_redis.url, 0.1) as here:
            await here.until_shared()
            began, ended = time.monotonic(), asyncio.Event()
            tasks = [asyncio.create_task(hammer(here.limiter, ended)) for _ in range(20)]
            for _ in range(3):
                own_redis.signal(signal.SIGSTOP)
                await asyncio.sleep(0.4)
                own_redis.signal(signal.SIGCONT)
                await asyncio.sleep(0.5)
            ended.set()
            admitted = sum(await asyncio.gather(*tasks))
            elapsed = time.monotonic() - began
            assert here.locally > 0
            assert 200 <= admitted <= 200 * (2 + elapsed) + 1

    run(scenario)


def test_a_frozen_redis_leaves_the_limit_of_the_host_and_comes_back(tmp_path, own_redis):
    async def scenario():
        async with host(tmp_path, own_redis.url, 0.1) as here:
            await here.until_shared()
            own_redis.signal(signal.SIGSTOP)
            assert await here.admitted() == 10
            assert await here.admitted(a_bucket()) == 10
            own_redis.signal(signal.SIGCONT)
            await here.until_shared()
            assert await here.admitted(a_bucket()) <= 20

    run(scenario)


@pytest.mark.parametrize(
    ("breaks", "mends", "says"),
    [
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "maxmemory"),
        ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "read only"),
    ],
)
def test_a_redis_that_answers_errors_leaves_the_limit_of_the_host(
    tmp_path, own_redis, caplog, breaks, mends, says
):
    async def scenario():
        async with host(tmp_path, own_redis.url) as here:
            await here.until_shared()
            assert await here.admitted() == 10
            own_redis.command(*breaks.split())
            assert await here.admitted() == 0
            assert await here.admitted(a_bucket()) == 10
            await until(lambda: caplog.records)
            own_redis.command(*mends.split())
            await here.until_shared()

    run(scenario)
    assert says in caplog.text


def test_a_wrong_password_leaves_the_limit_of_the_host_and_is_not_logged(
    tmp_path, own_redis, caplog
):
    async def scenario():
        wrong = SecretUrl(own_redis.url.reveal().replace(PASSWORD, "a-wrong-one"))
        async with host(tmp_path / "a", wrong) as here:
            await until(lambda: caplog.records)
            assert (await here.admitted(), here.locally) == (10, 30)
        async with host(tmp_path / "b", own_redis.url) as here:
            await here.until_shared()
            assert await here.admitted() == 10

    run(scenario)
    assert "AuthenticationError" in caplog.text
    assert "-one" not in caplog.text
