"""Which of many records were not written, on librdkafka's mock brokers."""

import pytest
from confluent_kafka import KafkaError
from tests.mock_brokers import PRODUCE, MockBrokers

from headrace.errors import AuthorizationError, BrokerUnreachableError, TopicMissingError
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.sending import send_each

ANSWERED_AFTER_MS = 500


@pytest.fixture
def brokers():
    brokers = MockBrokers()
    brokers.create("orders", 2)
    return brokers


def record(value, partition=0):
    return ProducerRecord("orders", None, value, (), partition)


def test_each_record_that_was_not_written_is_named_among_thousands(brokers):
    lost = {7, 1_000, 2_499}
    records = [record(b"%d" % n, partition=9 if n in lost else n % 2) for n in range(2_500)]
    failures = send_each(brokers.config, records)
    assert failures.keys() == lost
    assert {type(error) for error in failures.values()} == {TopicMissingError}


def test_a_record_that_no_broker_confirmed_is_named_although_its_batch_counts_as_delivered(brokers):
    """librdkafka takes a batch for delivered once a later one of a new partition is."""
    one_by_one = {"linger.ms": "0", "batch.num.messages": "1"}
    assert send_each(brokers.config, [record(b"", 1)], one_by_one) == {}  # the producer has its id
    brokers.answer_after(ANSWERED_AFTER_MS)
    brokers.answer(PRODUCE, KafkaError.NOT_ENOUGH_REPLICAS)
    [(index, error)] = send_each(
        brokers.config, [record(b"first"), record(b"second")], one_by_one
    ).items()
    assert index == 0
    assert isinstance(error, BrokerUnreachableError)


def test_each_record_is_named_that_is_not_confirmed_in_time_sent_or_not(brokers):
    in_time = {"message.timeout.ms": "500", "linger.ms": "0", "batch.num.messages": "100"}
    assert send_each(brokers.config, [record(b"", 1)], in_time) == {}  # the producer has its id
    brokers.answer_after(60_000)
    failures = send_each(brokers.config, [record(b"%d" % n) for n in range(2_500)], in_time)
    assert sorted(failures) == list(range(2_500))
    assert {type(error) for error in failures.values()} == {BrokerUnreachableError}


def test_each_record_of_a_batch_that_is_forbidden_is_named_and_no_other(brokers):
    in_hundreds = {"batch.num.messages": "100", "linger.ms": "60000"}
    brokers.answer(PRODUCE, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    failures = send_each(brokers.config, [record(b"%d" % n) for n in range(2_500)], in_hundreds)
    assert sorted(failures) == list(range(100))
    assert {type(error) for error in failures.values()} == {AuthorizationError}
    assert "before Kafka 3.0, IDEMPOTENT_WRITE on the cluster" in failures[0].remedy
