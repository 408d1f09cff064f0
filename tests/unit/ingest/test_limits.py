"""Rate limits of a host: exact, shared, right after a kill, and what is left without Redis."""

import asyncio
import logging
import multiprocessing
import os
import signal
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.limiter import LimiterContract, of_ten, run
from tests.waiting import until, wait_for

from headrace.ingest.limits import BucketRequest, FallbackLimiter, LocalLimiter
from headrace.ingest.limits.local import _SLOTS


class Clock:
    def __init__(self):
        self.time = 1000.0

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.time += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def open_limiter(tmp_path, clock):
    return lambda: LocalLimiter(tmp_path / "limits", clock.now)


def take(limiter, *charges):
    return asyncio.run(limiter.acquire(charges))


def events(amount, per_second=10, bucket="a", burst=1.0):
    return BucketRequest(bucket, amount, per_second, burst)


class TestLocalLimiter(LimiterContract):
    pass


def test_an_idle_bucket_makes_room_and_a_table_without_room_limits(open_limiter, clock):
    limiter = open_limiter()
    for number in range(0, 3 * _SLOTS, 500):
        charges = [events(10, bucket=f"b{number + n}") for n in range(500)]
        if wait := take(limiter, *charges):
            break
    assert wait == 1.0
    clock.time += 1
    assert take(limiter, events(10, bucket="new")) == 0
    asyncio.run(limiter.close())


def test_what_is_noted_is_owed(open_limiter):
    limiter = open_limiter()
    limiter.record_external([events(25)])
    assert take(limiter, events(1)) == pytest.approx(1.6)
    limiter.record_external([events(10)])
    assert take(limiter, events(1)) == pytest.approx(2.6)
    asyncio.run(limiter.close())


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 30)), max_size=60))
def test_no_time_gives_more_than_the_rate_and_the_burst(tmp_path_factory, steps):
    clock = Clock()
    limiter = LocalLimiter(tmp_path_factory.mktemp("limits") / "file", clock.now)
    taken, largest = 0, 0
    for pause, amount in steps:
        clock.time += pause
        wait = take(limiter, events(amount))
        if wait == 0:
            taken, largest = taken + amount, max(largest, amount)
        assert taken <= 10 * (clock.time - 1000 + 1) + largest
        if wait:
            clock.time += wait + 1e-6
            assert take(limiter, events(amount)) == 0
            taken, largest = taken + amount, max(largest, amount)
    asyncio.run(limiter.close())


def _hammer(file, ended, taken):
    limiter = LocalLimiter(file)
    while not ended.value:
        if take(limiter, events(1, per_second=500)) == 0:
            taken.value += 1


def test_eight_processes_share_a_bucket_and_a_killed_one_locks_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    began = time.monotonic()
    # Without locks, which a killed process would keep.
    ended = context.RawValue("b", 0)
    counts = [context.RawValue("q", 0) for _ in range(9)]
    workers = [
        context.Process(target=_hammer, args=(tmp_path / "limits", ended, count))
        for count in counts
    ]
    for worker in workers:
        worker.start()
    wait_for(lambda: all(count.value for count in counts[:2]))
    os.kill(workers[0].pid, signal.SIGKILL)
    wait_for(lambda: all(count.value for count in counts))
    time.sleep(2)
    wait_for(lambda: sum(count.value for count in counts) >= 500)
    ended.value = 1
    for worker in workers:
        worker.join()
    elapsed = time.monotonic() - began
    admitted = sum(count.value for count in counts)
    assert admitted <= 500 * (elapsed + 1) + len(workers)


class Remote:
    """A limiter without limits, as far as it works."""

    def __init__(self, error=None):
        self.error, self.asked, self.proofs, self.closed = error, 0, 0, False

    async def acquire(self, charges):
        self.asked += 1
        return self._answer()

    async def reconnect(self):
        self.proofs += 1
        self._answer()

    async def close(self):
        self.closed = True

    def _answer(self):
        if self.error:
            raise self.error
        return 0.0


class Host:
    """A fallback on a remote and the limiter of this host."""

    def __init__(self, open_limiter, remote):
        self.remote, self.locally = remote, 0
        self.limiter = FallbackLimiter(remote, open_limiter(), self._count, retry_seconds=0.1)

    async def admitted(self, count):
        """How many of so many events, one after the other, to a bucket of ten."""
        waits = [await self.limiter.acquire([of_ten(1, "a")]) for _ in range(count)]
        return waits.count(0.0)

    async def until_proof(self, number):
        await until(lambda: self.remote.proofs >= number)
        await asyncio.sleep(0)

    def _count(self):
        self.locally += 1


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("bug"), TimeoutError()])
def test_whatever_fails_the_limit_of_the_host_holds_and_says_so_once(open_limiter, caplog, error):
    async def scenario():
        host = Host(open_limiter, Remote(error))
        assert await host.admitted(30) == 10
        await host.until_proof(2)
        assert await host.admitted(5) == 0
        assert (host.locally, host.remote.asked) == (35, 0)
        host.remote.error = None
        # The number of failed ones depends on how busy the machine is.
        await host.until_proof(host.remote.proofs + 1)
        assert await host.admitted(30) == 30
        assert host.locally == 35
        await host.limiter.close()

    run(scenario)
    assert [one.levelno for one in caplog.records] == [logging.WARNING] * 2
    assert f"this host alone: {type(error).__name__}" in caplog.text


def test_what_all_hosts_limits_admitted_is_gone_from_this_hosts(open_limiter):
    async def scenario():
        host = Host(open_limiter, Remote())
        await host.until_proof(1)
        assert await host.admitted(30) == 30
        host.remote.error = OSError("gone")
        assert await host.admitted(30) == 0
        assert host.remote.asked == 31
        await host.limiter.close()

    run(scenario)


def test_an_answer_that_only_came_late_is_not_logged(open_limiter, caplog):
    async def scenario():
        remote = Remote()
        host = Host(open_limiter, remote)
        await host.until_proof(1)
        remote.error = TimeoutError()
        assert await host.admitted(1) == 1
        remote.error = None
        await host.until_proof(2)
        assert await host.admitted(20) == 20
        assert host.locally == 1
        await host.limiter.close()

    run(scenario)
    assert not caplog.records


def test_a_limiter_that_is_closed_asks_no_more(open_limiter):
    async def scenario():
        host = Host(open_limiter, Remote(OSError("gone")))
        await host.until_proof(1)
        await host.limiter.close()
        assert host.remote.closed
        assert len(asyncio.all_tasks()) == 1

    run(scenario)
