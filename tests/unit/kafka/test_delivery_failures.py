"""When a record counts as delivered, on librdkafka's mock brokers."""

import pytest
from confluent_kafka import KafkaError
from tests.mock_brokers import PRODUCE, MockBrokers
from tests.waiting import FLUSH_SECONDS

from headrace.kafka.client.broker_errors import delivery_failure
from headrace.kafka.client.clients import producer
from headrace.kafka.client.offsets import watermarks
from headrace.model import TopicPartition

ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
ANSWERED_AFTER_MS = 500


@pytest.mark.parametrize(
    "refusal",
    [
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
    ],
)
def test_a_batch_is_not_delivered_because_a_later_one_of_a_new_partition_is(refusal):
    """Both are on their way, and what was refused is there by the time the second comes."""
    brokers, failures = MockBrokers(), {}
    brokers.create("orders", 2)
    sender = producer(brokers.config, {"linger.ms": "0", "batch.num.messages": "1"})
    sender.produce("orders", b"", partition=OTHER.partition)
    assert sender.flush(FLUSH_SECONDS) == 0  # the producer has its id
    brokers.answer_after(ANSWERED_AFTER_MS)

    def reported(error, message):
        assert error is None
        failures[message.value()] = delivery_failure(error, message)

    brokers.answer(PRODUCE, refusal)
    for value in (b"first", b"second"):
        sender.produce("orders", value, partition=ORDERS.partition, on_delivery=reported)
    assert sender.flush(FLUSH_SECONDS) == 0
    assert failures.pop(b"second") is None
    assert failures[b"first"].name() == "_MSG_TIMED_OUT"
    assert watermarks(brokers.config, [ORDERS]) == {ORDERS: (0, 1)}
