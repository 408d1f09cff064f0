"""Exactly-once workers on a model of brokers: completion, failures, rebalances in any order."""

import asyncio
import random
import threading
from collections import Counter, defaultdict
from datetime import timedelta

import pytest
from tests.waiting import until

from headrace.errors import (
    LastCommitError,
    RecordRejectedError,
    TopicMissingError,
    WorkerStateError,
)
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.group.group_member import NoMemberError
from headrace.kafka.group.start_positions import StartPosition
from headrace.kafka.group.subscription import Membership, Taken
from headrace.kafka.write.record import ProducerRecord, weight_of
from headrace.kafka.write.transactions import TransactionFencedError, TransactionUnsettledError
from headrace.model import Guarantee, Topic, TopicPartition
from headrace.testing.bench_instance import Message, SentRecord
from headrace.workers import KeyHash, Retry, Skip, Worker, WorkerTask
from headrace.workers.consumer_group import group_consumer
from headrace.workers.exactly_once import consumer, output_topics, transactions
from headrace.workers.exactly_once.consumer import ExactlyOnceConsumer
from headrace.workers.exactly_once.dead_letters import HeldDeadLetters
from headrace.workers.exactly_once.output_topics import OutputTopic, OutputTopics
from headrace.workers.exactly_once.sender import HoldingSender
from headrace.workers.exactly_once.transactions import MAX_BYTES, TransactionSize
from headrace.workers.failures.failures import Failures
from headrace.workers.lanes.context import LaneContext
from headrace.workers.lanes.partition_set import PartitionSet
from headrace.workers.lanes.threads import TaskThreads

PARTITIONS = [TopicPartition("clicks", number) for number in range(2)]
RECORDS = 40
KEYS = 6
OUTCOMES = ("committed",) * 8 + ("refused", "refused", "committed, no answer", "lost, no answer")


class Brokers:
    """A topic, a group and an output. Members are known by numbers; a generation is a member's."""

    def __init__(self, rng):
        self.rng, self.lock = rng, threading.RLock()
        self.committed, self.output = {}, []
        self.wanted = defaultdict(set)
        self.owner, self.generation = {}, Counter()
        self.faults, self.max_bytes = True, MAX_BYTES

    def evict(self, member):
        """It is silent for too long: others may have its partitions at once."""
        with self.lock:
            self.generation[member] += 1
            self.owner = {p: owner for p, owner in self.owner.items() if owner != member}

    def commit(self, member, records, offsets):
        with self.lock:
            number, generation = member
            if sum(map(weight_of, records)) > self.max_bytes:
                raise TransactionUnsettledError("it takes too long")
            if generation != self.generation[number]:
                raise TransactionFencedError("another generation")
            outcome = self.rng.choice(OUTCOMES) if self.faults else "committed"
            if outcome == "refused":
                raise TransactionFencedError("rebalancing")
            if outcome.startswith("committed"):
                self.output += [int(record.value) for record in records]
                for offset in offsets:
                    place = TopicPartition(offset.topic, offset.partition)
                    self.committed[place] = (offset.offset, offset.metadata)
            if outcome.endswith("no answer"):
                raise TransactionUnsettledError("no answer")


class ModelSubscription:
    """A member of the group, as ``Subscription`` is; all on the consumer's thread."""

    def __init__(self, brokers, number, pauses, on_assigned, on_revoked, on_lost):
        self.brokers, self.number, self.pauses = brokers, number, pauses
        self.on_assigned, self.on_revoked, self.on_lost = on_assigned, on_revoked, on_lost
        self.generation, self.positions = brokers.generation[number], {}
        self.is_closing = False

    def member_metadata(self):
        if not self.positions:
            raise NoMemberError("no partitions")
        return self.number, self.generation

    def take(self, room, seconds):
        brokers = self.brokers
        if self.generation != brokers.generation[self.number]:
            gone, self.positions = list(self.positions), {}
            self.on_lost(gone)
            with brokers.lock:
                self.generation = brokers.generation[self.number]
                for place in gone:  # it may have been given just when it was evicted
                    if brokers.owner.get(place) == self.number:
                        del brokers.owner[place]
        wanted = set() if self.is_closing else brokers.wanted[self.number]
        self.give_back([place for place in self.positions if place not in wanted])
        with brokers.lock:
            free = [place for place in wanted if brokers.owner.get(place) is None]
            brokers.owner.update(dict.fromkeys(free, self.number))
        if free:
            starts = [self.start(place) for place in free]
            self.positions.update({start.partition: start.position for start in starts})
            self.on_assigned(starts)
        records = []
        for place, position in self.positions.items():
            if place not in self.pauses.partitions:
                end = min(RECORDS, position + brokers.rng.randrange(4))
                records += [self.message(place, offset) for offset in range(position, end)]
                self.positions[place] = end
        return Taken(records, [])

    def start(self, place):
        return StartPosition(place, *self.brokers.committed.get(place, (0, "")), "id")

    def message(self, place, offset):
        value = place.partition * 1000 + offset
        return Message(
            place, offset, SentRecord("clicks", b"%d" % value, b"%d" % (value % KEYS)), 0
        )

    def give_back(self, places):
        if places:
            assert self.on_revoked(places) == []
            with self.brokers.lock:
                for place in places:
                    del self.positions[place]
                    if self.brokers.owner.get(place) == self.number:
                        del self.brokers.owner[place]

    def is_joining(self):
        return False

    def begin_close(self):
        self.is_closing = True

    def close(self):
        self.give_back(list(self.positions))


