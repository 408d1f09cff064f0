"""The time of a worker's own function."""

import asyncio
import functools
import time

import pytest

from headrace.model import Topic
from headrace.operations.measuring.user_time import UserClock, timed
from headrace.workers.tasks.function_task import FunctionFactory, parameters_of
from headrace.workers.tasks.task import WorkerRecord

RECORD = WorkerRecord("scratch", 0, 7, b"k", b"v")
ORIGINS = {"scratch": "clicks"}


class Click:
    n: int


def made(function, clock):
    return timed(FunctionFactory(function, (Topic("scratch"),)), clock, ORIGINS)


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_cpu_between_waits_is_the_function_s_own_and_the_wait_is_not():
    clock = UserClock()

    async def process(value: bytes) -> None:
        spin(0.01)
        await asyncio.sleep(0)
        spin(0.01)

    async def both():
        task = made(process, clock)()
        other = asyncio.ensure_future(asyncio.to_thread(spin, 0.5))
        await task.process(RECORD)
        await other

    asyncio.run(both())
    assert clock.calls == 1
    assert 0.02 <= clock.cpu_seconds < 0.4  # without what the other thread has used
    assert clock.seconds >= clock.cpu_seconds


def test_an_ordinary_function_is_timed():
    clock = UserClock()

    def process(value: bytes) -> None:
        spin(0.01)

    made(process, clock)().process(RECORD)
    assert clock.calls == 1
    assert clock.cpu_seconds >= 0.01


def test_a_function_sees_the_name_of_the_real_topic():
    seen = []

    async def process(record: WorkerRecord) -> None:
        seen.append(record)

    asyncio.run(made(process, UserClock())().process(RECORD))
    assert [(record.topic, record.offset) for record in seen] == [("clicks", 7)]


def test_parameters_are_those_of_the_function():
    async def process(click: Click, record: WorkerRecord, send, shared) -> None: ...

    factory = made(process, UserClock())
    assert parameters_of(factory.function) == parameters_of(process)


def test_the_first_error_is_kept_and_raised():
    clock = UserClock()

    async def process(value: bytes) -> None:
        await asyncio.sleep(0)
        raise ValueError(f"number {clock.calls}")

    task = made(process, clock)()
    for _ in range(2):
        with pytest.raises(ValueError):
            asyncio.run(task.process(RECORD))
    assert str(clock.first_error) == "number 0"
    assert clock.calls == 2


def test_a_wait_that_is_cancelled_is_cancelled_in_the_function():
    clock, seen = UserClock(), []

    async def process(value: bytes) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def cancel():
        running = asyncio.ensure_future(made(process, clock)().process(RECORD))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancel())
    assert seen == ["cancelled"]
    assert clock.first_error is None


def test_a_partial_function_runs_as_it_is():
    async def process(value: bytes, extra: int) -> None: ...

    task = FunctionFactory(functools.partial(process, extra=1))
    assert timed(task, UserClock(), ORIGINS) is task
