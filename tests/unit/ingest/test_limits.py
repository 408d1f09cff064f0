"""Rate limits: exact, shared, and right after a kill."""

import asyncio
import multiprocessing
import os
import signal
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ingest.limits import _SLOTS, Charge, LocalLimiter


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limiter(tmp_path, clock):
    found = LocalLimiter(tmp_path / "limits", clock)
    yield found
    found.close()


def take(limiter, *charges):
    return asyncio.run(limiter.take(charges))


def events(amount, per_second=10, bucket="a", burst=1.0):
    return Charge(bucket, amount, per_second, burst)


def test_a_bucket_holds_its_burst_and_refills_at_its_rate(limiter, clock):
    assert [take(limiter, events(1)) == 0 for _ in range(11)] == [True] * 10 + [False]
    assert take(limiter, events(1)) == pytest.approx(0.1)
    clock.now += 0.1
    assert take(limiter, events(1)) == 0
    assert take(limiter, events(1)) > 0


def test_a_charge_is_taken_from_all_its_buckets_or_from_none(limiter):
    assert take(limiter, events(10), events(5, bucket="b")) == 0
    assert take(limiter, events(1), events(5, bucket="b")) > 0
    assert take(limiter, events(5, bucket="b")) == 0


def test_a_charge_larger_than_its_bucket_is_taken_when_that_is_full(limiter, clock):
    assert take(limiter, events(50)) == 0
    assert take(limiter, events(1)) == pytest.approx(4.1)
    assert take(limiter, events(50)) == pytest.approx(5.0)
    clock.now += 5
    assert take(limiter, events(50)) == 0


def test_no_limit_is_no_charge(limiter):
    assert take(limiter) == 0


def test_a_bucket_is_the_same_for_whoever_opens_the_file(tmp_path, limiter, clock):
    other = LocalLimiter(tmp_path / "limits", clock)
    assert take(limiter, events(10)) == 0
    assert take(other, events(1)) > 0
    other.close()


def test_an_idle_bucket_makes_room_and_a_table_without_room_limits(limiter, clock):
    for number in range(0, 3 * _SLOTS, 500):
        charges = [events(10, bucket=f"b{number + n}") for n in range(500)]
        if wait := take(limiter, *charges):
            break
    assert wait == 1.0
    clock.now += 1
    assert take(limiter, events(10, bucket="new")) == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 30)), max_size=60))
def test_no_time_gives_more_than_the_rate_and_the_burst(tmp_path_factory, steps):
    clock = Clock()
    limiter = LocalLimiter(tmp_path_factory.mktemp("limits") / "file", clock)
    taken, largest = 0, 0
    for pause, amount in steps:
        clock.now += pause
        wait = take(limiter, events(amount))
        if wait == 0:
            taken, largest = taken + amount, max(largest, amount)
        assert taken <= 10 * (clock.now - 1000 + 1) + largest
        if wait:
            clock.now += wait + 1e-6
            assert take(limiter, events(amount)) == 0
            taken, largest = taken + amount, max(largest, amount)
    limiter.close()


def _hammer(file, until, taken):
    limiter = LocalLimiter(file)
    count = 0
    while time.monotonic() < until:
        if take(limiter, events(1, per_second=500)) == 0:
            count += 1
            taken.value = count


def test_eight_processes_share_a_bucket_and_a_killed_one_locks_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    began = time.monotonic()
    counts = [context.Value("q", 0) for _ in range(9)]
    workers = [
        context.Process(target=_hammer, args=(tmp_path / "limits", began + 6, count))
        for count in counts
    ]
    for worker in workers:
        worker.start()
    while counts[0].value == 0:
        time.sleep(0.01)
    os.kill(workers[0].pid, signal.SIGKILL)
    for worker in workers:
        worker.join()
    elapsed = time.monotonic() - began
    admitted = sum(count.value for count in counts)
    assert admitted <= 500 * (elapsed + 1) + len(workers)
    assert admitted >= 500