class ModelTransactions:
    """Transactions at the model, as ``Transactions``."""

    def __init__(self, brokers):
        self.brokers = brokers

    def write(self, records, offsets, group):
        self.brokers.commit(group, records, offsets)

    def settle(self):
        if self.brokers.faults and self.brokers.rng.random() < 0.3:
            raise TransactionUnsettledError("no answer")

    def close(self):
        """No transaction is open outside of a call."""


class Instance:
    """The lanes of a worker with its consumer."""

    def __init__(self, brokers, number, worker, failures):
        sender = HoldingSender(OutputTopics({}))
        context = LaneContext(
            worker,
            worker.task,
            TaskThreads(1, "task"),
            sender.send,
            Failures(worker, HeldDeadLetters(worker, {}, sender.send), sender.send),
            Counter(),
            failures.append,
        )
        self.assignments = PartitionSet(context)
        membership = Membership(f"member {number}", ("clicks",))
        consumer_ = ExactlyOnceConsumer({}, membership, context, self.assignments, lambda: 1)
        consumer_._transactions = ModelTransactions(brokers)
        self.consumer, self.stopping = consumer_, asyncio.Event()
        self.reading = asyncio.create_task(consumer_.read(self.stopping))

    async def stop(self):
        self.stopping.set()
        await self.assignments.drain(1.0)
        self.reading.cancel()
        await self.consumer.close(asyncio.get_running_loop().time() + 60)


def sending(rng):
    class Sending(WorkerTask):
        async def process(self, record):
            self.send("out", record.value)
            await asyncio.sleep(rng.choice((0, 0, 0.001, 0.01)))
            if rng.random() < 0.2 and record.attempt < 10:
                raise ConnectionError("no answer")

    return Sending


async def worked(brokers, rng):
    """Two instances, while partitions move and members are evicted; returns what failed."""
    failures = []
    worker = Worker(
        "w",
        Topic("clicks"),
        sending(rng),
        partitioner=KeyHash(4),
        on_failure=Retry(attempts=11, first_delay=timedelta(0), then=Skip()),
        commit_every=timedelta(milliseconds=2),
        revoke_timeout=timedelta(milliseconds=rng.choice((0, 5, 1000))),
        guarantee=Guarantee.EXACTLY_ONCE,
    )
    instances = [Instance(brokers, number, worker, failures) for number in range(2)]
    for _ in range(6):
        for place in PARTITIONS:
            number = rng.randrange(2)
            brokers.wanted[number].add(place)
            brokers.wanted[1 - number].discard(place)
        await asyncio.sleep(rng.choice((0.01, 0.05)))
        if rng.random() < 0.4:
            brokers.evict(rng.randrange(2))
    brokers.faults = False
    await until(lambda: failures or is_all_committed(brokers) or ended(instances))
    ended(instances)
    for instance in instances:
        await instance.stop()
    return list(failures)  # the end of the loop ends lanes, too


def ended(instances):
    for instance in instances:
        if instance.reading.done():
            instance.reading.result()
    return False


def is_all_committed(brokers):
    offsets = [brokers.committed.get(place, (0, ""))[0] for place in PARTITIONS]
    return offsets == [RECORDS] * len(PARTITIONS)


@pytest.mark.parametrize("transaction_bytes", [2**20, 300])
@pytest.mark.parametrize("metadata_bytes", [0, 60, 4096])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_readers_see_what_was_sent_for_each_record_once(
    monkeypatch, metadata_bytes, seed, transaction_bytes
):
    rng = random.Random(f"{seed} {metadata_bytes}")
    brokers = modelled(monkeypatch, rng, metadata_bytes)
    for name in ("_FIRST_BYTES", "_MIN_BYTES", "MAX_BYTES"):
        monkeypatch.setattr(transactions, name, transaction_bytes)
    assert asyncio.run(worked(brokers, rng)) == []
    check_each_once(brokers)


def modelled(monkeypatch, rng, metadata_bytes=4096):
    """Returns brokers that instances use from now on."""
    brokers = Brokers(rng)

    def subscription(config, membership, *callbacks):
        return ModelSubscription(brokers, int(membership.group.split()[1]), *callbacks)

    monkeypatch.setattr(group_consumer, "Subscription", subscription)
    monkeypatch.setattr(group_consumer, "whole_ends", lambda *_: {})
    monkeypatch.setattr(consumer, "offset_metadata_bytes", lambda _: metadata_bytes)
    monkeypatch.setattr(output_topics, "describe", described)
    monkeypatch.setattr(consumer, "describe", described)
    monkeypatch.setattr(output_topics, "topic_settings", lambda *_: {})
    return brokers


