"""A producer that has lost a connection continues, unless another one has written meanwhile."""

from __future__ import annotations

import random
from functools import partial

import pytest
from tests.mock_brokers import INIT_PRODUCER_ID, MockBrokers
from tests.waiting import wait_for

from headrace.kafka.client.offsets import high_watermarks
from headrace.kafka.read.range_reader import read_records
from headrace.kafka.write import own_records
from headrace.kafka.write.own_records import OwnRecords
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import (
    TransactionalProducer,
    TransactionFencedError,
    TransactionUnsettledError,
)
from headrace.model import OffsetRange, TopicPartition

OWN = TopicPartition("positions", 0)


class Cluster:
    """Mock brokers with a topic of results, and one that says how far a writer is."""

    def __init__(self):
        self.brokers = MockBrokers()
        self.brokers.create("results")
        self.brokers.create("positions")
        self.brokers.coordinate_transactions("t", 1)
        self.brokers.count_requests()
        self.config = self.brokers.config

    def producer(self, key=None):
        return TransactionalProducer(
            self.config, "t", written=partial(OwnRecords, self.config, [OWN], key)
        )

    def values(self, topic):
        place = TopicPartition(topic, 0)
        end = high_watermarks(self.config, [place])[place]
        records = read_records(self.config, "g", [OffsetRange(place, 0, end)])
        return [record.value() for record in records]


@pytest.fixture
def cluster():
    return Cluster()


def written(number, key=b"k"):
    """A transaction."""
    value = str(number).encode()
    return [
        ProducerRecord("results", None, value, ()),
        ProducerRecord(OWN.topic, key, value, ()),
    ]


def lose(brokers, *producers):
    """Ends all connections, and lets the producers notice."""
    brokers.disconnect()
    for producer in producers:
        wait_for(lambda producer=producer: (producer.poll(), producer._connections.are_lost)[1])


def test_a_writer_continues_after_lost_connections(cluster):
    producer = cluster.producer()
    for number in range(3):
        producer.send(written(number))
        lose(cluster.brokers, producer)
    assert cluster.values("results") == [b"0", b"1", b"2"]
    assert cluster.brokers.requests(INIT_PRODUCER_ID) == 3


def test_a_writer_continues_that_has_lost_a_connection_before_it_wrote(cluster):
    cluster.producer().send(written(0))
    producer = cluster.producer()
    lose(cluster.brokers, producer)
    producer.send(written(1))
    assert cluster.values("results") == [b"0", b"1"]


def test_a_writer_does_not_continue_where_another_has_written(cluster):
    first = cluster.producer()
    first.send(written(0))
    cluster.producer().send(written(1))
    lose(cluster.brokers, first)
    with pytest.raises(TransactionFencedError, match="another process has written, at offset 2"):
        first.send(written(2))
    assert cluster.values("results") == [b"0", b"1"]


@pytest.mark.parametrize(("other", "is_overtaken"), [(b"k", True), (b"other", False)])
def test_where_writers_share_a_partition_the_key_says_whose_a_record_is(
    cluster, other, is_overtaken
):
    first = cluster.producer(b"k")
    first.send(written(0))
    TransactionalProducer(cluster.config, "t2").send(written(1, other))
    lose(cluster.brokers, first)
    if is_overtaken:
        with pytest.raises(TransactionFencedError):
            first.send(written(2))
    else:
        first.send(written(2))


def test_a_writer_does_not_continue_where_its_records_are_lost(cluster, monkeypatch):
    producer = cluster.producer()
    producer.send(written(0))
    lose(cluster.brokers, producer)
    monkeypatch.setattr(own_records, "high_watermarks", lambda *_: {OWN: 0})
    with pytest.raises(TransactionUnsettledError, match=r"positions\[0\] ends at offset 0"):
        producer.send(written(1))


class Writer:
    """A process that starts over after each failure.

    Attributes:
        is_cut: it has lost its connections.
        is_overtaken: another one has written since it began, or wrote.
    """

    def __init__(self, cluster):
        self.producer, self.is_cut, self.is_overtaken = cluster.producer(), False, False


@pytest.mark.parametrize("seed", range(2))
def test_random_cuts_and_overtakings_leave_each_transaction_once(cluster, seed, request):
    """What is sent without an error is there once; who was overtaken writes nothing."""
    chance = random.Random(f"{request.config.option.seed} {seed}")
    writers, sent, newest = [Writer(cluster), Writer(cluster)], [], 1
    for number in range(20):
        by = chance.randrange(2)
        writer, other = writers[by], writers[1 - by]
        kind = chance.choice(["send", "send", "cut", "restart"])
        if kind == "cut":
            lose(cluster.brokers, *(writer.producer for writer in writers if not writer.is_cut))
            writer.is_cut = other.is_cut = True
        elif kind == "restart":
            writers[by], newest = Writer(cluster), by
        elif newest != by and not writer.is_cut:
            pass  # brokers refuse what it writes; these do not
        elif not writer.is_overtaken:
            writer.producer.send(written(number))
            sent.append(str(number).encode())
            writer.is_cut, other.is_overtaken, newest = False, True, by
        else:
            with pytest.raises(TransactionFencedError, match="another process has written"):
                writer.producer.send(written(number))
            writers[by], newest = Writer(cluster), by
    assert cluster.values("results") == sent
