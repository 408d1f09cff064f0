"""A member whose id another one has, alive or dead."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import ClassVar

import pytest
from tests.unit.workers.users_errors import FALSE_ERRORS
from tests.waiting import LIMIT_SECONDS

from headrace.errors import InstanceIdInUseError, LastCommitError
from headrace.kafka.client.broker_errors import Meaning
from headrace.kafka.client.lost_brokers import BrokersLostError
from headrace.kafka.group.start_positions import StartPosition
from headrace.kafka.group.subscription import Membership, Pauses, Taken
from headrace.kafka.read.log_cuts import Seen
from headrace.model import Topic, TopicPartition
from headrace.workers import Worker, WorkerTask
from headrace.workers.consumer_group import group_consumer
from headrace.workers.consumer_group.group_consumer import GroupConsumer
from headrace.workers.lanes import partition_set
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.context import LaneContext
from headrace.workers.timing import WorkerTiming

CLICKS = TopicPartition("clicks", 0)
SEEN = Seen(9, 1)
TAKEN = InstanceIdInUseError("headrace.enrich", "web-0", "unreleased")


class PartitionSet(dict):
    pauses = Pauses()
    budget = SimpleNamespace(records=1)


def context(timing=WorkerTiming()):
    worker = Worker("enrich", Topic("clicks"), WorkerTask)
    failures = SimpleNamespace(on_rebalance=lambda here: None)
    return LaneContext(worker, None, None, None, failures, Counter(), None, timing=timing)


class Leaving:
    """A subscription that leaves its group at once."""

    def __init__(self, *_):
        pass

    def begin_close(self):
        pass

    def is_joining(self):
        return False

    def close(self):
        pass


def taking(monkeypatch, protocol, refusals, refusal=TAKEN):
    """How many subscriptions it took until one was let in."""
    made = []

    class Subscription:
        def __init__(self, *_):
            made.append(self)

        def take(self, most, seconds):
            if len(made) <= refusals:
                raise refusal
            return Taken(["record"], [])

        def close(self):
            self.is_closed = True

    monkeypatch.setattr(group_consumer, "Subscription", Subscription)

    async def run():
        membership = Membership("headrace.enrich", ("clicks",), "web-0", protocol)
        timing = WorkerTiming(rejoin_seconds=0)
        one = GroupConsumer({}, membership, context(timing), PartitionSet())
        while not (await one.take()).records:
            pass

    asyncio.run(run())
    assert all(one.is_closed for one in made[:-1])
    return len(made)


def test_the_id_of_a_dead_member_is_waited_for_where_brokers_refuse_it(monkeypatch):
    assert taking(monkeypatch, "consumer", refusals=2) == 3


def test_it_is_not_waited_for_longer_than_a_session(monkeypatch):
    monkeypatch.setattr(group_consumer, "ID_SECONDS", 0)
    with pytest.raises(InstanceIdInUseError):
        taking(monkeypatch, "consumer", refusals=1)


def test_on_the_classic_protocol_a_taken_id_is_that_of_a_living_member(monkeypatch):
    with pytest.raises(InstanceIdInUseError):
        taking(monkeypatch, "classic", refusals=1)


def test_a_member_whose_client_has_lost_all_brokers_joins_again_with_another(monkeypatch):
    assert taking(monkeypatch, "classic", refusals=1, refusal=BrokersLostError("no broker")) == 2


def test_the_group_is_left_when_no_request_to_join_is_on_its_way(monkeypatch):
    """One to leave would wait behind it, and the other members for this one's session."""
    seen = []

    class Joining:
        answers: ClassVar = [True, True, False]

        def __init__(self, *_):
            pass

        def begin_close(self):
            pass

        def is_joining(self):
            return self.answers.pop(0)

        def take(self, most, seconds):
            seen.append("take")
            return Taken([], [])

        def close(self):
            seen.append("close")

    monkeypatch.setattr(group_consumer, "Subscription", Joining)

    async def run():
        membership = Membership("headrace.enrich", ("clicks",))
        await GroupConsumer({}, membership, context(), PartitionSet()).close(0.0)

    asyncio.run(run())
    assert seen == ["take", "take", "close"]