def check_each_once(brokers):
    expected = [place.partition * 1000 + n for place in PARTITIONS for n in range(RECORDS)]
    assert Counter(brokers.output) == Counter(expected)
    for partition in range(len(PARTITIONS)):
        for key in range(KEYS):
            of_key = [v for v in brokers.output if v // 1000 == partition and v % KEYS == key]
            assert of_key == sorted(of_key)


@pytest.mark.parametrize("are_moved", [False, True])
def test_brokers_that_take_a_part_of_what_is_held_get_no_more_in_a_transaction(
    monkeypatch, are_moved
):
    class Large(WorkerTask):
        async def process(self, record):
            done.append(record.offset)
            self.send("out", record.value.ljust(50_000))

    async def run():
        failures = []
        worker = Worker(
            "w",
            Topic("clicks"),
            Large,
            partitioner=KeyHash(4),
            commit_every=timedelta(seconds=1),
            guarantee=Guarantee.EXACTLY_ONCE,
        )
        instances = [Instance(brokers, number, worker, failures) for number in range(2)]
        brokers.wanted[0] = set(PARTITIONS)
        if are_moved:  # with what it holds then
            await until(lambda: len(done) > RECORDS)
            brokers.wanted[0], brokers.wanted[1] = set(), set(PARTITIONS)
        await until(lambda: failures or is_all_committed(brokers) or ended(instances))
        for instance in instances:
            await instance.stop()
        return failures

    done, brokers = [], modelled(monkeypatch, random.Random(1))
    brokers.faults, brokers.max_bytes = False, 300_000
    assert asyncio.run(run()) == []
    check_each_once(brokers)


def test_a_transaction_is_as_large_as_brokers_take_in_time():
    size = TransactionSize()
    first = size.bytes
    assert first <= MAX_BYTES / 8, "brokers may be slow"
    size.committed(10, 0.01)
    assert size.bytes == first, "nothing is known about larger ones"
    while size.bytes < MAX_BYTES:
        size.committed(size.bytes, 0.5)
    size.committed(size.bytes, 9.0)
    assert size.bytes == MAX_BYTES
    size.committed(size.bytes, 20.0)
    assert size.bytes == MAX_BYTES // 2
    for _ in range(10):
        size.failed()
    assert 0 < size.bytes < first


def described(config, topics):
    return {name: LiveTopic(name, "id", 3, 1) for name in topics}


def copying(**settings):
    """Returns an instance whose task copies records, the next time a loop runs."""

    class Copy(WorkerTask):
        async def process(self, record):
            self.send("out", record.value)

    return Worker("w", Topic("clicks"), Copy, guarantee=Guarantee.EXACTLY_ONCE, **settings)


def test_an_instance_whose_topic_was_deleted_ends_with_its_name(monkeypatch):
    async def run():
        instance = Instance(brokers, 0, copying(commit_every=timedelta(milliseconds=2)), [])
        await until(instance.reading.done)
        with pytest.raises(TopicMissingError) as raised:
            instance.reading.result()
        with pytest.raises(LastCommitError):
            await instance.stop()
        return raised.value

    brokers = modelled(monkeypatch, random.Random(1))
    brokers.wanted[0], brokers.max_bytes = set(PARTITIONS), 0
    monkeypatch.setattr(consumer, "describe", lambda *_: {})
    error = asyncio.run(run())
    assert error.topic == "out"


def test_a_stop_while_it_starts_over_ends_with_what_was_not_committed(monkeypatch):
    async def run():
        instance = Instance(brokers, 0, copying(commit_every=timedelta(milliseconds=2)), [])
        monkeypatch.setattr(instance.consumer._transactions, "settle", settle)
        await until(is_settling.is_set)
        with pytest.raises(LastCommitError, match="may repeat"):
            await instance.stop()

    def settle():
        is_settling.set()
        raise TransactionUnsettledError("brokers are silent")

    is_settling, brokers = threading.Event(), modelled(monkeypatch, random.Random(1))
    brokers.wanted[0], brokers.max_bytes = set(PARTITIONS), 0
    asyncio.run(run())


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (ProducerRecord("out", b"k", b"v", (), 3), "it has 3 partitions, and none of number 3"),
        (ProducerRecord("out", b"k", b"v" * 1000, ()), "max.message.bytes of the topic is 1000"),
        (ProducerRecord("out", None, b"v", ()), "no key, and cleanup.policy"),
    ],
)
def test_what_a_topic_would_refuse_is_refused_before_a_transaction_has_it(record, reason):
    topic = OutputTopic("out", 3, 1000, is_compacted=True)
    fault = topic.fault(record, weight_of(record))
    assert isinstance(fault, RecordRejectedError)
    assert reason in str(fault)
    assert topic.fault(ProducerRecord("out", b"k", b"v", (), 2), 112) is None


def test_a_send_for_no_record_is_an_error():
    async def run():
        HoldingSender(OutputTopics({})).send("out", b"v")

    with pytest.raises(WorkerStateError, match="outside of a task's methods"):
        asyncio.run(run())
