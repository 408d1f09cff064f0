"""What is seen of an instance is reported for as long as it runs, whatever goes wrong meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import ClassVar

import pytest
from tests.waiting import LIMIT_SECONDS

from headrace.model import Topic
from headrace.service.status import State
from headrace.workers import Worker, WorkerTask
from headrace.workers.monitoring import progress_monitor
from headrace.workers.monitoring.progress_monitor import ProgressMonitor


class Instance(SimpleNamespace):
    worker = Worker("w", Topic("t"), WorkerTask)
    state, failure, assignments, counts = State.CREATED, None, None, Counter()
    reference_figures: ClassVar = {}

    async def run(self):
        await asyncio.wait_for(self.seen_thrice.wait(), LIMIT_SECONDS)
        self.state = State.FAILED
        raise ConnectionError("lost")


def test_a_report_that_fails_is_followed_by_the_next_one(monkeypatch, caplog):
    monkeypatch.setattr(progress_monitor, "POLL_INTERVAL_SECONDS", 0.01)
    seen = []

    async def run():
        instance = Instance(seen_thrice=asyncio.Event())

        def observe(progress):
            seen.append(progress.state)
            if len(seen) == 3:
                instance.seen_thrice.set()
            if len(seen) == 1 or progress.state is State.FAILED:
                raise OSError("no space left on device")

        await ProgressMonitor(instance, "w-1", {}, observe).run_instance()

    with pytest.raises(ConnectionError):
        asyncio.run(run())
    assert seen[-1] is State.FAILED
    assert "Cannot report the progress of w-1" in caplog.text
