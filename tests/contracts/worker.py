"""What every instance of a worker does, on any broker: the mock ones and Kafka itself.

The behaviours of Kafka Workers' own integration tests are among them, each named.
"""

import asyncio
import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.instances import drill, recorder, running, total, until_brokers_say
from tests.waiting import until, wait_for

from headrace.errors import (
    EventRejectedError,
    ProcessingFailedError,
    ProcessingTimeoutError,
    RecordRejectedError,
    ReferencesTooLargeError,
    SpreadsUnknownError,
    WorkerStateError,
)
from headrace.kafka.client.admin_requests import topic_ids
from headrace.kafka.dead_letters.replayed import PartitionId, addressees
from headrace.kafka.table.changelog import write_changelog
from headrace.model import Avro, ByAccount, Topic, TopicPartition, partition_of
from headrace.service.status import State
from headrace.topics.spreads import placing
from headrace.topics.spreads.placing import SpreadTopics
from headrace.topics.spreads.spread_table import SpreadTable
from headrace.workers import Retry, RoundRobin, Skip, WorkerTask
from headrace.workers.tasks.function_task import FunctionFactory

LEAD = timedelta(hours=2)
FAST = {"commit_every": timedelta(milliseconds=100)}


def failing_at(number):
    class Failing(WorkerTask):
        async def process(self, record):
            if int(record.value) == number:
                raise LookupError(f"record {number}")

    return Failing


class Visit:
    account: str
    at: datetime


def spread_topic(name):
    """Takes spreads, and has as many partitions as mock brokers make."""
    strategy = ByAccount(timedelta(minutes=1), account="account", lead=LEAD)
    return Topic(name, event=Visit, event_time="at", partitions=4, partitioning=strategy)


def visit(account, at):
    return json.dumps({"account": account, "at": at.isoformat()}).encode()


def place(bench, topic):
    """Its partition 0."""
    return PartitionId(TopicPartition(topic, 0), topic_ids(bench.client, [topic])[topic])


class SilentAt(WorkerTask):
    """Never says what became of one record."""

    async def process(self, record, observer):
        if int(record.value) != 107:
            observer.on_success()


class Refusing(WorkerTask):
    async def process(self, record, observer):
        observer.on_failure(RuntimeError("Test"))


def accounts_of(bench, count):
    """A topic of accounts, each with the plan "free"."""
    accounts = Topic(f"{bench.topic.name}-accounts", compaction=True)
    bench.create(accounts.name)
    write_changelog(bench.client, accounts.name, {b"%d" % n: b"free" for n in range(count)})
    return accounts


