"""Workers on a real broker."""

import asyncio
import threading
from collections import Counter
from datetime import timedelta

import confluent_kafka
import pytest
from tests.contracts.worker import WorkerContract
from tests.integration.instances import (
    Bench,
    drill,
    recorder,
    running,
    total,
    until_brokers_say,
)
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, until

from headrace.errors import (
    CommittedOffsetError,
    InstanceIdInUseError,
    ProcessingTimeoutError,
    TopicMissingError,
)
from headrace.kafka.admin.topics import (
    DEAD_LETTERS_HEADER_BYTES,
    Action,
    TopicChange,
    apply_changes,
    topic_states,
)
from headrace.kafka.client.admin_requests import admin, describe
from headrace.kafka.client.clients import connected_producer
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.dead_letters.letters import scan
from headrace.kafka.group.subscription import Membership
from headrace.model import TopicPartition
from headrace.service.status import State
from headrace.workers import (
    BatchWorkerTask,
    DeadLetters,
    KeyHash,
    Retry,
    RetryTopics,
    RoundRobin,
    Worker,
    WorkerRecord,
    WorkerTask,
)
from headrace.workers.consumer_group import needed_topics
from headrace.workers.consumer_group.needed_topics import ensure_needed_topics
from headrace.workers.tasks.retry_topics import retry_headers, retry_topic

FAST = {"commit_every": timedelta(milliseconds=100)}


@pytest.fixture
def bench(broker):
    return Bench(broker.bootstrap_servers)


class TestOnKafka(WorkerContract):
    """The contract on a real broker."""


def test_lanes_go_on_side_by_side_and_the_commit_waits_for_the_slowest(broker):
    bench = Bench(broker.bootstrap_servers, partitions=2)
    bench.send(400, keys=40)
    blocked, seen = asyncio.Event(), []

    class OneSlow(WorkerTask):
        async def process(self, record):
            if record.partition == 0 and record.offset == 3:
                await blocked.wait()
            seen.append((record.partition, record.offset))

    worker = bench.worker(OneSlow, partitioner=KeyHash(16), **FAST)

    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: bench.committed(worker).get(0) == 3 and len(seen) > 300)
            assert (0, 3) not in seen
            blocked.set()
            await until(lambda: len(seen) == 400)
            await until_brokers_say(lambda: sum(bench.committed(worker).values()) == 400)

    drill(run())


def test_retries_keep_the_order_and_end_as_dead_letters(bench):
    bench.create(bench.topic.dead_letters)
    bench.send(10)
    attempts = []

    class Flaky(WorkerTask):
        async def process(self, record):
            attempts.append((record.offset, record.attempt))
            if record.offset == 7 or (record.offset == 3 and record.attempt < 3):
                raise ConnectionError("away")

    policy = Retry(attempts=3, first_delay=timedelta(milliseconds=10), then=DeadLetters())
    worker = bench.worker(Flaky, on_failure=policy, **FAST)

    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: bench.committed(worker) == {0: 10})

    drill(run())
    assert [offset for offset, _ in attempts] == [0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 7, 7, 8, 9]
    [letter] = scan(bench.client, bench.topic.name)
    assert (letter.letter.offset, letter.letter.attempts) == (7, 3)
    assert (letter.letter.reason, letter.letter.detail) == (
        "processing-failed",
        "ConnectionError: away",
    )
    assert letter.letter.first_failure_ms > 0


def test_what_is_sent_is_there_before_the_record_is_done(bench):
    output = f"{bench.topic.name}-out"
    bench.create(output)
    bench.send(50)

    class Copy(WorkerTask):
        async def process(self, record):
            self.send(output, record.value, key=record.key)  # not awaited on purpose

    worker = bench.worker(Copy, **FAST)

    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: bench.committed(worker) == {0: 50})

    drill(run())
    partition = TopicPartition(output, 0)
    assert watermarks(bench.client, [partition]) == {partition: (0, 50)}


def test_a_batch_is_arrow_and_only_its_bad_records_fail(bench):
    bench.create(bench.topic.dead_letters)
    bench.send(1000)
    sizes, values = [], []

    class Batches(BatchWorkerTask):
        async def process_batch(self, records):
            found = [int(one) for one in records.column("value").to_pylist()]
            if 500 in found:
                raise ValueError("500 is bad")
            sizes.append(len(found))
            values.extend(found)

    worker = bench.worker(Batches, on_failure=DeadLetters(), batch_records=300, **FAST)

    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: bench.committed(worker) == {0: 1000})

    drill(run())
    assert values == [number for number in range(1000) if number != 500]
    assert 1 < max(sizes) <= 300
    assert [one.letter.offset for one in scan(bench.client, bench.topic.name)] == [500]


