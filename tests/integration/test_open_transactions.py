"""Transactions that stay open at a real broker: who notices them, and who ends them."""

from __future__ import annotations

import pytest
from tests.kafka_topics import make_topic
from tests.waiting import FLUSH_SECONDS, LIMIT_SECONDS

from headrace.errors import LinkRecordError
from headrace.kafka.client.clients import client_config, producer
from headrace.kafka.read.open_transactions import HangingTransactions
from headrace.links.target import LinkTarget
from headrace.links.writing import end_transaction
from headrace.model import TopicPartition
from headrace.settings.model import KafkaSettings


@pytest.fixture
def target(broker, topic):
    config, name = client_config(KafkaSettings(), broker.bootstrap_servers), topic()
    make_topic(config, name, 2)
    return LinkTarget("m", f"headrace.{name}", config, (name,), LinkRecordError)


def test_a_transaction_that_stays_open_is_hanging_until_it_is_ended(target):
    [topic] = target.topics
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    transactional_id = f"{target.group}.one"
    limits = {"transaction.timeout.ms": "60000", "message.timeout.ms": "60000"}
    writer = producer(target.config, limits | {"transactional.id": transactional_id})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(topic, b"committed", partition=0)
    writer.commit_transaction()
    looked = HangingTransactions(target.config)
    assert looked.find(partitions) == {}
    writer.begin_transaction()
    writer.produce(topic, b"open", partition=0)
    assert writer.flush(FLUSH_SECONDS) == 0
    assert looked.find(partitions) == {}  # it may have begun this moment
    assert looked.find(partitions) == {partitions[0]: 2}
    assert looked.find(partitions[1:]) == {}
    assert looked.find(partitions) == {}  # it was not looked at the time before
    end_transaction(target, transactional_id)
    assert looked.find(partitions) == {}
    with pytest.raises(Exception, match="fenced"):
        writer.commit_transaction(LIMIT_SECONDS)
