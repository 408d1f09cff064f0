"""An instance that loses its connections keeps its windows, unless another one has them."""

from __future__ import annotations

import pytest
from tests.mock_brokers import INIT_PRODUCER_ID, MockBrokers
from tests.waiting import wait_for

from headrace.kafka.write.transactions import TransactionFencedError
from headrace.queries.declaration import StandingQueries
from headrace.queries.windows.aggregate.plan import Plans
from headrace.queries.windows.answer.silent import WatchedQueries
from headrace.queries.windows.instance import owned as owned_module
from headrace.queries.windows.instance.owned import OwnedPartition

QUERIES = StandingQueries("ads", partitions=1)
PLANS = Plans({})
NOW_MS = 1_700_000_000_000


@pytest.fixture
def brokers():
    brokers = MockBrokers()
    for topic in (QUERIES.snapshots_topic, QUERIES.ended_topic, QUERIES.results_topic):
        brokers.create(topic)
    brokers.count_requests()
    return brokers


@pytest.fixture
def start(brokers, monkeypatch):
    """``start()``: an instance takes the partition; ``start.restored`` counts how often."""

    def restore(*args):
        start.restored += 1
        return read_snapshots(*args)

    def start():
        return OwnedPartition(brokers.config, QUERIES, 0, PLANS, WatchedQueries(PLANS, 1))

    read_snapshots = owned_module.read_snapshots
    monkeypatch.setattr(owned_module, "read_snapshots", restore)
    start.restored = 0
    return start


def write(owned):
    """Writes clocks in a transaction, and a snapshot in the next one."""
    owned.end(NOW_MS, lambda: None)


def lose(brokers, owned):
    producer = owned._producer
    brokers.disconnect()
    wait_for(lambda: (producer.poll(), producer._connections.are_lost)[1])


def test_an_instance_restores_nothing_after_lost_connections(brokers, start):
    owned = start()
    lose(brokers, owned)
    for _ in range(3):
        write(owned)
        lose(brokers, owned)
    write(owned)
    assert start.restored == 1
    assert brokers.requests(INIT_PRODUCER_ID) == 5


def test_an_instance_that_was_overtaken_while_it_lost_its_connections_starts_over(brokers, start):
    owned, other = start(), start()
    write(other)
    lose(brokers, owned)
    with pytest.raises(TransactionFencedError, match="another process has written"):
        write(owned)
