"""The order of a task's rows in their partition, on librdkafka's mock brokers."""

import confluent_kafka
import pyarrow as pa
from confluent_kafka import KafkaError
from tests.mock_brokers import PRODUCE, MockBrokers
from tests.waiting import LIMIT_SECONDS

from headrace import Topic
from headrace.sinks.kafka.writer import TopicWriter

RAW = pa.schema([("value", pa.string())])


def written(brokers):
    """The values of the topic, in order."""
    settings = {"group.id": "test", "enable.partition.eof": True}
    reader = confluent_kafka.Consumer({**brokers.config, **settings})
    reader.assign([confluent_kafka.TopicPartition("raw", 0, 0)])
    values = []
    while not (record := reader.poll(LIMIT_SECONDS)).error():
        values.append(record.value().decode())
    reader.close()
    return values


def rows(*values):
    return pa.Table.from_pylist([{"value": value} for value in values], RAW)


def test_a_row_that_is_too_large_is_rejected_without_being_sent():
    brokers = MockBrokers()
    brokers.create("raw")
    writer = TopicWriter(Topic("raw", config={"max.message.bytes": "2000"}), brokers.config, "t")
    rejected = writer.write(rows("a", "x" * 2000, "b"))
    assert [(each.index, each.reason) for each in rejected] == [(1, "rejected-by-kafka")]
    assert writer.close() == ["2"]
    assert written(brokers) == ["a", "b"]


def test_a_batch_that_brokers_refuse_is_sent_again_with_what_came_after_it():
    """The topic takes less than is declared: an older row must not end behind a newer one."""
    brokers = MockBrokers()
    brokers.create("raw")
    topic = Topic("raw", config={"max.message.bytes": "1000"})
    writer = TopicWriter(topic, brokers.config, "t")
    values = [str(n) + "x" * 600 for n in range(6)]  # a batch each
    brokers.answer(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE)
    assert writer.write(rows(*values)) == []
    assert writer.close() == ["6"]
    assert written(brokers)[-6:] == values
