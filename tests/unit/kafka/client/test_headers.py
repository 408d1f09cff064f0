from tests.mock_brokers import MockBrokers

from headrace.kafka.client.headers import headers_of
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import OffsetRange, TopicPartition

TRACED = (("trace", b"v"),)


def records(brokers, count):
    range_ = OffsetRange(TopicPartition("orders", 0), 0, count)
    return [one for chunk in KafkaCluster(brokers.config).read([range_]) for one in chunk.records]


def test_headers_with_a_name_that_is_not_utf8_can_not_be_read_and_stop_nothing():
    brokers = MockBrokers()
    brokers.create("orders")
    brokers.append_with_header("orders", b"1", b"trace")
    brokers.append_with_header("orders", b"2", b"tr\xffce")
    brokers.append("orders", [b"3"])
    read = records(brokers, 3)
    assert [one.value() for one in read] == [b"1", b"2", b"3"]
    assert [headers_of(one) for one in read] == [TRACED, None, ()]


def test_they_are_seen_by_optimised_code_too_and_by_whoever_looks_again():
    """The interpreter checks calls less strictly once they were made often."""
    brokers = MockBrokers()
    brokers.create("orders")
    brokers.append_with_header("orders", b"1", b"trace")
    brokers.append_with_header("orders", b"2", b"tr\xffce")
    good, bad = records(brokers, 2)
    for _ in range(1_000):
        assert headers_of(good) == TRACED
    assert headers_of(bad) is None
    assert headers_of(bad) is None
