"""Workers on a broker: topics, records, instances that run in this process."""

import asyncio
import contextlib
import uuid
from collections import Counter, defaultdict

import confluent_kafka
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS, until, wait_for

from headrace.kafka.client.clients import connected_producer, consumer
from headrace.kafka.client.offsets import committed, group_offsets, watermarks
from headrace.kafka.read.range_reader import read_records
from headrace.model import OffsetRange, Topic, TopicPartition
from headrace.workers import Worker, WorkerInstance, WorkerTask


class Bench:
    """A topic of its own, and what becomes of its records."""

    def __init__(self, bootstrap, partitions=1, name=""):
        self.client = {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"}
        self.topic = Topic(name or f"records-{uuid.uuid4().hex[:8]}", partitions=partitions)
        self.create(self.topic.name, partitions)

    def create(self, topic, partitions=1):
        make_topic(self.client, topic, partitions)

    def send(self, count, *, first=0, partition=None, keys=None, topic=None, headers=None):
        """Values are numbers; keys cycle through ``keys`` where given."""
        sender = connected_producer(self.client)
        if partition is None and self.topic.partitions == 1:
            partition = 0
        where = {} if partition is None else {"partition": partition}
        for number in range(first, first + count):
            key = None if keys is None else str(number % keys).encode()
            value = str(number).encode()
            sender.produce(topic or self.topic.name, value, key, headers=headers, **where)
            sender.poll(0)
        assert sender.flush(FLUSH_SECONDS) == 0

    def worker(self, task, **declared):
        declared = {"name": f"worker-{self.topic.name}"} | declared
        return Worker(topic=self.topic, task=task, **declared)

    def instance(self, worker, **options):
        return WorkerInstance(worker, self.client, **options)

    def committed(self, worker):
        partitions = [TopicPartition(self.topic.name, n) for n in range(self.topic.partitions)]
        found = group_offsets(self.client, worker.consumer_group, partitions)
        return {one.partition: offset for one, offset in found.items()}

    def values(self, topic, count):
        """The first ``count`` values of partition 0."""
        reader = consumer(self.client, "reader", {"auto.offset.reset": "earliest"})
        reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found = []

        def are_there():
            messages = reader.consume(count - len(found), 1)
            found.extend(message.value() for message in messages if message.error() is None)
            return len(found) == count

        wait_for(are_there, lambda: f"{count} values; there are {found}")
        reader.close()
        return found

    def numbers(self, topic, partitions):
        """How many records that are committed are in each partition."""
        places = [TopicPartition(topic, number) for number in range(partitions)]
        ranges = [
            OffsetRange(at, 0, end) for at, (_, end) in watermarks(self.client, places).items()
        ]
        return Counter(record.partition() for record in read_records(self.client, "reader", ranges))

    def metadata(self, worker, partition=0):
        asked = [TopicPartition(self.topic.name, partition)]
        return committed(self.client, worker.consumer_group, asked)[0].metadata


async def until_brokers_say(condition):
    """As ``until``, on a thread: instances on this loop go on while brokers are asked."""
    await until(condition, on_thread=True)


@contextlib.asynccontextmanager
async def running(*instances):
    """Stops them at the end; what fails meanwhile is raised."""
    runs = [asyncio.create_task(one.run()) for one in instances]
    try:
        yield
    finally:
        for one in instances:
            one.stop()
        await asyncio.gather(*runs)


def drill(coroutine):
    """Runs a test's coroutine with a deadline."""
    return asyncio.run(asyncio.wait_for(coroutine, 2 * LIMIT_SECONDS))


class Recording(WorkerTask):
    """Notes what it is given, by subpartition."""

    def __init__(self, seen):
        self.seen = seen

    async def init(self, subpartition, config):
        self.subpartition = subpartition

    async def process(self, record):
        self.seen[self.subpartition].append(int(record.value))


def recorder():
    seen = defaultdict(list)
    return seen, lambda: Recording(seen)


def total(seen):
    return sum(len(one) for one in seen.values())