class WorkerContract:
    """Give it a fixture ``bench``: a ``Bench`` whose records are all in partition 0."""

    def test_records_are_processed_in_order_and_committed(self, bench):
        seen, task = recorder()
        worker = bench.worker(task)
        bench.send(500)

        async def run():
            async with running(bench.instance(worker)):
                await until(lambda: total(seen) == 500)

        drill(run())
        assert [*seen.values()] == [list(range(500))]
        assert bench.committed(worker) == {0: 500}

    def test_a_record_that_was_replayed_for_others_is_done_without_the_task(self, bench):
        seen, task = recorder()
        worker = bench.worker(task)
        bench.send(2)
        here = place(bench, bench.topic.name)
        bench.send(1, first=2, headers=[addressees(["others"], here)])
        bench.send(1, first=3, headers=[addressees(["others", worker.name], here)])
        instance = bench.instance(worker)

        async def run():
            async with running(instance):
                await until(lambda: total(seen) == 3)

        drill(run())
        assert [*seen.values()] == [[0, 1, 3]]
        assert bench.committed(worker) == {0: 4}
        assert instance.counts["replays_skipped"] == 1

    def test_what_a_task_copies_from_a_replayed_record_is_for_all_who_read_the_copy(self, bench):
        output = f"{bench.topic.name}-out"
        bench.create(output)
        seen = []

        class Copying(WorkerTask):
            async def process(self, record):
                seen.append((record.offset, record.headers))
                self.send(output, record.value, headers=record.headers, partition=0)

        worker = bench.worker(Copying, **FAST)
        trace, count = ("trace", b"1"), ("headrace-replays", b"1")
        here, elsewhere = place(bench, bench.topic.name), place(bench, output)
        for readers in (addressees([worker.name], here), addressees(["others"], elsewhere)):
            bench.send(1, headers=[trace, count, readers])

        async def run():
            async with running(bench.instance(worker)):
                await until_brokers_say(lambda: bench.committed(worker) == {0: 2})

        drill(run())
        assert seen == [(0, (trace,)), (1, (trace,))]

    def test_references_are_read_before_the_first_record_and_then_followed(self, bench):
        accounts, seen = accounts_of(bench, 1000), []

        class Looking(WorkerTask):
            async def process(self, record):
                table = self.references["accounts"]
                seen.append((len(table), table.get(7), table.get(8)))

        async def run(instance, records, then=lambda: None):
            async with running(instance):
                await until(lambda: len(seen) == records)
                await asyncio.to_thread(then)

        def change():
            size = instance.reference_figures["reference_bytes"]
            write_changelog(bench.client, accounts.name, {b"7": b"golden", b"8": None})
            expected = size + len("golden") - len("free") - len("8free")
            wait_for(lambda: instance.reference_figures["reference_bytes"] == expected)
            bench.send(1, first=1)
            wait_for(lambda: len(seen) == 2)

        worker = bench.worker(Looking, references={"accounts": accounts})
        bench.send(1)
        instance = bench.instance(worker)
        drill(run(instance, 1, change))
        assert seen == [(1000, b"free", b"free"), (999, b"golden", None)]
        bench.send(1, first=2)
        drill(run(bench.instance(worker), 3))
        assert seen[2] == seen[1]

    def test_references_beyond_the_limit_end_the_instance(self, bench):
        accounts, (seen, task) = accounts_of(bench, 10), recorder()
        declared = {"references": {"accounts": accounts}}
        bench.send(1)
        instance = bench.instance(bench.worker(task, reference_bytes=49, **declared))
        with pytest.raises(ReferencesTooLargeError, match="more than 49 bytes: 50"):
            drill(instance.run())
        assert not seen

        async def run():
            instance = bench.instance(bench.worker(task, reference_bytes=50, **declared))
            ending = asyncio.create_task(instance.run())
            await until(lambda: total(seen) == 1)
            await asyncio.to_thread(write_changelog, bench.client, accounts.name, {b"10": b"free"})
            await ending

        with pytest.raises(ReferencesTooLargeError, match="more than 50 bytes: 56"):
            drill(run())

    def test_what_is_sent_to_a_topic_that_takes_spreads_is_where_the_table_says(
        self, bench, monkeypatch
    ):
        """One that names its partition is there."""
        output, now = spread_topic(f"{bench.topic.name}-out"), datetime.now(UTC)
        bench.create(output.name, 4)
        table = SpreadTable().changed({"large": 4}, now - timedelta(days=1), LEAD)
        monkeypatch.setattr(placing, "SpreadsReader", lambda _: lambda: {output.name: table})
        events = [(("large", "small")[n % 2], now - timedelta(minutes=n)) for n in range(40)]

        class Sending(WorkerTask):
            async def process(self, record):
                number = int(record.value)
                if number < len(events):
                    self.send(output.name, visit(*events[number]), key=b"same")
                else:
                    self.send(output.name, b"any", key=b"same", partition=2)

        spread = SpreadTopics((output,))
        worker = bench.worker(Sending, spread_topics=spread, **FAST)
        bench.send(len(events) + 1)

        async def run():
            async with running(bench.instance(worker)):
                await until_brokers_say(lambda: bench.committed(worker) == {0: len(events) + 1})

        drill(run())
        place = partition_of(
            output.partitioning, 4, lambda account, _: table.spreads.get(account, ())
        )
        expected = Counter(place({"account": a}, "", at) for a, at in events) + Counter([2])
        assert bench.numbers(output.name, 4) == expected

    @pytest.mark.parametrize(
        ("value", "error"),
        [
            (visit("large", datetime.now(UTC) + 2 * LEAD), SpreadsUnknownError),
            (b"no event", RecordRejectedError),
            (None, RecordRejectedError),
        ],
        # Not by their values: each process that collects the tests has a time of its own.
        ids=["ahead", "no-event", "no-value"],
    )
    def test_what_has_no_known_place_is_not_sent_and_fails_its_record(
        self, bench, monkeypatch, value, error
    ):
        output = spread_topic(f"{bench.topic.name}-out")
        bench.create(output.name, 4)
        monkeypatch.setattr(placing, "SpreadsReader", lambda _: dict)

        class Sending(WorkerTask):
            async def process(self, record):
                self.send(output.name, value)

        bench.send(1)
        worker = bench.worker(Sending, spread_topics=SpreadTopics((output,)))
        with pytest.raises(ProcessingFailedError) as found:
            drill(bench.instance(worker).run())
        assert isinstance(found.value.__cause__, error)
        assert bench.numbers(output.name, 4) == Counter()

    def test_events_are_sent_as_their_topic_declares_them(self, bench):
        """Bytes and texts go as they are."""
        output = Topic(f"{bench.topic.name}-out", event=Visit, key="account", event_time="at")
        bench.create(output.name)
        now = datetime.now(UTC)
        sent = [Visit(), {"account": "b", "at": now}, visit("c", now), visit("d", now).decode()]
        sent[0].account, sent[0].at = "a", now

        class Sending(WorkerTask):
            async def process(self, record):
                self.send(output.name, sent[int(record.value)], partition=0)

        worker = bench.worker(Sending, event_topics=(output,), **FAST)
        bench.send(len(sent))

        async def run():
            async with running(bench.instance(worker)):
                await until_brokers_say(lambda: bench.committed(worker) == {0: len(sent)})

        drill(run())
        events = [json.loads(value) for value in bench.values(output.name, len(sent))]
        assert [event["account"] for event in events] == ["a", "b", "c", "d"]
        assert {datetime.fromisoformat(event["at"]) for event in events} == {now}

    @pytest.mark.parametrize(
        ("topic", "value", "error", "message"),
        [
            ("visits", {"account": 7}, EventRejectedError, "account"),
            ("visits", {"account": None, "at": "2026-01-01T00:00:00Z"}, EventRejectedError, ""),
            ("raw", Visit(), TypeError, "'raw' is declared without an event class"),
            ("none", Visit(), TypeError, "'none' is not declared in the project"),
            ("avro", Visit(), TypeError, "'avro' is Avro, which `send` does not write"),
            ("visits", 7, TypeError, "not int"),
        ],
    )
    def test_what_is_no_event_of_its_topic_is_not_sent_and_fails_its_record(
        self, bench, topic, value, error, message
    ):
        declared = (
            Topic("visits", event=Visit),
            Topic("raw"),
            Topic("avro", event=Visit, format=Avro()),
        )

        class Sending(WorkerTask):
            async def process(self, record):
                self.send(topic, value)

        bench.send(1)
        worker = bench.worker(Sending, event_topics=declared)
        with pytest.raises(ProcessingFailedError) as found:
            drill(bench.instance(worker).run())
        assert isinstance(found.value.__cause__, error)
        assert message in str(found.value.__cause__)

    def test_an_instance_is_used_once(self, bench):
        """LifecycleTest."""
        ends = []
        instance = bench.instance(bench.worker(recorder()[1]), on_end=ends.append)

        async def run():
            async with running(instance):
                await until(lambda: instance.state is State.RUNNING)
                with pytest.raises(WorkerStateError):
                    await instance.run()
            with pytest.raises(WorkerStateError):
                await instance.run()
            instance.stop()

        drill(run())
        assert instance.state is State.CLOSED
        assert ends == [None]

    def test_stopped_before_it_began_it_does_not_begin(self, bench):
        instance = bench.instance(bench.worker(recorder()[1]))
        instance.stop()
        with pytest.raises(WorkerStateError):
            drill(instance.run())
        assert instance.state is State.CLOSED

    def test_a_failure_stops_the_instance_and_is_not_committed(self, bench):
        """ProcessingFailureTest."""
        bench.send(205)
        ends = []
        worker = bench.worker(failing_at(144))
        instance = bench.instance(worker, on_end=ends.append)
        with pytest.raises(ProcessingFailedError, match="@144 failed: LookupError") as found:
            drill(instance.run())
        assert isinstance(found.value.__cause__, LookupError)
        assert instance.state is State.FAILED
        assert ends == [found.value]
        assert bench.committed(worker) == {0: 144}

    def test_a_record_that_nobody_ends_times_out(self, bench):
        """ProcessingTimeoutTest."""
        bench.send(205)
        worker = bench.worker(SilentAt, processing_timeout=timedelta(milliseconds=300), **FAST)
        with pytest.raises(ProcessingTimeoutError, match="@107 was not done after"):
            drill(bench.instance(worker).run())
        assert bench.committed(worker) == {0: 107}

    def test_punctuate_is_called_with_records_and_without(self, bench):
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

    def test_a_failure_that_the_observer_is_told_stops_the_instance(self, bench):
        """RecordStatusObserverTest."""
        bench.send(1)
        with pytest.raises(ProcessingFailedError, match="Test") as found:
            drill(bench.instance(bench.worker(Refusing)).run())
        assert isinstance(found.value.__cause__, RuntimeError)

    def test_a_failure_may_be_skipped(self, bench):
        """RecordStatusObserverTest, without a guarantee."""
        bench.send(3)
        worker = bench.worker(Refusing, on_failure=Skip(), **FAST)

        async def run():
            async with running(bench.instance(worker)):
                await until_brokers_say(lambda: bench.committed(worker) == {0: 3})

        drill(run())

    def test_without_records_it_closes(self, bench):
        """ShutdownTest."""
        instance = bench.instance(bench.worker(recorder()[1]))

        async def run():
            async with running(instance):
                await until(lambda: instance.state is State.RUNNING)

        drill(run())
        assert instance.state is State.CLOSED

    def test_what_can_be_interrupted_is_after_the_drain_timeout(self, bench):
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
        assert begun == [0]
        assert all(closed)
        assert closed
        assert bench.committed(worker) in ({}, {0: 0})

    def test_a_drain_lets_what_is_in_process_end_and_begins_nothing(self, bench):
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
            await until(lambda: instance.state is State.DRAINING)
            go_on.set()
            await task

        drill(run())
        assert begun == ended == [0]
        assert bench.committed(worker) == {0: 1}

    def test_what_was_done_beyond_the_commit_is_not_repeated(self, bench):
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

    def test_ordinary_functions_run_on_threads(self, bench):
        bench.send(20)
        threads = set()

        class Blocking(WorkerTask):
            def process(self, record):
                threads.add(threading.current_thread().name)

        worker = bench.worker(Blocking, partitioner=RoundRobin(4), **FAST)

        async def run():
            async with running(bench.instance(worker)):
                await until_brokers_say(lambda: bench.committed(worker) == {0: 20})

        drill(run())
        assert threads
        assert all("-task" in name for name in threads)

    def test_values_and_keys_are_deserialized_by_functions_of_the_users(self, bench):
        bench.send(3, keys=3)
        bench.send(1, first=3)
        bench.send(1, first=4, keys=5)
        seen = []

        def below_four(key):
            if int(key) == 4:
                raise ValueError(key)
            return int(key)

        def take(value, key, record):
            seen.append((value, key, record.value, record.key))

        deserializers = {"value_deserializer": bytes.decode, "key_deserializer": below_four}
        task = FunctionFactory(take, (bench.topic,), **deserializers)
        worker = bench.worker(task, on_failure=Skip(), **FAST)

        async def run():
            async with running(bench.instance(worker)):
                await until_brokers_say(lambda: bench.committed(worker) == {0: 5})

        drill(run())
        keyed = [(str(number), number, b"%d" % number, b"%d" % number) for number in range(3)]
        assert seen == [*keyed, ("3", None, b"3", None)]

    def test_observed_records_are_in_process_at_once_and_retried_alone(self, bench):
        bench.create(bench.topic.dead_letters)
        bench.send(20)
        begun, most = Counter(), []
        waiting = []

        class Later(WorkerTask):
            async def process(self, record, observer):
                begun[record.offset] += 1
                waiting.append(observer)
                most.append(len(waiting))
                asyncio.get_running_loop().call_later(0.05, self.end, record, observer)

            def end(self, record, observer):
                waiting.remove(observer)
                if record.offset == 5 and record.attempt < 3:
                    threading.Thread(target=observer.on_failure, args=[OSError("away")]).start()
                else:
                    threading.Thread(target=observer.on_success).start()

        policy = Retry(attempts=3, first_delay=timedelta(milliseconds=10))
        worker = bench.worker(Later, on_failure=policy, **FAST)

        async def run():
            async with running(bench.instance(worker)):
                await until_brokers_say(lambda: bench.committed(worker) == {0: 20})

        drill(run())
        assert begun == Counter({offset: 3 if offset == 5 else 1 for offset in range(20)})
        assert max(most) > 1

    def test_what_is_sent_keeps_the_order_of_its_subpartition(self, bench):
        output = f"{bench.topic.name}-out"
        bench.create(output)
        bench.send(2000)
        most = []

        class Copying(WorkerTask):
            async def process(self, record):
                most.append(instance.assignments.lanes[0].in_process)
                self.send(output, record.value, partition=0)

        worker = bench.worker(Copying, **FAST)
        instance = bench.instance(worker)

        async def run():
            async with running(instance):
                await until_brokers_say(lambda: bench.committed(worker) == {0: 2000})

        drill(run())
        assert bench.values(output, 2000) == [b"%d" % number for number in range(2000)]
        assert max(most) > 10, "records are in process while others wait for confirmation"

    def test_a_send_that_fails_is_the_failure_of_its_record(self, bench):
        output = f"{bench.topic.name}-out"
        bench.create(output)
        bench.send(20)

        class Copying(WorkerTask):
            async def process(self, record):
                where = 99 if record.offset == 3 and record.attempt == 1 else 0
                self.send(output, record.value, partition=where)

        policy = Retry(attempts=2, first_delay=timedelta(0), then=Skip())
        worker = bench.worker(Copying, on_failure=policy, **FAST)
        instance = bench.instance(worker)

        async def run():
            async with running(instance):
                await until_brokers_say(lambda: bench.committed(worker) == {0: 20})

        drill(run())
        assert sorted(bench.values(output, 20), key=int) == [b"%d" % n for n in range(20)]
        assert (instance.counts["failed"], instance.counts["retried"]) == (1, 1)
