"""Commits of an instance on mock brokers whose coordinator is slow, or refuses."""

import asyncio
import ctypes
import uuid
from datetime import timedelta
from types import SimpleNamespace

import confluent_kafka
import pytest
from tests.contracts.worker import FAST
from tests.integration.instances import (
    drill,
    recorder,
    running,
    total,
    until_brokers_say,
)
from tests.integration.librdkafka import handle, library
from tests.unit.workers.test_contract import MockBench, describe
from tests.waiting import LIMIT_SECONDS, until, wait_for

from headrace.errors import LastCommitError
from headrace.kafka.client import admin_requests
from headrace.kafka.group import start_positions
from headrace.kafka.group.subscription import Membership, Pauses, Subscription
from headrace.kafka.table import topic_table as table
from headrace.service.status import State
from headrace.workers import RoundRobin, WorkerInstance, WorkerTask
from headrace.workers.consumer_group import group_consumer, needed_topics, pause_requests

COORDINATOR, LEADER = 1, 2
OFFSET_COMMIT = 8
GROUP_HEARTBEAT = 68
FOREVER_MS = 600_000


class Mock:
    """Two brokers: one coordinates the group, the other has the records."""

    def __init__(self):
        conf = {"bootstrap.servers": "-", "test.mock.num.brokers": "2"}
        self._owner = confluent_kafka.Producer(conf)
        self._functions = library()
        self._functions.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
        self._mock = ctypes.c_void_p(
            self._functions.rd_kafka_handle_mock_cluster(handle(self._owner))
        )
        self._functions.rd_kafka_mock_group_initial_rebalance_delay_ms(self._mock, 0)
        brokers = self._owner.list_topics(timeout=LIMIT_SECONDS).brokers.values()
        self.servers = ",".join(f"{one.host}:{one.port}" for one in brokers)

    def place(self, group, topic):
        set_coordinator = self._functions.rd_kafka_mock_coordinator_set
        set_coordinator(self._mock, b"group", group.encode(), COORDINATOR)
        for partition in range(4):
            self._functions.rd_kafka_mock_partition_set_leader(
                self._mock, topic.encode(), partition, LEADER
            )

    def set_away(self, is_away):
        """Whether both brokers are down."""
        name = "down" if is_away else "up"
        for broker in (COORDINATOR, LEADER):
            getattr(self._functions, f"rd_kafka_mock_broker_set_{name}")(self._mock, broker)

    def delay(self, milliseconds):
        """Of every answer of the coordinator."""
        self._functions.rd_kafka_mock_broker_set_rtt(self._mock, COORDINATOR, milliseconds)

    def beat_every(self, milliseconds):
        """Members of the newer protocol, which give a heartbeat up after as long."""
        self._functions.rd_kafka_mock_set_group_consumer_heartbeat_interval_ms(
            self._mock, milliseconds
        )

    def track_requests(self):
        self._functions.rd_kafka_mock_start_request_tracking(self._mock)
        self._functions.rd_kafka_mock_get_requests.restype = ctypes.POINTER(ctypes.c_void_p)
        self._functions.rd_kafka_mock_request_api_key.restype = ctypes.c_int16

    def requests(self, kind):
        """How many of a kind came since they are tracked."""
        count = ctypes.c_size_t()
        made = self._functions.rd_kafka_mock_get_requests(self._mock, ctypes.byref(count))
        key = self._functions.rd_kafka_mock_request_api_key
        kinds = [key(ctypes.c_void_p(made[number])) for number in range(count.value)]
        self._functions.rd_kafka_mock_request_destroy_array(made, count)
        return kinds.count(kind)

    def answer_late(self, request, milliseconds):
        """The next request of a kind; answers on the same connection wait behind that one."""
        push = self._functions.rd_kafka_mock_broker_push_request_error_rtts
        push(self._mock, COORDINATOR, request, 1, 0, milliseconds)

    def refuse_commits(self, error, times):
        push = self._functions.rd_kafka_mock_broker_push_request_error_rtts
        for _ in range(times):
            push(self._mock, COORDINATOR, OFFSET_COMMIT, 1, error, 0)


@pytest.fixture
def made(monkeypatch):
    """A worker of its own on brokers of its own: ``made(task)``."""
    for module in (admin_requests, start_positions, table, pause_requests, needed_topics):
        monkeypatch.setattr(module, "describe", describe)
    mock = Mock()

    def make(task, **declared):
        bench = MockBench(mock.servers, name=f"records-{uuid.uuid4().hex[:8]}")
        worker = bench.worker(task, **{**FAST, **declared})
        mock.place(worker.consumer_group, bench.topic.name)
        return SimpleNamespace(bench=bench, worker=worker, mock=mock)

    return make


def test_records_are_processed_while_a_commit_is_not_answered(made):
    seen, task = recorder()
    here = made(task)
    here.bench.send(10)
    membership = Membership(here.worker.consumer_group, session_seconds=40.0)
    instance = WorkerInstance(here.worker, here.bench.client, membership=membership)

    async def run():
        async with running(instance):
            await until(lambda: instance.counts["commits"])
            here.mock.delay(10_000)
            here.bench.send(10, first=10)
            await until(lambda: total(seen) == 20)
            await asyncio.sleep(0.3)  # a few times `commit_every`: one is on its way
            commits = instance.counts["commits"]
            here.bench.send(10, first=20)
            await until(lambda: total(seen) == 30)
            assert instance.counts["commits"] == commits
            here.mock.delay(0)
            await until(lambda: here.bench.committed(here.worker) == {0: 30})

    drill(run())


