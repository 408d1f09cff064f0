"""An instance between its group and its copier: in which order it asks and commits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from headrace.errors import (
    BrokerUnreachableError,
    LinkNoPartitionError,
    LinkRecordError,
    LinkSameClusterError,
    TopicMissingError,
)
from headrace.kafka.read.resume import Position
from headrace.kafka.write.transactions import TransactionUnsettledError
from headrace.links import instance as instance_module
from headrace.links import target as target_module
from headrace.links.copying import instance as copy_module
from headrace.links.copying.instance import CopyInstance
from headrace.links.mirror.plan import MirrorPlan
from headrace.links.starts import Starts
from headrace.links.target import Rejection
from headrace.links.timing import LinkTiming
from headrace.links.writing import RejectedBatchError
from headrace.model import TopicPartition
from headrace.service.status import State

LINK = MirrorPlan("m", "g", "waw", "central", {}, {"bootstrap.servers": "t:1"}, {"a": "waw.a"})
AT_ONCE = LinkTiming(take_seconds=0, start_seconds=0, restart_seconds=0)
CHECKING = replace(AT_ONCE, check_seconds=0)
SOURCE, COPY = TopicPartition("a", 0), TopicPartition("waw.a", 0)


class World:
    """A member with one partition, and copiers that do in turn what ``copies`` says."""

    def __init__(self):
        self.calls, self.copies, self.rejections, self.ids = [], [], [], []
        self.added = []  # partitions, by copier
        self.kept = []  # offsets, by start
        self.hanging, self.missing = {}, False
        self.away, self.away_at_start = None, []
        self.starts = Starts({SOURCE: Position(0)}, {}, frozenset())
        self.clusters = {"t:1": "there", None: "here"}

    def cluster_id(self, config):
        return self.clusters[config.get("bootstrap.servers")]

    def member(self, config, group, topics, *, on_assigned, on_revoked, on_lost):
        self.client_id = config["client.id"]
        self.assign, self.revoke, self.lose = on_assigned, on_revoked, on_lost
        return SimpleNamespace(
            poll=lambda: None,
            committed=self.committed,
            metadata=lambda: None,
            close=lambda: self.calls.append("leave"),
        )

    def committed(self, _):
        self.calls.append("ask")
        return [confluent_kafka.TopicPartition("waw.a", 0, 5)]

    def end(self, target, transactional_id):
        assert target.group == "g"
        assert transactional_id == self.ids[-1]
        self.calls.append("end")

    def copier(self, _, transactional_id, rejections):
        self.calls.append("new copier")
        self.ids.append(transactional_id)
        self.rejections.append(rejections)
        return SimpleNamespace(
            remove=lambda _: None,
            add=lambda starts: self.added.append(set(starts)),
            keep=lambda offsets: self.kept.append([(at.partition, at.offset) for at in offsets]),
            move=self.copy,
            commit=self.commit,
            close=lambda: self.calls.append("abort"),
            check_topics=self.check_topics,
            is_full=False,
        )

    def commit(self, _):
        self.calls.append("commit")
        return Counter(records=1)

    def check_topics(self):
        if self.away:
            raise self.away

    def find_hanging(self, _):
        if self.missing:
            raise TopicMissingError("waw.a")
        return self.hanging

    def copy(self, _):
        act = self.copies.pop(0)
        if isinstance(act, Exception):
            raise act
        act()

    def find_starts(self, *_):
        self.calls.append("find starts")
        if self.away_at_start:
            raise self.away_at_start.pop()
        return self.starts


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(instance_module, "GroupMember", made.member)
    monkeypatch.setattr(instance_module, "end_transaction", made.end)
    monkeypatch.setattr(
        instance_module,
        "HangingTransactions",
        lambda _: SimpleNamespace(find=made.find_hanging),
    )
    monkeypatch.setattr(target_module, "cluster_id", made.cluster_id)
    monkeypatch.setattr(copy_module, "CopyCarrier", made.copier)
    monkeypatch.setattr(copy_module, "find_starts", made.find_starts)
    return made


def run(world, *copies, timing=AT_ONCE, link=LINK):
    instance = CopyInstance(link, timing)
    world.copies = [*copies, instance.stop]
    world.assign({COPY})
    instance.run(lambda _: None)
    return instance.progress


def test_a_copy_that_is_its_source_itself_is_refused_before_anything_is_copied(world):
    world.clusters["t:1"] = "here"
    with pytest.raises(LinkSameClusterError) as refusal:
        run(world, link=replace(LINK, copies={"a": "a"}))
    assert world.calls == ["leave"]
    assert refusal.value.code == "MIRROR_SAME_CLUSTER"
    assert "[sites.waw.kafka]" in refusal.value.remedy


def test_positions_are_asked_for_when_the_former_transaction_has_ended(world):
    progress = run(world, TransactionUnsettledError("no answer"))
    first, second = ("new copier", "ask", "find starts"), ("abort", "end", "new copier", "ask")
    assert world.calls[:7] == [*first, *second]
    assert world.calls[-2:] == ["abort", "leave"]
    assert progress.restarts == 1


def test_no_transaction_follows_another_one_of_an_id_that_brokers_may_have_forgotten(world):
    run(world, TransactionUnsettledError("no answer"), TransactionUnsettledError("no answer"))
    assert len(set(world.ids)) == 3


def test_a_transaction_that_could_not_be_ended_is_ended_later(world, monkeypatch):
    answers = [TransactionUnsettledError("no answer"), None]

    def end(*arguments):
        if answer := answers.pop(0):
            raise answer
        world.end(*arguments)

    monkeypatch.setattr(instance_module, "end_transaction", end)
    run(world, TransactionUnsettledError("no answer"))
    assert world.calls.count("end") == 1
    assert len(set(world.ids)) == 2


TOO_LARGE = LinkRecordError("mirror", "m", "waw", "a/0", 5, "too large")
OTHER, OTHER_COPY = TopicPartition("a", 1), TopicPartition("waw.a", 1)


@pytest.fixture
def two(world):
    world.starts = Starts({SOURCE: Position(0), OTHER: Position(0)}, {}, frozenset())
    return world


def test_a_record_that_can_not_be_copied_refuses_its_partition_and_the_others_go_on(two):
    progress = run(two, TOO_LARGE, lambda: None)
    assert progress.refused == {COPY: TOO_LARGE}
    assert two.added == [{COPY, OTHER_COPY}, {OTHER_COPY}]
    first = two.calls.index("commit")  # what came before the record
    assert two.calls[first : first + 4] == ["commit", "abort", "end", "new copier"]


def test_a_partition_whose_record_was_refused_is_tried_again_and_goes_on(two):
    progress = run(two, TOO_LARGE, lambda: None, timing=CHECKING)
    assert progress.refused == {}
    assert two.added == [{COPY, OTHER_COPY}] * 2


def test_a_record_that_stays_refused_is_tried_less_and_less_often(two, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(instance_module.time, "monotonic", lambda: clock.now)
    tries = []

    class Refusing:
        """Each copier with the partition meets the record, each other one lets time pass."""

        def pop(self, _):
            if COPY in two.added[-1]:
                tries.append(clock.now)
                return TOO_LARGE
            clock.now += 1.0
            return instance.stop if clock.now > 1000 else lambda: None

    instance = CopyInstance(LINK, replace(AT_ONCE, check_seconds=10, max_retry_seconds=40))
    two.copies = Refusing()
    two.assign({COPY, OTHER_COPY})
    instance.run(lambda _: None)
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert waits == sorted(waits)
    assert [round(wait, -1) for wait in waits[:3]] == [10, 20, 40]
    assert max(waits) <= 50


def test_a_partition_that_another_instance_takes_is_tried_anew_when_it_comes_back(two):
    progress = run(two, TOO_LARGE, lambda: two.revoke({COPY}), lambda: two.assign({COPY}))
    assert progress.refused == {}


def test_refused_records_are_sent_alone_until_each_has_refused_its_partition(two):
    one = {SOURCE: Rejection(5, "too large")}
    both = one | {OTHER: Rejection(7, "too large")}
    another = LinkRecordError("mirror", "m", "waw", "a/1", 7, "too large")
    progress = run(
        two,
        RejectedBatchError("x", {}),
        RejectedBatchError("x", one),
        RejectedBatchError("x", both),
        TOO_LARGE,
        another,
    )
    assert two.rejections == [None, {}, one, both, {OTHER: both[OTHER]}, None]
    assert progress.refused == {COPY: TOO_LARGE, OTHER_COPY: another}


def test_a_record_of_a_partition_that_another_instance_takes_is_not_waited_for(two):
    """Else all records would be sent alone until the process ends."""
    one = RejectedBatchError("x", {SOURCE: Rejection(5, "too large")})
    run(two, one, lambda: two.revoke({COPY}), TransactionUnsettledError("no answer"))
    assert two.rejections == [None, one.records, None]


def test_a_record_of_a_partition_that_stays_is_still_known_after_a_rebalance(two):
    one = RejectedBatchError("x", {SOURCE: Rejection(5, "too large")})
    run(two, one, lambda: two.revoke({OTHER_COPY}), TransactionUnsettledError("no answer"))
    assert two.rejections == [None, one.records, one.records]


def test_a_partition_that_waits_is_looked_at_again(world):
    refusal = LinkNoPartitionError("mirror", "m", "waw", "a/0")
    later = TopicPartition("a", 1)
    world.starts = Starts({}, {SOURCE: refusal}, frozenset({later}))

    def begin():
        world.starts = Starts({SOURCE: Position(0), later: Position(0)}, {}, frozenset())

    progress = run(world, begin, lambda: None, timing=CHECKING)
    assert progress.refused == {}
    # What is in the transaction is committed first: to ask may take longer than it lasts.
    asked = [n for n, call in enumerate(world.calls) if call == "find starts"]
    assert world.calls[asked[1] - 2 : asked[1]] == ["commit", "ask"]
    assert len(asked) == 2


def test_offsets_of_partitions_that_wait_are_kept_from_being_forgotten(two, monkeypatch):
    """Of those whose record is refused, too; where nothing is committed, there is none."""
    offsets = {0: 5, 1: 6, 2: OFFSET_INVALID}
    committed = [confluent_kafka.TopicPartition("waw.a", at, to) for at, to in offsets.items()]
    monkeypatch.setattr(two, "committed", lambda _: committed)
    refusal = LinkNoPartitionError("mirror", "m", "waw", "a/2")
    two.starts = replace(two.starts, refused={TopicPartition("a", 2): refusal})
    run(two, TOO_LARGE, lambda: None)
    assert two.kept == [[], [(0, 5)]]


def test_a_member_has_the_name_of_its_process(world):
    run(world)
    assert world.client_id == instance_module.process_name()


def test_a_topic_that_is_deleted_while_positions_are_looked_for_is_looked_for_again(world):
    world.away_at_start = [TopicMissingError("waw.a")]
    assert run(world, lambda: None).restarts == 1
    assert world.calls.count("find starts") == 2


def test_a_topic_that_is_deleted_while_transactions_are_looked_for_does_not_end_it(world):
    world.missing = True
    instance = CopyInstance(replace(LINK, commit_seconds=0.0), CHECKING)
    world.copies = [lambda: None, instance.stop]
    world.assign({COPY})
    instance.run(lambda _: None)
    assert instance.progress.restarts == 0


def test_an_instance_says_that_it_waits_for_a_site_until_it_answers(world):
    states = []
    instance = CopyInstance(replace(LINK, commit_seconds=0.0), CHECKING)

    def site(away):
        world.away = away

    error = BrokerUnreachableError("s:1", "no answer")
    world.copies = [lambda: site(error), lambda: site(None), instance.stop]
    world.assign({COPY})
    seen = instance.progress
    instance.run(lambda _: states.append((seen.state, seen.unreachable)))
    running = (State.RUNNING, "")
    assert states == [(State.WAITING, str(error)), running, running]


def test_an_instance_waits_for_a_site_that_is_away_when_it_begins(world):
    error = BrokerUnreachableError("s:1", "no answer")
    world.away_at_start = [error]
    instance = CopyInstance(LINK, AT_ONCE)
    seen = []
    world.copies = [instance.stop]
    world.assign({COPY})
    instance.run(lambda _: seen.append(instance.progress.state))
    assert seen[0] is State.WAITING
    assert seen[-1] is State.RUNNING


def test_an_instance_whose_brokers_hang_says_that_it_waits_until_they_answer(world, monkeypatch):
    """Its session ends with them, so the group assigns it nothing that could fail."""
    timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
    hanging, states = [], []

    def committed(_):
        if hanging:
            raise hanging.pop()
        return [confluent_kafka.TopicPartition("waw.a", 0, 5)]

    def hang():
        hanging.extend([timed_out, timed_out])
        world.lose({COPY})

    def observe(_):
        states.append((seen.state, seen.reason))
        if len(states) == 4:
            world.assign({COPY})

    monkeypatch.setattr(world, "committed", committed)
    instance = CopyInstance(LINK, AT_ONCE)
    world.copies = [hang, instance.stop]
    world.assign({COPY})
    seen = instance.progress
    instance.run(observe)
    waits = (State.WAITING, f"the target does not report committed offsets: {timed_out}")
    running = (State.RUNNING, "")
    assert states == [running, waits, waits, running, running]


def test_an_instance_whose_transaction_is_not_ended_says_that_it_waits(world, monkeypatch):
    unsettled, states = TransactionUnsettledError("no answer"), []
    answers = [unsettled, unsettled, None]

    def end(*_):
        if answer := answers.pop(0):
            raise answer

    monkeypatch.setattr(instance_module, "end_transaction", end)
    instance = CopyInstance(LINK, AT_ONCE)
    world.copies = [unsettled, instance.stop]
    world.assign({COPY})
    seen = instance.progress
    instance.run(lambda _: states.append((seen.state, seen.reason)))
    waits = (State.WAITING, "the target does not end a transaction: no answer")
    assert states == [waits, waits, waits, (State.RUNNING, "")]


def test_an_instance_says_where_a_transaction_stops_readers(world):
    reasons = []
    instance = CopyInstance(replace(LINK, commit_seconds=0.0), CHECKING)
    world.copies = [lambda: world.hanging.update({COPY: 1_234}), world.hanging.clear, instance.stop]
    world.assign({COPY})
    seen = instance.progress
    instance.run(lambda _: reasons.append((seen.state, seen.reason)))
    hanging = (
        "a transaction in waw.a/0 is open since offset 1,234 and has not ended: readers of "
        "committed records wait there"
    )
    running = State.RUNNING
    assert reasons == [(running, hanging), (running, ""), (running, "")]


def test_an_instance_that_is_not_told_its_positions_says_so_and_looks_why(world, monkeypatch):
    refusal = KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))
    answers = [refusal, refusal, [confluent_kafka.TopicPartition("waw.a", 0, 5)]]
    reasons = []

    def committed(_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            world.hanging = {COPY: 7} if len(answers) == 1 else {}
            raise answer
        world.hanging = {}
        return answer

    monkeypatch.setattr(world, "committed", committed)
    world.copies = [lambda: None, lambda: None]
    instance = CopyInstance(replace(LINK, commit_seconds=0.0), CHECKING)
    world.copies.append(instance.stop)
    world.assign({COPY})
    seen = instance.progress
    instance.run(lambda _: reasons.append((seen.state, seen.reason)))
    waiting, running = State.WAITING, State.RUNNING
    assert reasons[0][0] is waiting
    assert reasons[0][1].startswith("the target does not report committed offsets")
    assert reasons[1][0] is waiting
    assert reasons[1][1].startswith("a transaction in waw.a/0 is open since offset 7")
    assert reasons[-1] == (running, "")
