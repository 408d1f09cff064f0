"""Workers that keep a state, on a real broker: it is restored, refused and deleted."""

import asyncio
import json
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.contracts.worker_state import StateContract, counting
from tests.integration.instances import Bench, drill, running, until_brokers_say
from tests.kafka_topics import grow_topic, make_topic
from tests.waiting import FLUSH_SECONDS

from headrace.errors import ProcessingFailedError, StateRefusedError, StateTooLargeError
from headrace.kafka.admin.topics import delete_topic
from headrace.kafka.client.clients import connected_producer
from headrace.kafka.client.offsets import commit_offsets
from headrace.kafka.dead_letters.letters import scan
from headrace.kafka.table.changelog import write_changelog
from headrace.kafka.table.topic_table import table_records
from headrace.model import Guarantee, TopicPartition
from headrace.settings import KafkaSettings, Settings
from headrace.workers import KeyHash, WorkerTask
from headrace.workers.reset import reset
from headrace.workers.state.changelog import read_state
from headrace.workers.state.clearing import clear_state

START_MS = 1_700_000_000_000
FAST = {"commit_every": timedelta(milliseconds=100)}


class StateBench(Bench):
    """As :class:`tests.contracts.worker_state.StateBench`."""

    def __init__(self, bootstrap, partitions=1):
        super().__init__(bootstrap, partitions)
        self.output, self.fed = f"{self.topic.name}-out", 0
        self.create(self.output)
        self.create(self.topic.dead_letters)

    def worker(self, task, **declared):
        declared = {"guarantee": Guarantee.EXACTLY_ONCE, "state": int} | declared
        made = super().worker(task, **FAST | declared)
        self.create_state(made)
        return made

    def create_state(self, worker, config=None):
        config = {"cleanup.policy": "compact"} | (config or {})
        make_topic(self.client, worker.state_topic, self.topic.partitions, config=config)

    def feed(self, worker, *records):
        """By an instance that runs for them alone."""
        sender = connected_producer(self.client)
        for key, value in records:
            sender.produce(self.topic.name, value, key, partition=0)
        assert sender.flush(FLUSH_SECONDS) == 0
        self.fed += len(records)
        drill(self.run(worker))

    async def run(self, worker):
        instance = self.instance(worker)
        running = asyncio.create_task(instance.run())
        await until_brokers_say(lambda: running.done() or self.committed(worker) == {0: self.fed})
        instance.stop()
        await running

    def values(self, worker):
        return {key.decode(): json.loads(value) for key, value in self.stored(worker).items()}

    def sent(self):
        records = table_records(self.client, self.output, settled=True)
        return [(record.key().decode(), record.value().decode()) for record in records]

    def letters(self):
        letters = scan(self.client, self.topic.name)
        return [(stored.letter.offset, stored.letter.reason) for stored in letters]

    def stored(self, worker, number=0):
        return read_state(self.client, TopicPartition(worker.state_topic, number)).values

    def counts(self):
        """What was sent for each key, as readers of committed records see it."""
        counts = defaultdict(list)
        for record in table_records(self.client, self.output, settled=True):
            counts[record.key()].append(int(record.value()))
        return dict(counts)


@pytest.fixture
def bench(broker):
    return StateBench(broker.bootstrap_servers)


class TestStateOnKafka(StateContract):
    """The contract of workers with a state, on a real broker; each feed is of another instance."""


def run_until(bench, worker, condition):
    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(condition)

    drill(run())


def run_until_committed(bench, worker, offsets):
    run_until(bench, worker, lambda: bench.committed(worker) == offsets)


def until_failed(bench, worker):
    async def run():
        await bench.instance(worker).run()

    drill(run())


def test_counts_continue_in_the_next_instance_with_other_subpartitions(bench):
    counter = bench.worker(counting(bench), partitioner=KeyHash(4))
    bench.send(40, keys=5)
    run_until_committed(bench, counter, {0: 40})
    bench.send(40, first=40, keys=5)
    run_until_committed(bench, replace(counter, partitioner=KeyHash(3)), {0: 80})
    assert bench.counts() == {b"%d" % key: list(range(1, 17)) for key in range(5)}
    assert bench.stored(counter) == {b"%d" % key: b"16" for key in range(5)}


def test_a_partition_that_moves_is_restored_before_its_first_record(broker):
    bench = StateBench(broker.bootstrap_servers, partitions=4)
    counter = bench.worker(counting(bench), partitioner=KeyHash(4))

    async def run():
        first, second = bench.instance(counter), bench.instance(counter)
        async with running(first):
            await asyncio.to_thread(bench.send, 200, keys=20)
            await until_brokers_say(lambda: sum(bench.committed(counter).values()) == 200)
            async with running(second):
                await until_brokers_say(lambda: len(second.assignments or ()) == 2)
                await asyncio.to_thread(bench.send, 200, first=200, keys=20)
                await until_brokers_say(lambda: sum(bench.committed(counter).values()) == 400)
                figures = [first.state_figures, second.state_figures]
                assert sum(figure["state_keys"] for figure in figures) == 20
                assert all(figure["state_restoring"] == 0 for figure in figures)

    drill(run())
    assert bench.counts() == {b"%d" % key: list(range(1, 21)) for key in range(20)}


