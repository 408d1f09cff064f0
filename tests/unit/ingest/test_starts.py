"""Workers that can't start: they say why, wait longer each time, and the service ends at last."""

import asyncio
import logging
import multiprocessing
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.waiting import LIMIT_SECONDS, wait_for

from headrace.errors import IngestStateError
from headrace.ingest import worker
from headrace.ingest.starts import WorkerStarts
from headrace.ingest.worker import IngestProcess


@pytest.fixture
def hopeless():
    return threading.Event()


@pytest.fixture
def starts(hopeless):
    made = WorkerStarts(2, hopeless.set)
    yield made
    made.close()


def test_three_failed_starts_of_each_worker_end_the_service_with_the_reason(starts, hopeless):
    for number in range(5):
        starts.failed(f"no disk {number}")
    wait_for(lambda: starts.failures == 5)
    assert not hopeless.is_set()
    starts.failed("x" * 5000)
    assert hopeless.wait(LIMIT_SECONDS)
    assert starts.is_hopeless
    assert starts.reason == "x" * 2000


def test_a_start_that_succeeds_forgets_those_that_failed(starts):
    starts.failed("no disk")
    wait_for(lambda: starts.failures == 1)
    starts.succeeded()
    wait_for(lambda: starts.failures == 0)


def test_delays_grow_to_a_limit(starts):
    delays = []
    for _ in range(8):
        delays.append(starts.delay_seconds())
        starts.failures += 1
    assert delays == [0, 6, 12, 18, 24, 30, 30, 30]


def _report(starts):
    starts.failed(f"after {starts.failures}")


def test_a_worker_process_knows_of_the_failures_before_it_and_reports_its_own(starts):
    starts.note("earlier")
    process = multiprocessing.get_context("spawn").Process(target=_report, args=(starts,))
    process.start()
    process.join()
    wait_for(lambda: starts.reason == "after 1")  # the number is set before it
    assert starts.failures == 2


class Starts:
    def __init__(self):
        self.failures = []

    def delay_seconds(self):
        return 0.0

    def failed(self, reason):
        self.failures.append(reason)


def test_a_worker_whose_parts_fail_says_why_and_does_not_serve(monkeypatch, caplog):
    def failing(*_):
        raise IngestStateError("/state/limits", "No space left on device")

    monkeypatch.setattr(worker, "Counters", failing)
    settings = SimpleNamespace(metrics_accounts=0)
    config = SimpleNamespace(topics={}, settings=settings, state=Path("state"))
    starts, sent = Starts(), []

    async def receive():
        return {"type": "lifespan.startup"}

    async def send(message):
        sent.append(message["type"])

    with caplog.at_level(logging.ERROR):
        asyncio.run(IngestProcess(config, starts, None)({"type": "lifespan"}, receive, send))
    assert sent == ["lifespan.startup.failed"]
    assert starts.failures[0].startswith("IngestStateError: ")
    assert "No space left on device" in caplog.text
