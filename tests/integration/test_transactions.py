"""What a producer of transactions raises at a real broker."""

from __future__ import annotations

import random
import time
from functools import partial

import pytest
from tests.kafka_topics import make_topic

from headrace.errors import SinkError
from headrace.kafka.client.clients import client_config
from headrace.kafka.write.own_records import OwnRecords
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import TransactionalProducer, TransactionFencedError
from headrace.model import TopicPartition
from headrace.settings.model import KafkaSettings


@pytest.fixture
def config(broker):
    small_queue = {"queue.buffering.max.messages": "10"}
    return client_config(KafkaSettings(), broker.bootstrap_servers) | small_queue


@pytest.mark.parametrize("pause_seconds", [0, 1])
def test_a_transaction_that_is_longer_than_the_queue_and_is_overtaken_is_fenced(
    config, topic, pause_seconds
):
    name = topic()
    make_topic(config, name, 1)
    first = TransactionalProducer(config, name)

    def records():
        for number in range(1_000):
            if number == 100:
                TransactionalProducer(config, name)
            if number == 101:
                time.sleep(pause_seconds)
            yield ProducerRecord(name, b"k", b"value", ())

    with pytest.raises(TransactionFencedError):
        first.send(records())


@pytest.mark.parametrize("pause_seconds", [0, 1])
def test_a_record_that_brokers_refuse_in_a_transaction_is_named_whenever_its_report_comes(
    config, topic, pause_seconds
):
    name = topic()
    make_topic(config, name, 1, config={"max.message.bytes": "1000"})
    producer = TransactionalProducer(config, name)

    def records():
        for number in range(1_000):
            if number == 101:
                time.sleep(pause_seconds)
            yield ProducerRecord(name, b"k", random.randbytes(2_000 if number == 100 else 5), ())

    with pytest.raises(SinkError, match=name):
        producer.send(records())


@pytest.fixture
def writer(config, topic):
    """``writer()``: a producer of one id, by whose records in partition 0 it is seen."""
    name = topic()
    make_topic(config, name, 2)
    own = partial(OwnRecords, config, [TopicPartition(name, 0)])
    records = [ProducerRecord(name, b"k", b"value", (), number) for number in (0, 0, 1)]

    def start():
        producer = TransactionalProducer(config, name, written=own)

        def send(*, is_cut=False):
            producer._connections.are_lost |= is_cut
            producer.send(records)

        return send

    return start


def test_a_writer_that_has_lost_connections_continues_where_its_records_are_the_last(writer):
    """The markers by which brokers end transactions are no records of another writer."""
    before, send = writer(), writer()
    for is_cut in (True, False, True, True):
        send(is_cut=is_cut)
    with pytest.raises(TransactionFencedError):
        before()


def test_a_writer_that_was_overtaken_while_it_had_lost_its_connections_writes_nothing(writer):
    send, other = writer(), writer()
    send(is_cut=True)
    with pytest.raises(TransactionFencedError, match="another process has written, at offset 0"):
        other(is_cut=True)
    with pytest.raises(TransactionFencedError):
        send()
