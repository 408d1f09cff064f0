"""How often an event is in its topic after an outage, on librdkafka's mock brokers."""

import asyncio
import ctypes
from collections import Counter

import confluent_kafka
import pytest
from tests.integration.librdkafka import handle, library
from tests.waiting import LIMIT_SECONDS

from headrace.ingest.events.delivery import Delivery, QueueFullError, UnknownOutcomeError
from headrace.ingest.events.overdue import OverdueTopics
from headrace.ingest.events.validation import Accepted
from headrace.kafka.client import admin_requests, clients
from headrace.model import Topic

TOPIC = Topic("t")
OTHER = Topic("other")
MANY = 20


class MockBroker:
    """One broker whose answers come late, as those of a frozen one, or not at all."""

    def __init__(self):
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": "-", "test.mock.num.brokers": "1"}
        )
        functions = library()
        functions.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
        self._functions = functions
        self._mock = ctypes.c_void_p(functions.rd_kafka_handle_mock_cluster(handle(self._producer)))
        (broker,) = self._producer.list_topics(timeout=LIMIT_SECONDS).brokers.values()
        self.config = {"bootstrap.servers": f"{broker.host}:{broker.port}"}

    def answer_after(self, milliseconds):
        self._functions.rd_kafka_mock_broker_set_rtt(self._mock, 1, milliseconds)

    def go_down(self):
        self._functions.rd_kafka_mock_broker_set_down(self._mock, 1)

    def come_up(self):
        self._functions.rd_kafka_mock_broker_set_up(self._mock, 1)

    def copies(self, topic):
        """How often each value is in the topic."""
        live = (
            admin_requests.admin(self.config)
            .list_topics(topic, timeout=LIMIT_SECONDS)
            .topics[topic]
        )
        reader = clients.consumer(self.config)
        reader.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in live.partitions])
        found, ends = Counter(), 0
        while ends < len(live.partitions):
            message = reader.poll(LIMIT_SECONDS)
            if message.error() is None:
                found[message.value()] += 1
            else:
                ends += message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
        reader.close()
        return found


@pytest.fixture
def broker():
    return MockBroker()


def events(name):
    return [Accepted(f"{name} {number}".encode(), b"k", "", -1) for number in range(3)]


class Retrying:
    """The documentation's client: the same events until they are accepted, at any worker."""

    def __init__(self, workers):
        self.workers = workers
        self.tries = 0
        self.often = asyncio.Event()
        self.answers = Counter()

    async def send(self, name, seconds=0.2):
        while True:
            worker = self.workers[self.tries % len(self.workers)]
            self.tries += 1
            if self.tries == MANY:
                self.often.set()
            try:
                return await worker.send(TOPIC.name, events(name), [], seconds)
            except (QueueFullError, UnknownOutcomeError) as error:
                self.answers[type(error)] += 1
                await asyncio.sleep(0.05)


def workers(broker, tmp_path, count=2):
    topics = [TOPIC, OTHER]
    names = [topic.name for topic in topics]
    return [
        Delivery(broker.config, topics, 0.01, OverdueTopics.shared(tmp_path / "overdue", names))
        for _ in range(count)
    ]


async def outage(client, begin, end):
    """Until the client has tried often; the events before it make the connections that it meets."""
    for place in range(len(client.workers)):
        await client.workers[place].send(TOPIC.name, events(f"before {place}"), [], 30)
    begin()
    sending = [asyncio.create_task(client.send(name)) for name in ("a", "b")]
    await client.often.wait()
    end()
    await asyncio.gather(*sending)
    assert [await one.close(30) for one in client.workers] == [0] * len(client.workers)


def test_a_frozen_broker_gets_no_event_more_than_twice_however_often_it_is_sent(broker, tmp_path):
    """Its answers come late: what is on the wire it takes, each time."""
    retrying = Retrying(workers(broker, tmp_path))
    begin, end = (lambda: broker.answer_after(6000)), (lambda: broker.answer_after(0))
    asyncio.run(outage(retrying, begin, end))
    found = broker.copies(TOPIC.name)
    assert set(found) == {
        event.value for name in ("before 0", "before 1", "a", "b") for event in events(name)
    }
    assert max(found.values()) <= 2
    assert retrying.answers[UnknownOutcomeError] <= 2
    assert retrying.answers[QueueFullError] >= 10


def test_what_waits_for_a_broker_that_is_down_is_there_at_most_twice(broker, tmp_path):
    retrying = Retrying(workers(broker, tmp_path))
    asyncio.run(outage(retrying, broker.go_down, broker.come_up))
    assert max(broker.copies(TOPIC.name).values()) <= 2


def test_other_topics_are_taken_meanwhile(tmp_path):
    overdue = OverdueTopics.shared(tmp_path / "overdue", ["t", "other"])
    overdue.hold("t")
    assert "t" in overdue
    assert "other" not in overdue


def test_a_worker_that_was_killed_holds_a_topic_up_for_seconds():
    now = 1000.0
    overdue = OverdueTopics(["t"], clock=lambda: now)
    overdue.hold("t")
    now += 1.9
    assert "t" in overdue
    now += 0.2
    assert "t" not in overdue