def test_an_instance_ends_though_its_last_commit_is_not_answered(made, monkeypatch):
    monkeypatch.setattr(group_consumer, "LAST_SECONDS", 0.5)
    monkeypatch.setattr(group_consumer, "LEAVE_SECONDS", 0.5)
    seen, task = recorder()
    here = made(task, drain_timeout=timedelta(0))
    here.bench.send(10)
    instance = here.bench.instance(here.worker)

    async def run():
        ended = asyncio.create_task(instance.run())
        await until(lambda: here.bench.committed(here.worker) == {0: 10})
        here.mock.delay(FOREVER_MS)
        here.bench.send(10, first=10)
        await until(lambda: total(seen) == 20)
        instance.stop()
        with pytest.raises(LastCommitError, match="may repeat 10 records"):
            await ended
        here.mock.delay(0)  # for the consumer, which was left to itself

    drill(run())
    assert instance.state is State.FAILED


def test_it_drains_as_soon_as_it_is_asked_to_and_commits_first(made):
    """Though a record in process takes its time, and the coordinator too."""
    go_on, seen = asyncio.Event(), []

    class OneSlow(WorkerTask):
        async def process(self, record):
            if record.offset == 5:
                await go_on.wait()
            seen.append(record.offset)

    here = made(OneSlow, partitioner=RoundRobin(8), commit_every=FAST["commit_every"] * 10_000)
    here.bench.send(10)
    instance = here.bench.instance(here.worker)

    async def run():
        ended = asyncio.create_task(instance.run())
        await until(lambda: len(seen) == 9)
        instance.stop()
        await until(lambda: instance.state is State.DRAINING)
        await until(lambda: here.bench.committed(here.worker) == {0: 5})
        assert instance.state is State.DRAINING
        go_on.set()
        await ended

    drill(run())
    assert here.bench.committed(here.worker) == {0: 10}


def waiting(instance):
    return (lane.waiting for lane in instance.assignments.lanes)


def test_while_kafka_is_away_records_are_processed_and_it_goes_on_when_kafka_is_back(made):
    may_begin, seen = asyncio.Event(), []

    class Gated(WorkerTask):
        async def process(self, record):
            await may_begin.wait()
            seen.append(record.offset)

    here = made(Gated)
    here.bench.send(10)
    instance = here.bench.instance(here.worker)

    async def run():
        async with running(instance):
            await until(lambda: instance.assignments and sum(waiting(instance)) == 9)
            here.mock.set_away(True)
            may_begin.set()
            await until(lambda: seen == list(range(10)))
            here.mock.set_away(False)
            await until_brokers_say(lambda: here.bench.committed(here.worker) == {0: 10})
            await asyncio.to_thread(here.bench.send, 10, first=10)
            await until_brokers_say(lambda: here.bench.committed(here.worker) == {0: 20})

    drill(run())
    assert seen == list(range(20))


def test_brokers_that_take_less_metadata_get_commits_without_ranges(made):
    go_on, seen = asyncio.Event(), []

    class OneSlow(WorkerTask):
        async def process(self, record):
            if record.offset == 5:
                await go_on.wait()
            seen.append(record.offset)

    here = made(OneSlow, partitioner=RoundRobin(8))
    here.bench.send(10)
    too_large = confluent_kafka.KafkaError.OFFSET_METADATA_TOO_LARGE
    instance = here.bench.instance(here.worker)

    async def run():
        here.mock.refuse_commits(too_large, 1)
        async with running(instance):
            await until(lambda: here.bench.committed(here.worker) == {0: 5})
            assert here.bench.metadata(here.worker) == ""
            go_on.set()

    drill(run())
    assert here.bench.committed(here.worker) == {0: 10}


def test_a_commit_that_a_rebalance_refused_is_sent_again_at_once(made):
    seen, task = recorder()
    here = made(task, commit_every=FAST["commit_every"] * 20)
    here.bench.send(10)
    here.mock.refuse_commits(confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS, 3)
    instance = here.bench.instance(here.worker)

    async def run():
        async with running(instance):
            await until(lambda: instance.counts["commits"])
            assert instance.counts["commits"] == 1
            assert here.bench.committed(here.worker) == {0: 10}

    drill(run())
    assert total(seen) == 10


def test_a_heartbeat_that_is_answered_late_takes_no_commit_with_it(made):
    """With the newer protocol the connection was closed then, and a commit on it was lost."""
    here = made(recorder()[1])
    here.mock.beat_every(2000)
    here.bench.send(10)
    membership = Membership(here.worker.consumer_group, protocol="consumer")
    instance = WorkerInstance(here.worker, here.bench.client, membership=membership)

    async def run():
        async with running(instance):
            await until(lambda: instance.counts["commits"])
            before = instance.counts["commits"]
            here.mock.answer_late(GROUP_HEARTBEAT, 3500)
            here.mock.track_requests()
            await until(lambda: here.mock.requests(GROUP_HEARTBEAT))
            here.bench.send(10, first=10)  # their commit waits behind the heartbeat
            await until(lambda: here.bench.committed(here.worker) == {0: 20})
            # Where records came slowly there were several, and the last answer is on its way.
            await until(
                lambda: here.mock.requests(OFFSET_COMMIT) == instance.counts["commits"] - before
            )
            assert instance.counts["commits"] > before

    drill(run())


def test_partitions_that_come_while_it_ends_are_no_failure_although_nothing_is_committed(made):
    here, seen = made(recorder()[1]), []
    here.bench.send(10)
    membership = Membership(here.worker.consumer_group, (here.bench.topic.name,))
    one = Subscription(
        here.bench.client, membership, Pauses(), seen.append, lambda gone: [], lambda lost: None
    )
    one.begin_close()

    def is_assigned():
        assert one.take(10, 0.1) == ([], [])
        return one._consumer.assignment()

    wait_for(is_assigned)
    assert [one.take(10, 0.1) for _ in range(10)] == [([], [])] * 10
    one.close()
    assert seen == []
