"""What is seen of an instance is reported for as long as it runs, whatever goes wrong meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import ClassVar

import pytest
from tests.waiting import LIMIT_SECONDS

from headrace.errors import BrokerUnreachableError
from headrace.kafka.group.groups import ConsumerGroup, Member
from headrace.model import Topic
from headrace.service.status import State
from headrace.workers import Worker, WorkerTask
from headrace.workers.monitoring import progress_monitor, waiting
from headrace.workers.monitoring.progress_monitor import ProgressMonitor


class Instance(SimpleNamespace):
    worker = Worker("w", Topic("t"), WorkerTask)
    state, failure, assignments, counts = State.CREATED, None, None, Counter()
    reference_figures: ClassVar = {}
    sent_to = ()
    state_figures: ClassVar = {}

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


def reported(monkeypatch, awaited, **instance):
    """Returns the reason of the first report that has one, or of the third."""
    monkeypatch.setattr(progress_monitor, "POLL_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(progress_monitor, "WHY_AFTER_SECONDS", 0.01)
    reasons = []

    async def run():
        running = Instance(seen_thrice=asyncio.Event(), **instance)

        async def run_until_seen():
            running.state = State.RUNNING
            await asyncio.wait_for(running.seen_thrice.wait(), LIMIT_SECONDS)

        running.run = run_until_seen

        def observe(progress):
            reasons.append(progress.reason)
            if progress.reason or (not awaited and len(reasons) >= 5):
                running.seen_thrice.set()

        await ProgressMonitor(running, "w-1", {}, observe).run_instance()

    asyncio.run(run())
    return next(filter(None, reasons), "")


def group(state, *names):
    return lambda _config, _name: ConsumerGroup(state, tuple(Member("h", "", 1, n) for n in names))


def test_an_instance_without_partitions_says_for_which_members_its_group_waits(monkeypatch):
    rebalancing = group("preparing-rebalancing", "w-1", "host-7")
    monkeypatch.setattr(waiting, "describe_group", rebalancing)
    reason = reported(monkeypatch, awaited=True)
    assert reason.startswith("waits for partitions while group headrace.w rebalances with host-7:")


@pytest.mark.parametrize(
    ("state", "names"), [("stable", ["w-1", "w-2"]), ("preparing-rebalancing", ["w-1"])]
)
def test_a_group_that_waits_for_nobody_else_is_no_reason(monkeypatch, state, names):
    monkeypatch.setattr(waiting, "describe_group", group(state, *names))
    assert reported(monkeypatch, awaited=False) == ""


def test_brokers_that_do_not_answer_are_no_reason(monkeypatch):
    def unreachable(*_):
        raise BrokerUnreachableError("b:1", "down")

    monkeypatch.setattr(waiting, "describe_group", unreachable)
    assert reported(monkeypatch, awaited=False) == ""


class Asked:
    """A broker with one topic, which counts how often it was asked."""

    def __init__(self):
        self.names = []

    def describe(self, _config, names):
        self.names.append(set(names))
        return {name: object() for name in names if name == "there"}


def test_a_topic_that_tasks_send_to_and_that_is_missing_is_named():
    asked = Asked()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "describe", asked.describe)
        reason = waiting.WaitReason("g", "w-1", {}, {})
        asyncio.run(reason.refresh({"there", "none"}, has_partitions=True))
        assert reason.reason == "sends wait for topics that do not exist: none"
        assert not reason.is_settled({"none"}, has_partitions=True)
        assert reason.is_settled({"there"}, has_partitions=True)
        asyncio.run(reason.refresh({"there", "none"}, has_partitions=True))
    assert asked.names == [{"there", "none"}, {"none"}]