def consuming(monkeypatch, subscription, act, seen=SEEN):
    """``act(consumer)`` on one that has a partition, whose records before offset 9 are done."""
    monkeypatch.setattr(group_consumer, "Subscription", subscription)

    async def run():
        here = context()
        assigned = AssignedPartition(StartPosition(CLICKS, 7, "", "id"), here.worker.partitioner)
        assignments = partition_set.PartitionSet(here)
        assignments._by_partition[CLICKS] = assigned
        assigned.reach(9)
        assigned.seen = seen
        membership = Membership("headrace.enrich", ("clicks",))
        await act(GroupConsumer({}, membership, here, assignments))

    asyncio.run(run())


def test_a_revocation_commits_again_what_a_commit_on_its_way_holds(monkeypatch):
    """It is of the generation before, and the group refuses it where it comes too late."""
    sent, given = [], []

    class Sending:
        def __init__(self, config, membership, pauses, on_assigned, on_revoked, on_lost):
            self.on_revoked = on_revoked

        def commit(self, commits, answered):
            sent.extend(commits)
            self.answered = answered

        def take(self, most, seconds):
            given.extend(self.on_revoked([CLICKS]))
            self.answered(Meaning.EVICTED)
            return Taken([], [])

    async def act(consumer):
        await consumer.commit()
        await consumer.take()

    consuming(monkeypatch, Sending, act)
    assert [commit.offset for commit in sent] == [9]
    assert [commit.offset for commit in given] == [9]


def test_a_client_that_can_do_nothing_any_more_sends_its_last_commit_once(monkeypatch):
    """Another instance has its id; no later commit would be taken either."""
    sent = []

    class Ended(Leaving):
        def commit(self, commits, answered):
            sent.extend(commits)
            self.answered = answered

        def take(self, most, seconds):
            self.answered(Meaning.FATAL)
            return Taken([], [])

    async def act(consumer):
        with pytest.raises(LastCommitError, match="repeat 2 records"):
            await consumer.close(asyncio.get_running_loop().time() + LIMIT_SECONDS)

    consuming(monkeypatch, Ended, act)
    assert [commit.offset for commit in sent] == [9]


@pytest.mark.parametrize(
    ("ends", "epochs"), [({CLICKS: Seen(9, 4)}, [-1, 4]), ({}, [-1])], ids=["whole", "cut"]
)
def test_the_epoch_of_an_end_that_was_reached_is_asked_for(monkeypatch, ends, epochs):
    """The last record does not tell who wrote the markers of transactions behind it."""
    sent, waiting = [], []

    class Answering(Leaving):
        def commit(self, commits, answered):
            sent.extend(commits)
            waiting.append(answered)

        def take(self, most, seconds):
            while waiting:
                waiting.pop()(None)
            return Taken([], [])

    def whole_ends(_, seen):
        assert seen == {CLICKS: Seen(8, 3)}
        return ends

    async def act(consumer):
        await consumer.close(asyncio.get_running_loop().time() + LIMIT_SECONDS)

    monkeypatch.setattr(group_consumer, "whole_ends", whole_ends)
    consuming(monkeypatch, Answering, act, seen=Seen(8, 3))
    assert [(commit.offset, commit.epoch) for commit in sent] == [(9, epoch) for epoch in epochs]


def test_of_a_partition_that_is_lost_nothing_is_committed(monkeypatch):
    """The group has given it to another instance, while this one was frozen."""
    given, sent = [], []

    class Losing:
        def __init__(self, config, membership, pauses, on_assigned, on_revoked, on_lost):
            self.on_lost = on_lost

        def commit(self, commits, answered):
            sent.extend(commits)

        def take(self, most, seconds):
            given.append(self.on_lost([CLICKS]))
            return Taken([], [])

    async def act(consumer):
        await consumer.take()
        await consumer.commit()

    consuming(monkeypatch, Losing, act)
    assert (given, sent) == ([None], [])


@pytest.mark.parametrize("error", FALSE_ERRORS)
def test_lanes_that_cannot_be_made_end_the_instance_whatever_was_raised(monkeypatch, error):
    """The error passes through a future of another thread."""

    class Assigning:
        def __init__(self, config, membership, pauses, on_assigned, on_revoked, on_lost):
            self.on_assigned = on_assigned

        def take(self, most, seconds):
            self.on_assigned([])
            return Taken([], [])

    class Unassignable(PartitionSet):
        def assign(self, group, starts):
            raise error

    monkeypatch.setattr(group_consumer, "Subscription", Assigning)

    async def run():
        membership = Membership("headrace.enrich", ("clicks",))
        await GroupConsumer({}, membership, context(), Unassignable()).take()

    with pytest.raises(error):
        asyncio.run(run())
