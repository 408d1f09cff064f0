"""Workers whose sends and offsets are one transaction, on a real broker."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from tests.contracts.worker import WorkerContract
from tests.integration.instances import Bench, drill, running, until_brokers_say
from tests.kafka_topics import make_topic

from headrace.errors import WorkerStateError
from headrace.kafka.dead_letters.letters import scan
from headrace.kafka.table.topic_table import table_records
from headrace.model import Guarantee
from headrace.workers import DeadLetters, Retry, WorkerTask

FAST = {"commit_every": timedelta(milliseconds=100)}


class ExactlyOnceBench(Bench):
    """Its workers are exactly once; ``output`` is a topic that they send to."""

    def __init__(self, bootstrap, partitions=1):
        super().__init__(bootstrap, partitions)
        self.output = f"{self.topic.name}-out"

    def worker(self, task, **declared):
        return super().worker(task, **{"guarantee": Guarantee.EXACTLY_ONCE} | declared)

    def sent(self, topic=""):
        """Values that readers of committed records see, by how often."""
        records = table_records(self.client, topic or self.output, settled=True)
        return Counter(int(record.value()) for record in records)


@pytest.fixture
def bench(broker):
    return ExactlyOnceBench(broker.bootstrap_servers)


class TestExactlyOnceOnKafka(WorkerContract):
    """The contract of workers, of one that writes in transactions."""


def copying(bench, fails=lambda record: False):
    class Copying(WorkerTask):
        async def process(self, record):
            self.send(bench.output, record.value, key=record.key)
            if fails(record):
                raise ConnectionError("no answer")

    return Copying


def test_what_a_failed_attempt_sent_is_never_written(bench):
    bench.create(bench.output)
    bench.create(bench.topic.dead_letters)
    bench.send(10)

    def fails(record):
        return record.offset == 7 or (record.offset == 3 and record.attempt < 3)

    policy = Retry(attempts=3, first_delay=timedelta(milliseconds=10), then=DeadLetters())
    worker = bench.worker(copying(bench, fails), on_failure=policy, **FAST)

    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: bench.committed(worker) == {0: 10})

    drill(run())
    assert bench.sent() == Counter({n: 1 for n in range(10) if n != 7})
    [letter] = scan(bench.client, bench.topic.name)
    assert (letter.letter.offset, letter.letter.attempts) == (7, 3)


def test_a_send_after_the_call_that_started_it_raises_also_where_that_sent_nothing(bench):
    bench.create(bench.output)
    bench.send(1)
    refused = []

    class Later(WorkerTask):
        async def init(self, subpartition, config):
            self.later = asyncio.create_task(self.send_later())

        async def send_later(self):
            await asyncio.sleep(0.1)
            try:
                await self.send(bench.output, b"0")
            except WorkerStateError as error:
                refused.append(error)

        async def process(self, record):
            await self.later

    worker = bench.worker(Later, **FAST)

    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: bench.committed(worker) == {0: 1})

    drill(run())
    assert (len(refused), bench.sent()) == (1, Counter())


def test_a_record_with_many_headers_that_a_topic_does_not_take_is_a_dead_letter(bench):
    make_topic(bench.client, bench.output, 1, config={"max.message.bytes": "10800"})
    bench.create(bench.topic.dead_letters)
    bench.send(2)

    class Many(WorkerTask):
        async def process(self, record):
            headers = (("h", b""),) * 700 if record.offset == 0 else ()
            self.send(bench.output, b"1" * 9_000, key=record.key, headers=headers)

    worker = bench.worker(Many, on_failure=DeadLetters(), **FAST)

    async def run():
        async with running(bench.instance(worker)):
            await until_brokers_say(lambda: bench.committed(worker) == {0: 2})

    drill(run())
    [letter] = scan(bench.client, bench.topic.name)
    assert letter.letter.offset == 0
    assert len(list(table_records(bench.client, bench.output, settled=True))) == 1