def test_a_record_that_is_not_accepted_holds_its_lane_alone(broker):
    """MergerTest: two sorted streams become one; what may still be overtaken is held."""
    one, two = Bench(broker.bootstrap_servers), Bench(broker.bootstrap_servers)
    times = {one: [10, 50, 70, 130, 150], two: [30, 90, 110, 120, 140]}
    for bench, numbers in times.items():
        for number in numbers:
            bench.send(1, first=number)
    newest, merged = {}, []

    class Merge(WorkerTask):
        def accept(self, record):
            newest[record.topic] = int(record.value)
            return len(newest) == 2 and int(record.value) == min(newest.values())

        async def process(self, record):
            merged.append(int(record.value))

    worker = Worker("merge-" + one.topic.name, [one.topic, two.topic], Merge, **FAST)

    async def run():
        async with running(one.instance(worker)):
            await until(lambda: len(merged) == 9)
            await until_brokers_say(lambda: two.committed(worker) == {0: 5})

    drill(run())
    assert merged == [10, 30, 50, 70, 90, 110, 120, 130, 140]
    assert one.committed(worker) == {0: 4}


def test_a_slow_lane_stops_reading_before_memory_fills(bench):
    """Backpressure: bytes that wait stay within the budget, and everything is processed."""
    bench.send(20_000)
    go_on, most, seen = asyncio.Event(), [], []

    class Slow(WorkerTask):
        async def process(self, record):
            await go_on.wait()
            seen.append(record.offset)

    worker = bench.worker(Slow, partitioner=RoundRobin(2), queue_bytes=1_000_000)
    instance = bench.instance(worker)

    async def run():
        async with running(instance):
            await until(lambda: instance.assignments and instance.assignments.pauses.partitions)
            for _ in range(20):
                await asyncio.sleep(0.02)
                most.append(instance.assignments.budget.used)
            go_on.set()
            await until(lambda: len(seen) == 20_000)

    drill(run())
    assert max(most) <= 1_250_000
    assert sorted(seen) == list(range(20_000))


def test_a_marker_behind_the_last_record_is_no_lag_and_no_loss(bench):
    """It is no record, and once retention has taken it the topic begins behind it."""
    conf = {**bench.client, "transactional.id": bench.topic.name}
    sender = confluent_kafka.Producer(conf)
    sender.init_transactions(LIMIT_SECONDS)
    sender.begin_transaction()
    for number in range(10):
        sender.produce(bench.topic.name, str(number))
    sender.commit_transaction(LIMIT_SECONDS)
    seen, task = recorder()
    worker, partition = bench.worker(task, **FAST), TopicPartition(bench.topic.name, 0)

    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: bench.committed(worker) == {0: 11})

    drill(run())
    assert watermarks(bench.client, [partition]) == {partition: (0, 11)}
    whole = confluent_kafka.TopicPartition(bench.topic.name, 0, confluent_kafka.OFFSET_END)
    [deleted] = admin(bench.client).delete_records([whole]).values()
    assert deleted.result().low_watermark == 11
    bench.send(1, first=10)

    async def run_again():
        async with running(bench.instance(worker)):
            await until(lambda: total(seen) == 11)

    drill(run_again())


def test_a_topic_made_again_while_it_is_read_ends_the_instance(bench):
    seen, task = recorder()
    worker = bench.worker(task)
    bench.send(10)
    name = bench.topic.name

    async def run():
        running = asyncio.create_task(bench.instance(worker).run())
        await until(lambda: total(seen) == 10)
        admin(bench.client).delete_topics([name])[name].result(LIMIT_SECONDS)
        await until(lambda: name not in describe(bench.client, [name]))
        bench.create(name)
        bench.send(20)
        await running

    with pytest.raises((CommittedOffsetError, TopicMissingError)):
        drill(run())


def test_a_record_that_a_thread_never_ends_is_a_dead_letter_and_ends_the_instance(bench):
    bench.create(bench.topic.dead_letters)
    bench.send(3)
    seen, go_on = [], threading.Event()

    class Stuck(WorkerTask):
        def process(self, record):
            if record.offset == 1 and not go_on.is_set():
                go_on.wait()
            else:
                seen.append(record.offset)

    worker = bench.worker(
        Stuck, on_failure=Retry(), processing_timeout=timedelta(seconds=5), **FAST
    )

    async def run():
        with pytest.raises(ProcessingTimeoutError, match="@1 was not done"):
            await bench.instance(worker).run()
        assert seen == [0]
        go_on.set()
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: bench.committed(worker) == {0: 3})

    drill(run())
    assert seen == [0, 2]
    assert [one.letter.reason for one in scan(bench.client, bench.topic.name)] == [
        "processing-timeout"
    ]