def test_a_value_that_the_topic_does_not_take_fails_its_record(bench):
    class Large(WorkerTask):
        async def process(self, record):
            self.state.set("v" * 80_000)

    counter = Bench.worker(bench, Large, guarantee=Guarantee.EXACTLY_ONCE, state=str, **FAST)
    bench.create_state(counter, {"max.message.bytes": "70000"})
    bench.send(1, keys=1)
    with pytest.raises(ProcessingFailedError, match=r"max\.message\.bytes of the topic is 70000"):
        until_failed(bench, counter)
    assert (bench.committed(counter).get(0, 0), bench.stored(counter)) == (0, {})


def test_more_than_the_worker_allows_ends_the_instance(bench):
    counter = bench.worker(counting(bench), state_bytes=8)
    bench.send(20, keys=20)
    with pytest.raises(StateTooLargeError, match="has more than 8 bytes"):
        until_failed(bench, counter)


def recreate(bench, counter):
    delete_topic(bench.client, counter.state_topic)
    bench.create_state(counter)


def move_group(bench, counter):
    commit_offsets(bench.client, counter.consumer_group, {TopicPartition(bench.topic.name, 0): 3})


def lose_position(bench, counter):
    clear_state(bench.client, counter.state_topic, [0])
    write_changelog(bench.client, counter.state_topic, {b"0": b"7"})


def write_text(bench, counter):
    write_changelog(bench.client, counter.state_topic, {b"0": b'"seven"'})


def grow(bench, counter):
    grow_topic(bench.client, bench.topic.name, 2)


def bound(bench, counter):
    delete_topic(bench.client, counter.state_topic)
    bench.create_state(counter, {"max.message.bytes": "2000"})


def let_expire(bench, counter):
    delete_topic(bench.client, counter.state_topic)
    bench.create_state(counter, {"cleanup.policy": "compact,delete"})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (recreate, "it is empty, and the group committed offset 10"),
        (move_group, "it is the state at offset 10, and the group's offset is 3"),
        (lose_position, "it has values, and does not say at which offset"),
        (write_text, "the value of key b'0' can't be read as the declared type"),
        (grow, "has 2 partitions, it has 1"),
        (bound, "max.message.bytes is 2000, below 65536"),
        (let_expire, "cleanup.policy is compact,delete"),
    ],
)
def test_a_state_that_is_not_that_of_the_offsets_is_refused(bench, change, reason):
    counter = bench.worker(counting(bench))
    bench.send(10, keys=2)
    run_until_committed(bench, counter, {0: 10})
    change(bench, counter)
    with pytest.raises(StateRefusedError) as refused:
        until_failed(bench, counter)
    assert reason in str(refused.value)
    assert "headrace workers reset" in refused.value.remedy
    assert bench.counts() == {b"0": [1, 2, 3, 4, 5], b"1": [1, 2, 3, 4, 5]}


def send_at(bench, key, *seconds):
    """Sends records with timestamps of so many seconds after a start."""
    sender = connected_producer(bench.client)
    for second in seconds:
        record = {"key": key, "value": b"v", "timestamp": START_MS + second * 1000}
        sender.produce(bench.topic.name, **record)
    assert sender.flush(FLUSH_SECONDS) == 0


def test_values_expire_by_the_timestamps_of_records_and_leave_the_topic(bench):
    counter = bench.worker(counting(bench), state_ttl=timedelta(seconds=10))

    send_at(bench, b"ann", 1, 2)
    send_at(bench, b"bob", 5)
    run_until_committed(bench, counter, {0: 3})
    # Another instance: each value has the time of the record that set it, not that of the restart.
    send_at(bench, b"bob", 11, 12)
    run_until_committed(bench, counter, {0: 5})
    assert bench.stored(counter) == {b"bob": b"3"}
    send_at(bench, b"ann", 12)
    run_until_committed(bench, counter, {0: 6})
    assert bench.counts() == {b"ann": [1, 2, 1], b"bob": [1, 2, 3]}


def test_timers_are_called_once_by_whichever_instance_reads_their_time(bench):
    class Session(WorkerTask):
        async def process(self, record):
            self.state.set(self.state.get(0) + 1)
            self.timers.clear()
            seen = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
            self.timers.set(seen + timedelta(seconds=10))

        async def on_timer(self, timer):
            self.send(bench.output, b"%d" % self.state.get(), key=timer.key)
            self.state.delete()

    sessions = bench.worker(Session, partitioner=KeyHash(4))
    send_at(bench, b"ann", 1, 2)
    send_at(bench, b"bob", 5)
    run_until_committed(bench, sessions, {0: 3})
    assert bench.counts() == {}
    send_at(bench, b"bob", 13)
    run_until_committed(bench, replace(sessions, partitioner=KeyHash(3)), {0: 4})
    send_at(bench, b"ann", 40)
    # The timer of bob is called after the offset that made it due was committed, or with it.
    run_until(bench, sessions, lambda: len(bench.counts()) == 2)
    assert bench.counts() == {b"ann": [2], b"bob": [2]}
    assert bench.stored(sessions) == {b"ann": b"1"}


def test_a_reset_deletes_the_state_and_builds_it_again(bench, tmp_path):
    counter = bench.worker(counting(bench))
    bench.send(10, keys=2)
    run_until_committed(bench, counter, {0: 10})
    kafka = KafkaSettings(bootstrap_servers=bench.client["bootstrap.servers"])
    settings = Settings(tmp_path, "state", (), str(tmp_path), kafka=kafka)
    shown = reset(settings, counter, dry_run=True)
    assert (shown.state, len(bench.stored(counter))) == (counter.state_topic, 2)
    reset(settings, counter, dry_run=False)
    assert bench.stored(counter) == {}
    run_until_committed(bench, counter, {0: 10})
    assert bench.stored(counter) == {b"0": b"5", b"1": b"5"}
