"""What counts as sent, on librdkafka's mock brokers."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from tests.mock_brokers import PRODUCE, MockBrokers

from headrace.kafka.write.counting_producer import CountingProducer

MAX_BYTES = 1_000_000


@pytest.fixture
def brokers() -> MockBrokers:
    """Brokers with a topic of two partitions."""
    made = MockBrokers()
    made.create("orders", 2)
    return made


def test_what_brokers_acknowledge_is_counted_by_topic(brokers):
    sender = CountingProducer(brokers.config, MAX_BYTES)
    brokers.create("views")
    for value in (b"1", b"2", None):
        sender.send("orders", value, b"k", headers=[("trace", b"t")])
    sender.send("views", b"3", None)
    sender.drain()
    assert sender.acknowledged == {"orders": 3, "views": 1}
    assert sender.failures == {}
    assert len(sender) == 0


def test_what_brokers_refuse_is_named_by_its_label_and_not_counted(brokers):
    sender = CountingProducer(brokers.config, MAX_BYTES)
    sender.send("orders", b"1", None, label=7)
    sender.drain()
    brokers.answer(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    sender.send("orders", b"2", None, label=8)
    sender.drain()
    assert sender.acknowledged == {"orders": 1}
    assert sender.failures.keys() == {8}
    assert "Add an ACL: allow WRITE on topic orders" in sender.failures[8]


def test_what_the_client_refuses_at_once_is_a_failure_too(brokers):
    sender = CountingProducer(brokers.config, MAX_BYTES)
    sender.send("orders", b"x" * (MAX_BYTES + 1), None, label=1)
    assert "Message size too large" in sender.failures[1]
    assert sender.acknowledged == {}
