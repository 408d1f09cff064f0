"""The contract of workers on librdkafka's mock brokers: no Kafka, no Java."""

import ctypes

import confluent_kafka
import pytest
from tests.contracts.worker import WorkerContract
from tests.integration.instances import Bench
from tests.integration.librdkafka import handle, library
from tests.waiting import LIMIT_SECONDS

from headrace.kafka.client import admin_requests, clients
from headrace.kafka.client.admin_requests import LiveTopic
from headrace.kafka.group import start_positions
from headrace.kafka.group.subscription import Membership
from headrace.kafka.table import topic_table as table
from headrace.workers.consumer_group import needed_topics, pause_requests
from headrace.workers.references import followed

ATTEMPT_SECONDS = 10


class MockBench(Bench):
    """Mock brokers make a topic when a producer asks for it, of four partitions."""

    def create(self, topic, partitions=1):
        clients.producer(self.client).list_topics(topic, timeout=LIMIT_SECONDS)

    def instance(self, worker, **options):
        """Mock brokers let a group wait for who has left, until his session ends."""
        membership = Membership(worker.consumer_group, session_seconds=6.0)
        return super().instance(worker, membership=membership, **options)


@pytest.fixture(scope="module")
def mock_brokers():
    cluster = confluent_kafka.Producer({"bootstrap.servers": "-", "test.mock.num.brokers": "3"})
    _join_at_once(cluster)
    brokers = cluster.list_topics(timeout=LIMIT_SECONDS).brokers.values()
    yield ",".join(f"{one.host}:{one.port}" for one in brokers)
    cluster.flush()


@pytest.fixture
def bench(mock_brokers, monkeypatch):
    modules = admin_requests, start_positions, table, pause_requests, needed_topics, followed
    for module in modules:
        monkeypatch.setattr(module, "describe", describe)
    return MockBench(mock_brokers)


def _join_at_once(cluster):
    """By librdkafka's own function: mock groups wait three seconds for members otherwise."""
    functions = library()
    functions.rd_kafka_handle_mock_cluster.restype = ctypes.c_void_p
    mock = ctypes.c_void_p(functions.rd_kafka_handle_mock_cluster(handle(cluster)))
    functions.rd_kafka_mock_group_initial_rebalance_delay_ms(mock, 0)


def describe(config, topics):
    """Mock brokers know no ids of topics; and nothing is paused there.

    As the product's own, it gives a broker up that does not answer: who ends waits for it.
    """
    metadata = admin_requests.admin(config).list_topics(timeout=ATTEMPT_SECONDS).topics
    return {
        name: LiveTopic(name, "", len(metadata[name].partitions), 1)
        for name in topics
        if name in metadata
    }


class TestOnMockBrokers(WorkerContract):
    """The contract, without Kafka."""
