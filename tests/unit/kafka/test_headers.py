from tests.mock_brokers import MockBrokers

from headrace.kafka.cluster import KafkaCluster
from headrace.kafka.headers import headers_of
from headrace.model import OffsetRange, TopicPartition


def test_headers_with_a_name_that_is_not_utf8_can_not_be_read_and_stop_nothing():
    brokers = MockBrokers()
    brokers.create("orders")
    brokers.append_with_header("orders", b"1", b"trace")
    brokers.append_with_header("orders", b"2", b"tr\xffce")
    brokers.append("orders", [b"3"])
    range_ = OffsetRange(TopicPartition("orders", 0), 0, 3)
    read = [one for chunk in KafkaCluster(brokers.config).read([range_]) for one in chunk.records]
    assert [one.value() for one in read] == [b"1", b"2", b"3"]
    assert [headers_of(one) for one in read] == [(("trace", b"v"),), None, ()]
