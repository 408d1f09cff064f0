"""What the tasks of an instance share is made before it joins its group, and has deadlines."""

import asyncio
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest
from tests.unit.workers.users_errors import EmptyError
from tests.waiting import LIMIT_SECONDS, until

from headrace.errors import LifespanEndedError, TaskTimeoutError
from headrace.kafka.group.subscription import Membership
from headrace.model import Topic
from headrace.workers import Worker, WorkerTask, output
from headrace.workers.instance import RunningInstance
from headrace.workers.lifespan import SharedResources
from headrace.workers.timing import WorkerTiming

SHORT = timedelta(milliseconds=10)


class Group:
    """Stands for the members of the groups: notes when they join and leave."""

    def __init__(self, steps):
        self._steps = steps

    def __call__(self, *_):
        self._steps.append("joined")
        return self

    async def read(self, stopping):
        await asyncio.Event().wait()

    async def close(self, deadline):
        self._steps.append("left the group")


def test_an_instance_enters_before_it_joins_and_leaves_after_it_left_its_group(monkeypatch):
    steps = []

    @asynccontextmanager
    async def shared(config):
        steps.append("entered")
        yield
        steps.append("left")

    async def run():
        worker = Worker("w", Topic("clicks"), WorkerTask, lifespan=shared)
        running = RunningInstance(worker, {}, Membership("w"))
        running.stop()
        await running.read()
        assert await running.close(None) is None

    monkeypatch.setattr(output, "GroupConsumer", Group(steps))
    asyncio.run(run())
    assert steps == ["entered", "joined", "left the group", "left"]


@pytest.mark.parametrize("moment", ["entered", "left"])
def test_a_lifespan_that_does_not_end_is_given_up(moment):
    @asynccontextmanager
    async def stuck(config):
        if moment == "entered":
            await asyncio.Event().wait()
        yield
        await asyncio.Event().wait()

    async def run():
        worker = Worker("w", Topic("clicks"), WorkerTask, lifespan=stuck, processing_timeout=SHORT)
        timing = WorkerTiming(min_enter_seconds=0.01, leave_seconds=0.01)
        shared = SharedResources(worker, pytest.fail, timing)
        await shared.enter()
        await shared.leave()

    with pytest.raises(TaskTimeoutError, match=f"lifespan of worker 'w' was not {moment}"):
        asyncio.run(run())


async def lose_connection():
    raise ConnectionError("lost")


@asynccontextmanager
async def losing_its_connection(config):
    async with asyncio.TaskGroup() as group:
        group.create_task(lose_connection())
        yield


@asynccontextmanager
async def swallowing_its_cancellation(config):
    asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)
    with suppress(asyncio.CancelledError):
        yield


@pytest.mark.parametrize(
    ("shared", "expected"),
    [
        (losing_its_connection, ExceptionGroup),
        (swallowing_its_cancellation, LifespanEndedError),
    ],
)
def test_a_lifespan_that_ends_while_the_instance_runs_ends_the_instance(
    monkeypatch, shared, expected
):
    async def run():
        worker = Worker("w", Topic("clicks"), WorkerTask, lifespan=shared)
        running = RunningInstance(worker, {}, Membership("w"))
        with pytest.raises(expected):
            await asyncio.wait_for(running.read(), LIMIT_SECONDS)
        assert isinstance(await running.close(None), expected)

    monkeypatch.setattr(output, "GroupConsumer", Group([]))
    asyncio.run(run())


def test_a_lifespan_may_end_with_an_error_that_is_false():
    holders, ends = [], []

    @asynccontextmanager
    async def ending(config):
        holders.append(asyncio.current_task())
        try:
            yield
        except asyncio.CancelledError:
            raise EmptyError from None

    async def run():
        worker = Worker("w", Topic("clicks"), WorkerTask, lifespan=ending)
        await SharedResources(worker, ends.append).enter()
        holders[0].cancel()
        await until(lambda: ends)

    asyncio.run(run())
    assert [type(error) for error in ends] == [EmptyError]


def test_an_error_that_is_false_when_the_lifespan_is_left_is_why_the_instance_failed(monkeypatch):
    @asynccontextmanager
    async def failing(config):
        yield
        raise EmptyError

    async def run():
        worker = Worker("w", Topic("clicks"), WorkerTask, lifespan=failing)
        running = RunningInstance(worker, {}, Membership("w"))
        running.stop()
        await running.read()
        assert isinstance(await running.close(None), EmptyError)

    monkeypatch.setattr(output, "GroupConsumer", Group([]))
    asyncio.run(run())
