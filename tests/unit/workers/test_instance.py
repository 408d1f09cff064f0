"""An instance without a cluster: what ends it, and what it closes then."""

import asyncio

import pytest
from tests.waiting import LIMIT_SECONDS

from headrace.errors import AuthorizationError, BrokerUnreachableError
from headrace.kafka.group.subscription import Membership
from headrace.model import Topic
from headrace.workers import Worker, WorkerTask, instance, output
from headrace.workers.instance import RunningInstance
from headrace.workers.tasks.policy import RetryTopics
from headrace.workers.timing import WorkerTiming

REFUSED = AuthorizationError("DESCRIBE", "topic clicks", "User:w")


class Members:
    """Stand for those of the groups."""

    def __init__(self, failing=None):
        self.made, self.closed, self._failing = [], [], failing

    def __call__(self, config, membership, *_):
        if len(self.made) == self._failing:
            raise REFUSED
        self.made.append(self)
        return self

    async def read(self, stopping):
        await asyncio.Event().wait()

    async def close(self, deadline):
        self.closed.append(deadline)


async def run(members, monkeypatch, **declared):
    monkeypatch.setattr(output, "GroupConsumer", members)
    running = RunningInstance(
        Worker("w", Topic("clicks"), WorkerTask, **declared),
        {},
        Membership("w"),
        WorkerTiming(topic_check_seconds=0.01),
    )
    try:
        await running.read()
    finally:
        await running.close(None)


def test_a_member_that_joined_leaves_when_another_one_can_not_join(monkeypatch):
    members = Members(failing=1)
    with pytest.raises(AuthorizationError):
        asyncio.run(run(members, monkeypatch, on_failure=RetryTopics()))
    assert (len(members.made), len(members.closed)) == (1, 1)


def test_an_error_in_the_timer_of_deadlines_ends_the_instance(monkeypatch):
    def broken(*_):
        raise ValueError("broken")

    monkeypatch.setattr(instance.TaskThreads, "all_hang", broken)
    monkeypatch.setattr(instance, "topic_ids", lambda *_: {})
    with pytest.raises(ValueError, match="broken"):
        asyncio.run(asyncio.wait_for(run(Members(), monkeypatch), LIMIT_SECONDS))


def test_topics_are_looked_at_again_after_an_error_that_passes_and_a_refusal_ends(
    monkeypatch, caplog
):
    answers = [BrokerUnreachableError("127.0.0.1:9", "no answer"), REFUSED]

    def topic_ids(*_):
        raise answers.pop(0)

    monkeypatch.setattr(instance, "topic_ids", topic_ids)
    with pytest.raises(AuthorizationError):
        asyncio.run(asyncio.wait_for(run(Members(), monkeypatch), LIMIT_SECONDS))
    assert "w: cannot describe its topics, retrying" in caplog.text
