"""A copy ends at the end that the old topic had at its start, and with what does not pass."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from headrace.errors import LinkLossError, LinkNoLeaderError, TopicChangeRefusedError
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.origin import Origin
from headrace.links import target
from headrace.links.change import copy_run, errors
from headrace.links.change.copy_run import ChangeCopy
from headrace.links.change.places import RecordPlaces
from headrace.links.change.plan import ChangePlan, NewRecords
from headrace.links.change.standing import ChangedPartition
from headrace.links.copying.carrier import CopyCarrier
from headrace.links.instance import LinkProgress
from headrace.model import Topic, TopicPartition

FIRST, SECOND = TopicPartition("old", 0), TopicPartition("old", 1)
PLACES = RecordPlaces(Topic("old"), Topic("new"))
PLAN = ChangePlan("old to new", "group", "here", "here", {}, {}, {"old": "new"}, places=PLACES)
NO_LEADER = LinkNoLeaderError("change", "old to new", "here", "old/1")
GAP = LinkLossError("change", "old to new", "here", "old/1", 7, 9, "", "gap")


class Carrier(CopyCarrier):
    committed = has_uncommitted = None  # in place of properties

    def __init__(self):
        self.committed, self.has_uncommitted = {}, False


class Instance:
    """Takes steps, each of which changes what it has done."""

    def __init__(self, steps):
        self.progress, self.carrier, self.is_stopped = LinkProgress(), Carrier(), False
        self.steps, self.taken, self.plan = steps, 0, None

    def run(self, observe):
        for step in self.steps:
            if self.is_stopped:
                return
            self.taken += 1
            step(self)
            observe(None)
        assert self.is_stopped

    def stop(self):
        self.is_stopped = True

    def status(self):
        return SimpleNamespace(reason="")


@pytest.fixture
def copied(monkeypatch):
    """``copied(*steps)``: a run over partitions that end at 10 and 20; and the steps taken."""

    def copied(*steps, own=0, late=False, copied=(0, 0), others=None):
        instance = Instance(steps)

        def made(plan, _):
            instance.plan = plan
            return instance

        parts = (ChangedPartition(0, 0, copied[0], 10), ChangedPartition(1, 0, copied[1], 20))
        last = {FIRST: Origin("here", "old", 0, 4)}
        monkeypatch.setattr(copy_run, "CopyInstance", made)
        monkeypatch.setattr(copy_run, "copied_partitions", lambda _: parts)
        monkeypatch.setattr(copy_run, "read_new", lambda *_: NewRecords(last, own, 0))
        monkeypatch.setattr(copy_run, "committed_positions", lambda _, left: others(left))
        run = ChangeCopy(PLAN, late=late)
        run.run(lambda _: None)
        return run, instance

    return copied


def committing(**committed):
    places = {"first": FIRST, "second": SECOND}

    def step(instance):
        instance.carrier.committed = {places[name]: at for name, at in committed.items()}

    return step


def refusing(error):
    def step(instance):
        instance.progress.refused = {} if error is None else {SECOND: error}

    return step


def test_it_ends_at_the_end_that_there_was_while_producers_write_on(copied):
    """Another run has the second partition; the old topic has grown since."""
    steps = [committing(first=9), committing(first=400), committing(first=800)]
    seen = []

    def others(left):
        seen.append(left)
        return {SECOND: SimpleNamespace(offset=20)}

    run, instance = copied(*steps, others=others)
    assert run.is_whole
    assert (instance.taken, seen) == (2, [{SECOND}])


def test_no_broker_is_asked_where_it_has_all_partitions(copied):
    run, _ = copied(committing(first=10, second=3), committing(first=10, second=20))
    assert run.is_whole


def test_no_broker_is_asked_within_a_transaction(copied):
    def opened(instance):
        instance.carrier.committed = {FIRST: 10}
        instance.carrier.has_uncommitted = True

    def closed(instance):
        instance.carrier.has_uncommitted = False

    run, instance = copied(opened, closed, others=lambda _: {SECOND: SimpleNamespace(offset=20)})
    assert (run.is_whole, instance.taken) == (True, 2)


def test_a_partition_without_a_leader_for_a_moment_does_not_end_it(copied):
    end = committing(first=10, second=20)
    steps = refusing(NO_LEADER), refusing(NO_LEADER), refusing(None), end
    run, _ = copied(*steps, others=dict.fromkeys)
    assert run.is_whole


def test_what_does_not_pass_ends_it_with_a_way_that_exists(copied):
    with pytest.raises(TopicChangeRefusedError, match="old/1 can't be copied further") as refused:
        copied(refusing(GAP))
    assert "2 offsets are lost, 7 to 8" in str(refused.value)
    assert "headrace change" not in str(refused.value)
    for words in errors.WORDS.values():
        assert all("headrace change" not in word.remedy for word in words.values())


def test_where_the_new_topic_has_records_of_its_own_anywhere_it_is_refused(copied):
    with pytest.raises(TopicChangeRefusedError, match="has 3 records of its own"):
        copied(own=3)
    end = committing(first=10, second=20)
    assert copied(end, own=3, late=True)[0].is_whole
    assert copied(end, own=3, copied=(10, 20))[0].is_whole


def test_all_of_the_new_topic_is_read_before_it_is_a_member_of_its_group(copied):
    _, instance = copied(committing(first=10, second=20), copied=(None, None))
    assert instance.plan.last_copies(None) == {FIRST: Origin("here", "old", 0, 4)}


def test_transactions_that_hang_are_looked_for_where_copies_are_written(monkeypatch):
    live = {"new": LiveTopic("new", "id", 2, 1)}
    monkeypatch.setattr(target, "describe", lambda _, topics: {at: live[at] for at in topics})
    written = PLAN.link_target.written_elsewhere()
    assert written == {TopicPartition("new", 0), TopicPartition("new", 1)}
    assert replace(PLAN.link_target, shared=()).written_elsewhere() == set()
