"""What ends a range, and what the brokers' errors mean for it: on librdkafka's mock brokers."""

import socket
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError
from tests.mock_brokers import FETCH, MockBrokers

from headrace.errors import (
    AuthorizationError,
    BrokerUnreachableError,
    RecordsDeletedError,
    RecordsUnreadableError,
)
from headrace.kafka.client.clients import consumer
from headrace.kafka.read import range_reader
from headrace.kafka.read.cluster import KafkaCluster
from headrace.model import OffsetRange, TopicPartition

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def brokers(monkeypatch):
    monkeypatch.setattr(range_reader, "SILENCE_LIMIT_SECONDS", 20.0)
    found = MockBrokers()
    found.create("orders", 3)
    return found


@pytest.fixture
def impatient(brokers, monkeypatch):
    # What brokers say is to come before: on a busy machine, that took more than a second.
    monkeypatch.setattr(range_reader, "SILENCE_LIMIT_SECONDS", 5.0)


def numbers(first, last):
    return [str(n).encode() for n in range(first, last)]


def read(brokers, start, end, partition=ORDERS, **settings):
    chunks = KafkaCluster(brokers.config | settings).read([OffsetRange(partition, start, end)])
    return [record.value() for chunk in chunks for record in chunk.records]


def test_a_range_ends_before_its_end_and_reads_nothing_beyond(brokers):
    brokers.append("orders", numbers(0, 100))
    assert read(brokers, 10, 20) == numbers(10, 20)


def test_a_range_that_reaches_the_end_of_the_partition_needs_no_further_record(brokers):
    brokers.append("orders", numbers(0, 100))
    chunks = list(KafkaCluster(brokers.config).read([OffsetRange(ORDERS, 90, 100)]))
    assert [chunk.position for chunk in chunks][-1] == 100
    assert sum(len(chunk.records) for chunk in chunks) == 10


def backwards(brokers, max_offsets, **options):
    return range_reader.read_backwards(brokers.config, "reader", ORDERS, max_offsets, **options)


@pytest.mark.parametrize("max_offsets", [0, 1, 10, 11, 26, 99, 100, 1_000])
def test_records_are_read_backwards_as_far_as_asked(brokers, monkeypatch, max_offsets):
    monkeypatch.setattr(range_reader, "CHUNK_RECORDS", 16)
    brokers.append("orders", numbers(0, 100))
    records = backwards(brokers, max_offsets, first_part_offsets=10)
    values = [record.value() for record in records]
    assert values == numbers(max(0, 100 - max_offsets), 100)[::-1]


def test_an_empty_partition_has_nothing_to_read_backwards(brokers):
    assert list(backwards(brokers, 10)) == []


def test_what_is_read_backwards_is_held_in_memory_a_part_at_a_time(brokers, monkeypatch):
    ranges, read_ranges = [], range_reader.read_ranges

    def reading(reader, asked, *arguments, **settings):
        ranges.extend(asked)
        return read_ranges(reader, asked, *arguments, **settings)

    monkeypatch.setattr(range_reader, "read_ranges", reading)
    brokers.append("orders", numbers(0, 100))
    records = backwards(brokers, 95, first_part_offsets=10, max_part_offsets=40)
    assert next(records).value() == b"99"
    assert [(each.start, each.end) for each in ranges] == [(90, 100)]
    assert sum(1 for _ in records) == 94
    assert [(each.start, each.end) for each in ranges[1:]] == [(50, 90), (10, 50), (5, 10)]


def test_records_are_read_by_a_consumer_that_is_closed_even_if_not_all_are_taken(
    brokers, monkeypatch
):
    readers = []

    def made(*arguments):
        readers.append(consumer(*arguments))
        return readers[-1]

    monkeypatch.setattr(range_reader, "consumer", made)
    brokers.append("orders", numbers(0, 100))
    records = range_reader.read_records(brokers.config, "reader", [OffsetRange(ORDERS, 10, 20)])
    assert [record.value() for record in records] == numbers(10, 20)
    part = range_reader.read_records(brokers.config, "reader", [OffsetRange(ORDERS, 10, 20)])
    assert next(part).value() == b"10"
    part.close()
    assert list(range_reader.read_records(brokers.config, "reader", [])) == []
    assert len(readers) == 2
    for reader in readers:
        with pytest.raises(RuntimeError, match="closed"):
            reader.consume(1, 0)


def test_an_end_of_partition_before_the_end_of_the_range_is_waited_out(brokers):
    brokers.append("orders", numbers(0, 95))
    chunks = KafkaCluster(brokers.config).read([OffsetRange(ORDERS, 0, 100)])
    first = next(chunks)
    assert first.position <= 95
    missing = threading.Timer(0.5, brokers.append, ("orders", numbers(95, 100)))
    missing.start()
    rest = [record.value() for chunk in chunks for record in chunk.records]
    missing.join()
    assert [record.value() for record in first.records] + rest == numbers(0, 100)


