"""Workers whose sends and offsets are one transaction, on a real broker."""

from collections import Counter
from datetime import timedelta

import pytest
from tests.contracts.worker import WorkerContract
from tests.integration.instances import Bench, drill, running, until_brokers_say

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
