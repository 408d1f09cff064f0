"""Workers on a real broker. The first tests re-express Kafka Workers' own integration tests."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.instances import Bench, drill, recorder, running, total, until

from headrace.errors import ProcessingFailedError, ProcessingTimeoutError, WorkerStateError
from headrace.kafka.client import watermarks
from headrace.kafka.dead_letters import scan
from headrace.model import TopicPartition
from headrace.workers import (
    DeadLetters,
    KeyHash,
    Retry,
    RoundRobin,
    Skip,
    WorkerTask,
)
from headrace.workers.states import InstanceState

FAST = {"commit_every": timedelta(milliseconds=100)}


@pytest.fixture
def bench(broker):
    return Bench(broker.bootstrap_servers)


def test_records_are_processed_in_order_and_committed(bench):
    seen, task = recorder()
    worker = bench.worker(task)
    bench.send(500)

    async def run():
        async with running(bench.instance(worker)):
            await until(lambda: total(seen) == 500)

    drill(run())
    assert [*seen.values()] == [list(range(500))]
    assert bench.committed(worker) == {0: 500}


def test_an_instance_is_used_once(bench):
    """LifecycleTest."""
    ends = []
    instance = bench.instance(bench.worker(recorder()[1]), on_end=ends.append)

    async def run():
        async with running(instance):
            await until(lambda: instance.state is InstanceState.RUNNING)
            with pytest.raises(WorkerStateError):
                await instance.run()
        with pytest.raises(WorkerStateError):
            await instance.run()
        instance.stop()

    drill(run())
    assert instance.state is InstanceState.CLOSED
    assert ends == [None]


def test_stopped_before_it_began_it_does_not_begin(bench):
    instance = bench.instance(bench.worker(recorder()[1]))
    instance.stop()
    with pytest.raises(WorkerStateError):
        drill(instance.run())
    assert instance.state is InstanceState.CLOSED


def failing_at(number):
    class Failing(WorkerTask):
        async def process(self, record):
            if int(record.value) == number:
                raise LookupError(f"record {number}")

    return Failing


def test_a_failure_stops_the_instance_and_is_not_committed(bench):
    """ProcessingFailureTest."""
    bench.send(205)
    ends = []
    worker = bench.worker(failing_at(144))
    instance = bench.instance(worker, on_end=ends.append)
    with pytest.raises(ProcessingFailedError, match="@144 failed: LookupError: record") as found:
        drill(instance.run())
    assert isinstance(found.value.__cause__, LookupError)
    assert instance.state is InstanceState.FAILED
    assert ends == [found.value]
    assert bench.committed(worker) == {0: 144}


class SilentAt(WorkerTask):
    """Never says what became of one record."""

    async def process(self, record, observer):
        if int(record.value) != 107:
            observer.on_success()


def test_a_record_that_nobody_ends_times_out(bench):
    """ProcessingTimeoutTest."""
    bench.send(205)
    worker = bench.worker(SilentAt, processing_timeout=timedelta(milliseconds=300), **FAST)
    with pytest.raises(ProcessingTimeoutError, match="@107 was not done after"):
        drill(bench.instance(worker).run())
    assert bench.committed(worker) == {0: 107}


def test_punctuate_is_called_with_records_and_without(bench):
    """PunctuateTest."""
    called = []

    class Punctual(WorkerTask):
        async def process(self, record):
            pass

        async def punctuate(self, now):
            called.append(now)

    worker = bench.worker(Punctual, punctuate_every=timedelta(milliseconds=50))

    async def run():
        async with running(bench.instance(worker)):
            await until(lambda: len(called) >= 5)
            bench.send(100)
            before = len(called)
            await until(lambda: len(called) >= before + 5)

    drill(run())
    assert called == sorted(called)
    assert datetime.now(UTC) - called[-1] < timedelta(minutes=1)


class Refusing(WorkerTask):
    async def process(self, record, observer):
        observer.on_failure(RuntimeError("Test"))


def test_a_failure_that_the_observer_is_told_stops_the_instance(bench):
    """RecordStatusObserverTest."""
    bench.send(1)
    with pytest.raises(ProcessingFailedError, match="Test") as found:
        drill(bench.instance(bench.worker(Refusing)).run())
    assert isinstance(found.value.__cause__, RuntimeError)


def test_a_failure_may_be_skipped(bench):
    """RecordStatusObserverTest, without a guarantee."""
    bench.send(3)
    worker = bench.worker(Refusing, on_failure=Skip(), **FAST)

    async def run():
        async with running(bench.instance(worker)):
            await until(lambda: bench.committed(worker) == {0: 3})

    drill(run())


def test_without_records_it_closes(bench):
    """ShutdownTest."""
    instance = bench.instance(bench.worker(recorder()[1]))

    async def run():
        async with running(instance):
            await until(lambda: instance.state is InstanceState.RUNNING)

    drill(run())
    assert instance.state is InstanceState.CLOSED


def test_what_can_be_interrupted_is_after_the_drain_timeout(bench):
    """ShutdownTest: what was not done is not committed."""
    bench.send(5)
    begun, closed = [], []

    class Sleeping(WorkerTask):
        async def process(self, record):
            begun.append(record.offset)
            await asyncio.sleep(3600)

        async def close(self):
            closed.append(True)

    worker = bench.worker(Sleeping, drain_timeout=timedelta(milliseconds=200))

    async def run():
        async with running(bench.instance(worker)):
            await until(lambda: begun)

    drill(run())
    assert (begun, closed) == ([0], [True])
    assert bench.committed(worker) in ({}, {0: 0})


def test_a_drain_lets_what_is_in_process_end_and_begins_nothing(bench):
    bench.send(10)
    begun, ended = [], []
    go_on = asyncio.Event()

    class Slow(WorkerTask):
        async def process(self, record):
            begun.append(record.offset)
            await go_on.wait()
            ended.append(record.offset)

    worker = bench.worker(Slow)
    instance = bench.instance(worker)

    async def run():
        task = asyncio.create_task(instance.run())
        await until(lambda: begun)
        instance.stop()
        await until(lambda: instance.state is InstanceState.DRAINING)
        go_on.set()
        await task

    drill(run())
    assert begun == ended == [0]
    assert bench.committed(worker) == {0: 1}


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
            await until(lambda: bench.committed(worker).get(0) == 3 and len(seen) > 300)
            assert (0, 3) not in seen
            blocked.set()
            await until(lambda: len(seen) == 400)
            await until(lambda: sum(bench.committed(worker).values()) == 400)

    drill(run())


def test_what_was_done_beyond_the_commit_is_not_repeated(bench):
    bench.send(100)
    first, second = [], []

    def task(seen, blocked):
        class Blocking(WorkerTask):
            async def process(self, record):
                if record.offset in blocked:
                    await asyncio.sleep(3600)
                seen.append(record.offset)

        return Blocking

    declared = {"partitioner": RoundRobin(10), "drain_timeout": timedelta(milliseconds=100)}

    async def run(seen, blocked, enough):
        worker = bench.worker(task(seen, blocked), **declared)
        async with running(bench.instance(worker)):
            await until(lambda: len(seen) == enough)
        return worker

    worker = drill(run(first, {33}, 93))
    assert bench.committed(worker) == {0: 33}
    drill(run(second, set(), 7))
    assert sorted(first + second) == list(range(100))
    assert second == [33, 43, 53, 63, 73, 83, 93]


def test_ordinary_functions_run_on_threads(bench):
    bench.send(20)
    threads = set()

    class Blocking(WorkerTask):
        def process(self, record):
            threads.add(threading.current_thread().name)

    worker = bench.worker(Blocking, partitioner=RoundRobin(4), **FAST)

    async def run():
        async with running(bench.instance(worker)):
            await until(lambda: bench.committed(worker) == {0: 20})

    drill(run())
    assert threads
    assert all("-task" in name for name in threads)


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
            await until(lambda: bench.committed(worker) == {0: 10})

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
            await until(lambda: bench.committed(worker) == {0: 50})

    drill(run())
    partition = TopicPartition(output, 0)
    assert watermarks(bench.client, [partition]) == {partition: (0, 50)}