def test_the_time_for_which_a_reader_holds_a_chunk_is_no_silence(brokers, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(range_reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    brokers.append("orders", numbers(0, 95))
    values = []
    for chunk in KafkaCluster(brokers.config).read([OffsetRange(ORDERS, 0, 100)]):
        values += [record.value() for record in chunk.records]
        now[0] += 1_000
        if len(values) == 95:
            brokers.append("orders", numbers(95, 100))
    assert values == numbers(0, 100)


@pytest.mark.usefixtures("impatient")
def test_records_that_never_come_are_named_with_what_the_broker_said(brokers):
    brokers.append("orders", numbers(0, 95))
    with pytest.raises(BrokerUnreachableError, match=r"orders\[0\] ends at 95, 100 was planned"):
        read(brokers, 0, 100)


def test_ranges_of_several_partitions_are_read_together_each_in_order(brokers):
    ranges = [OffsetRange(TopicPartition("orders", p), 5, 40 + p) for p in range(3)]
    for p in range(3):
        brokers.append("orders", numbers(0, 100), p)
    cluster = KafkaCluster(brokers.config)
    for _ in range(2):  # the second time the same consumer reads what it had paused
        found = {range_.partition: [] for range_ in ranges}
        positions = {}
        for chunk in cluster.read(ranges):
            found[chunk.partition] += [record.value() for record in chunk.records]
            positions[chunk.partition] = chunk.position
        assert found == {r.partition: numbers(r.start, r.end) for r in ranges}
        assert positions == {r.partition: r.end for r in ranges}


def test_a_missing_permission_to_read_is_said_at_once_by_name(brokers):
    brokers.append("orders", numbers(0, 10))
    brokers.answer(FETCH, KafkaError.TOPIC_AUTHORIZATION_FAILED, 100)
    for _ in range(2):  # librdkafka says it once: the second attempt is another consumer's
        with pytest.raises(AuthorizationError, match="allow READ on topic orders to User:ANON"):
            read(brokers, 0, 10)
    brokers.answer_as_asked(FETCH)
    assert read(brokers, 0, 10) == numbers(0, 10)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    ],
)
def test_brokers_that_settle_are_waited_for(brokers, code):
    brokers.append("orders", numbers(0, 10))
    brokers.answer(FETCH, code, 2)
    assert read(brokers, 0, 10) == numbers(0, 10)


@pytest.mark.usefixtures("impatient")
def test_errors_do_not_renew_the_limit_of_silence_and_the_last_is_named(brokers):
    brokers.append("orders", numbers(0, 10))
    brokers.answer(FETCH, KafkaError.NETWORK_EXCEPTION, 1_000)
    with pytest.raises(BrokerUnreachableError, match=r"orders\[0\] at 0; Fetch from broker"):
        read(brokers, 0, 10)


def test_records_that_retention_took_are_gone(brokers):
    brokers.append("orders", numbers(0, 10))
    brokers.delete_before("orders", 0, 5)
    with pytest.raises(RecordsDeletedError, match="first offset 2"):
        read(brokers, 2, 10)


def test_a_refusal_that_no_waiting_cures_ends_the_range(brokers):
    brokers.append("orders", numbers(0, 10))
    brokers.answer(FETCH, KafkaError.INVALID_MSG, 100)
    with pytest.raises(RecordsUnreadableError, match="orders"):
        read(brokers, 0, 10)


def test_damage_on_the_way_ends_the_range_and_is_not_skipped(brokers):
    brokers.append("orders", numbers(0, 10))
    brokers.append("orders", [b"damaged here"])
    brokers.append("orders", numbers(11, 20))
    with closing(DamagingProxy(brokers.config["bootstrap.servers"].split(",")[0])) as proxy:
        brokers.move(1, *proxy.address)
        with pytest.raises(RecordsUnreadableError, match=r"orders\[0\]', offset 10\): .*CRC"):
            read(brokers, 0, 20)


class DamagingProxy:
    """Passes on what a broker says, except for one word."""

    def __init__(self, broker):
        host, port = broker.split(":")
        self._broker = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        for one in self._sockets:
            one.close()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._broker)
            self._sockets += [client, broker]
            for source, target in ((client, broker), (broker, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    @staticmethod
    def _pass_on(source, target):
        try:
            while sent := source.recv(1 << 20):
                target.sendall(sent.replace(b"damaged", b"dxmaged"))
        except OSError:
            return
