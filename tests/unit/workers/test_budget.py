"""What waits in an instance comes to twice its queue at most."""

from tests.integration.instances import drill
from tests.unit.workers.lanes import LaneBench, settled

from headrace.model import TopicPartition
from headrace.workers import RoundRobin, WorkerTask

PARTITIONS = 8
QUEUE_BYTES = 100_000


class Refusing(WorkerTask):
    def accept(self, record):
        return False

    async def process(self, record):
        raise AssertionError


def test_partitions_that_are_read_one_after_the_other_take_no_more_than_twice_the_queue():
    async def run():
        bench = LaneBench(Refusing, partitioner=RoundRobin(4), queue_bytes=QUEUE_BYTES)
        for number in range(1, PARTITIONS):
            bench.assign(number)
        for number in range(PARTITIONS):
            offset = 0
            while TopicPartition("t", number) not in bench.assignments.pauses.partitions:
                bench.put(offset, partition=number)
                offset += 1
        await settled()
        assert QUEUE_BYTES < bench.assignments.budget.used <= 2 * QUEUE_BYTES

    drill(run())
