"""Exactly-once workers on a model of brokers: completion, failures, rebalances in any order."""

import asyncio
import random
import threading
from collections import Counter
from datetime import timedelta

import pytest
from tests.unit.workers.model_brokers import (
    KEYS,
    PARTITIONS,
    RECORDS,
    Instance,
    ended,
    is_all_committed,
    model_brokers,
    move,
)
from tests.waiting import until

from headrace.errors import (
    LastCommitError,
    RecordRejectedError,
    TopicMissingError,
    WorkerStateError,
)
from headrace.kafka.write.record import ProducerRecord, weight_of
from headrace.kafka.write.transactions import TransactionUnsettledError
from headrace.model import Guarantee, Topic
from headrace.workers import KeyHash, Retry, Skip, Worker, WorkerTask
from headrace.workers.exactly_once import consumer
from headrace.workers.exactly_once.output_topics import OutputTopic, OutputTopics
from headrace.workers.exactly_once.sender import HoldingSender
from headrace.workers.exactly_once.transactions import MAX_BYTES, TransactionSize
from headrace.workers.lanes.offsets import PartitionOffsets


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
        move(brokers, rng)
        await asyncio.sleep(rng.choice((0.01, 0.05)))
        if rng.random() < 0.4:
            brokers.evict(rng.randrange(2))
    brokers.faults = False
    await until(lambda: failures or is_all_committed(brokers, instances) or ended(instances))
    ended(instances)
    for instance in instances:
        await instance.stop()
    return list(failures)  # the end of the loop ends lanes, too


@pytest.mark.parametrize("transaction_bytes", [2**20, 300])
@pytest.mark.parametrize("metadata_bytes", [0, 60, 4096])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_readers_see_what_was_sent_for_each_record_once(
    monkeypatch, metadata_bytes, seed, transaction_bytes
):
    rng = random.Random(f"{seed} {metadata_bytes}")
    brokers = model_brokers(monkeypatch, rng, metadata_bytes, transaction_bytes)
    assert asyncio.run(worked(brokers, rng)) == []
    check_each_once(brokers)


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
        await until(lambda: failures or is_all_committed(brokers, instances) or ended(instances))
        for instance in instances:
            await instance.stop()
        return failures

    done, brokers = [], model_brokers(monkeypatch, random.Random(1))
    brokers.faults, brokers.max_bytes = False, 300_000
    assert asyncio.run(run()) == []
    check_each_once(brokers)


def test_what_was_done_before_a_restart_comes_again_where_a_commit_can_not_say_it_any_more(
    monkeypatch,
):
    async def run():
        failures = []
        instance = Instance(brokers, 0, copying(commit_every=timedelta(milliseconds=2)), failures)
        await until(lambda: failures or is_all_committed(brokers, [instance]))
        await instance.stop()
        return failures

    brokers = model_brokers(monkeypatch, random.Random(1), metadata_bytes=0)
    brokers.faults, brokers.wanted[0] = False, set(PARTITIONS)
    done = [(6, 9), (10, 20)]
    for place in PARTITIONS:
        brokers.committed[place] = (5, PartitionOffsets(5, done).metadata("id"))
    assert asyncio.run(run()) == []
    offsets = {5, 9, *range(20, RECORDS)}
    assert sorted(brokers.output) == [1000 * n + at for n in (0, 1) for at in sorted(offsets)]


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

    brokers = model_brokers(monkeypatch, random.Random(1))
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

    is_settling, brokers = threading.Event(), model_brokers(monkeypatch, random.Random(1))
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