def test_retry_topics_let_others_pass_and_survive_a_restart(bench):
    bench.create(bench.topic.dead_letters)
    sender = connected_producer(bench.client)
    for number in range(10):
        sender.produce(bench.topic.name, str(number), b"k", headers=[("trace", b"t")])
    assert sender.flush(FLUSH_SECONDS) == 0
    seen = []

    class Flaky(WorkerTask):
        async def process(self, record):
            seen.append(record)
            if (record.offset == 3 and record.attempt < 3) or record.offset == 6:
                raise ConnectionError("away")

    delays = (timedelta(milliseconds=200), timedelta(seconds=3))
    worker = bench.worker(Flaky, on_failure=RetryTopics(delays), **FAST)

    async def until_attempt(offset, attempt):
        async with running(bench.instance(worker)):
            await until(lambda: any((r.offset, r.attempt) == (offset, attempt) for r in seen))
            if attempt == 3:
                await until(lambda: [*scan(bench.client, bench.topic.name)])

    drill(until_attempt(6, 2))
    drill(until_attempt(6, 3))
    assert [record.offset for record in seen if record.attempt == 1] == list(range(10))
    assert [r.offset for r in seen if r.attempt > 1] == [3, 6, 3, 6]
    for record in seen:
        place = (record.topic, record.partition, record.key, record.value, record.headers)
        value = str(record.offset).encode()
        assert place == (bench.topic.name, 0, b"k", value, (("trace", b"t"),))
    [letter] = [one.letter for one in scan(bench.client, bench.topic.name)]
    assert (letter.offset, letter.attempts, letter.headers) == (6, 3, (("trace", b"t"),))
    assert letter.first_failure_ms > 0


def test_retry_topics_take_what_their_topic_takes_and_are_mended(bench):
    """Room for our headers too, and they keep records for twice the delay."""
    bench.create(bench.topic.dead_letters)
    delays = (timedelta(seconds=1), timedelta(days=30))
    worker = bench.worker(WorkerTask, on_failure=RetryTopics(delays))
    first, second = (retry_topic(worker.name, bench.topic.name, number) for number in (1, 2))
    bench.create(second)
    large = TopicChange(
        bench.topic.name, Action.ALTER_CONFIG, "", config={"max.message.bytes": "4000000"}
    )
    apply_changes(bench.client, [large])
    ensure_needed_topics(worker, bench.client)
    states = topic_states(bench.client, [bench.topic.name, first, second])
    own = int(states[bench.topic.name].config["retention.ms"])
    room = str(4_000_000 + DEAD_LETTERS_HEADER_BYTES)
    assert [states[name].config["max.message.bytes"] for name in (first, second)] == [room] * 2
    kept = [int(states[name].config["retention.ms"]) for name in (first, second)]
    assert kept == [own, 60 * 86_400_000]


def test_a_worker_without_its_dead_letter_topic_does_not_begin(bench, monkeypatch):
    monkeypatch.setattr(needed_topics, "KNOWN_WITHIN", timedelta(0))
    worker = bench.worker(WorkerTask, on_failure=DeadLetters())
    with pytest.raises(TopicMissingError, match=bench.topic.dead_letters):
        drill(bench.instance(worker).run())


def test_a_record_that_waits_twice_because_of_a_crash_is_one_dead_letter(bench):
    bench.create(bench.topic.dead_letters)
    bench.send(1)

    class Failing(WorkerTask):
        async def process(self, record):
            raise ConnectionError("away")

    worker = bench.worker(Failing, on_failure=RetryTopics((timedelta(0),)), **FAST)
    ensure_needed_topics(worker, bench.client)
    waiting = retry_topic(worker.name, bench.topic.name, 1)
    record = WorkerRecord(bench.topic.name, 0, 0, b"k", b"0", (), 0)
    sender = connected_producer(bench.client)
    for _ in range(2):
        sender.produce(waiting, b"0", b"k", headers=list(retry_headers(record, 0, 0, "away")))
    assert sender.flush(FLUSH_SECONDS) == 0

    async def run():
        instance = bench.instance(worker)
        async with running(instance):
            await until(lambda: instance.counts["dead_letters"] == 3)

    drill(run())
    [letter] = [one.letter for one in scan(bench.client, bench.topic.name)]
    assert (letter.offset, letter.attempts) == (0, 2)


def test_instances_share_the_topic_as_well_as_its_retry_topics(broker):
    bench = Bench(broker.bootstrap_servers, partitions=4)
    bench.create(bench.topic.dead_letters)
    _, task = recorder()
    worker = bench.worker(task, on_failure=RetryTopics([timedelta(0)]), **FAST)
    first, second = (bench.instance(worker) for _ in range(2))
    waiting = retry_topic(worker.name, bench.topic.name, 1)

    def topics(instance):
        return Counter(one.topic for one in instance.assignments or ())

    async def run():
        async with running(first):
            await until(lambda: topics(first) == {bench.topic.name: 4, waiting: 4})
            async with running(second):
                shares = {bench.topic.name: 2, waiting: 2}
                await until(lambda: topics(first) == topics(second) == shares)

    drill(run())


def test_of_two_instances_with_one_id_the_first_ends_and_says_why(bench):
    seen, task = recorder()
    worker = bench.worker(task)
    bench.send(10)
    membership = Membership(worker.consumer_group, instance_id="pod-1")
    first = bench.instance(worker, membership=membership)

    async def run():
        running_first = asyncio.create_task(first.run())
        await until(lambda: total(seen) == 10)
        async with running(bench.instance(worker, membership=membership)):
            with pytest.raises(InstanceIdInUseError, match="pod-1"):
                await running_first

    drill(run())
    assert first.state is State.FAILED
