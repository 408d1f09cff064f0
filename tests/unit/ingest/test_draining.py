"""The notice that a service drains, as its workers get it."""

import asyncio
import multiprocessing

import pytest
from tests.waiting import LIMIT_SECONDS

from headrace.ingest.draining import DrainNotice


def wait_for(notice, connection):
    async def told():
        given = asyncio.Event()
        notice.call_when_given(given.set)
        connection.send("waits")
        await given.wait()
        connection.send("drains")

    asyncio.run(told())


@pytest.fixture
def worker():
    """A notice, the process of a worker that waits for it, and what the worker says."""
    context, notice = multiprocessing.get_context("spawn"), DrainNotice()
    here, there = context.Pipe()
    process = context.Process(target=wait_for, args=(notice, there))
    process.start()
    assert here.poll(LIMIT_SECONDS)
    assert here.recv() == "waits"
    yield notice, here
    process.kill()
    process.join()


def test_a_worker_drains_when_the_notice_is_given(worker):
    notice, connection = worker
    assert not connection.poll(0)
    notice.give()
    notice.give()
    assert connection.poll(LIMIT_SECONDS)
    assert connection.recv() == "drains"
