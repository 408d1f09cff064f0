"""What follows a lost connection of a transaction's producer, on librdkafka's mock brokers.

The client may have asked twice for the end of the transaction. The second time ends it; the first
may arrive later, so no transaction of the same epoch follows.
"""

from __future__ import annotations

import logging
import threading
import time

import pytest
from tests.mock_brokers import API_VERSIONS, END_TXN, INIT_PRODUCER_ID, MockBrokers
from tests.waiting import wait_for

from headrace.kafka.client.clients import fetch_metadata
from headrace.kafka.write import transactions
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import (
    Connections,
    TransactionalProducer,
    TransactionUnsettledError,
)
from headrace.links import writing
from headrace.links.mirror.plan import MirrorPlan
from headrace.links.writing import LinkWriter
from headrace.model import TopicPartition
from headrace.sinks.api import Transaction
from headrace.sinks.batch_transactions import BatchTransactions
from headrace.sinks.topic_positions import TopicPositions

RECORDS = [ProducerRecord("raw", b"k", b"value", ())]


class Message:
    """A record of a source."""

    def value(self):
        return b"value"

    def key(self):
        return b"k"

    def timestamp(self):
        return 1, 1


@pytest.fixture
def brokers():
    brokers = MockBrokers()
    brokers.create("raw")
    brokers.coordinate_transactions("t", 1)
    brokers.count_requests()
    return brokers


def lose_a_connection_in(brokers, commit, **of):
    """Its end is asked for twice: the connection fails before the first answer comes."""
    asked = brokers.requests(END_TXN)
    brokers.hold(1, END_TXN)
    committing = threading.Thread(target=commit)
    committing.start()
    wait_for(lambda: brokers.requests(END_TXN) > asked)
    brokers.disconnect(**of)
    committing.join()
    assert brokers.requests(END_TXN) >= asked + 2


def test_no_transaction_follows_one_whose_end_may_be_asked_for_late(brokers):
    producer = TransactionalProducer(brokers.config, "t")
    lose_a_connection_in(brokers, lambda: producer.send(RECORDS))
    with pytest.raises(TransactionUnsettledError, match="a connection was lost"):
        producer.send(RECORDS)


def test_a_producer_that_lost_a_connection_is_replaced_once(brokers):
    producer = TransactionalProducer(brokers.config, "t")
    producer.send(RECORDS)
    assert not producer.renew()
    lose_a_connection_in(brokers, lambda: producer.send(RECORDS))
    assert (producer.renew(), producer.renew()) == (True, False)
    producer.send(RECORDS)
    assert brokers.requests(INIT_PRODUCER_ID) == 2


def test_a_broker_that_refuses_connections_is_no_lost_connection(brokers):
    """A producer that is opened while one broker is down stays."""
    brokers.lead("raw", 0, 2)
    brokers.stop(3)
    producer = TransactionalProducer(brokers.config, "t")
    for _ in range(3):
        producer.send(RECORDS)
    assert not producer.renew()


def test_a_request_that_timed_out_is_a_lost_connection(brokers):
    """The client closes the connection, and logs no failure of it."""
    producer = TransactionalProducer(brokers.config | {"socket.timeout.ms": "1000"}, "t")
    producer.send(RECORDS)
    asked = brokers.requests(END_TXN)
    brokers.hold(1, END_TXN)
    producer.send(RECORDS)
    assert brokers.requests(END_TXN) == asked + 2
    assert producer.renew()


def test_a_loss_is_noticed_that_the_client_has_logged_in_the_same_words(brokers):
    """Connections that end before a request may be sent; then one over which one was."""
    brokers.lead("raw", 0, 2)
    brokers.drop(1, API_VERSIONS, 5)
    first = {"bootstrap.servers": brokers.config["bootstrap.servers"].split(",")[1]}
    again = {"reconnect.backoff.ms": "1", "reconnect.backoff.max.ms": "1"}
    producer = TransactionalProducer(brokers.config | first | again, "t")
    producer.renew()
    lose_a_connection_in(brokers, lambda: producer.send(RECORDS), of=1)
    assert producer.renew()


@pytest.mark.parametrize(("config", "milliseconds"), [("", 45_000), ("0", 45_000), ("900", 900)])
def test_the_client_closes_idle_connections_before_brokers_do(monkeypatch, config, milliseconds):
    """It does not log that they have."""
    monkeypatch.setattr(transactions, "connected_producer", lambda *made: pytest.fail(str(made[1])))
    with pytest.raises(pytest.fail.Exception, match=f"'connections.max.idle.ms': '{milliseconds}'"):
        TransactionalProducer({"connections.max.idle.ms": config} if config else {}, "t")


def test_an_idle_connection_that_the_client_closes_is_no_lost_one(brokers):
    producer = TransactionalProducer(brokers.config | {"connections.max.idle.ms": "300"}, "t")
    for _ in range(3):
        producer.send(RECORDS)
        opened = brokers.requests(API_VERSIONS)
        wait_for(lambda opened=opened: reconnections(brokers, producer) > opened)
    assert not producer.renew()


def reconnections(brokers, producer):
    """Connections that were opened, after those that are idle by now were closed."""
    time.sleep(1.0)
    fetch_metadata(producer._producer)
    return brokers.requests(API_VERSIONS)


@pytest.mark.parametrize(
    ("kind", "text", "is_lost"),
    [
        ("FAIL", "TxnCoordinator: b:9092: Disconnected (after 2ms in state UP)", True),
        ("FAIL", "b:9092/1: 1 request(s) timed out: disconnect (after 9ms in state UP)", True),
        ("FAIL", "b:9092/1: Receive failed: Connection reset by peer", True),
        ("FAIL", "b:9092/1: Connect to b:9092 failed (after 0ms in state CONNECT)", False),
        ("FAIL", "b:9092/1: Disconnected (after 0ms in state APIVERSION_QUERY)", True),
        ("FAIL", "b:9092/1: SSL handshake failed (after 5ms in state SSL_HANDSHAKE)", False),
        ("FAIL", "b:9092/1: Disconnected: during SSL connection handshake (after 1ms)", False),
        ("FAIL", "b:9092/1: Failed to resolve 'b:9092': unknown name (after 5ms)", False),
        ("FAIL", "b:9092/1: SASL authentication error (after 5ms in state AUTH_REQ)", False),
        ("REQTMOUT", "b:9092/1: Timed out 1 in-flight, 0 retry-queued, 0 out-queue", True),
        ("REQTMOUT", "b:9092/1: Timed out 0 in-flight, 1 retry-queued, 2 out-queue", False),
        ("REQTMOUT", "b:9092/1: Timed out 0 in-flight, 1 out-queue, 1 partially-sent", True),
    ],
)
def test_a_connection_is_lost_where_requests_may_have_been_sent(kind, text, is_lost):
    connections = Connections()
    connections.log(logging.INFO, "%s [producer-1] [thrd:b]: %s", kind, text)
    assert connections.are_lost == is_lost


def test_what_is_lost_is_logged_as_by_every_client(brokers, caplog):
    caplog.set_level(logging.INFO, "headrace.kafka")
    producer = TransactionalProducer(brokers.config, "t")
    brokers.disconnect()
    wait_for(producer.renew)
    assert "Disconnected" in caplog.text
    assert "t: has lost a connection, and is replaced" in caplog.text


def test_a_link_continues_with_a_new_producer(brokers, monkeypatch):
    """Its id is its own, and the generation of its group is the fence."""
    plan = MirrorPlan("m", "headrace.mirror.m", "waw", "hel", {}, brokers.config, {"a": "raw"})
    monkeypatch.setattr(writing, "topic_ids", lambda *_: {"raw": "id"})
    writer = LinkWriter(plan.link_target, "t")

    def copy():
        writer.send(TopicPartition("a", 0), TopicPartition("raw", 0), Message(), [])
        writer.flush()
        writer.commit()

    copy()
    lose_a_connection_in(brokers, copy)
    copy()
    copy()
    assert brokers.requests(INIT_PRODUCER_ID) == 2


def test_a_batch_follows_with_a_new_producer_and_positions_that_are_read_again(
    brokers, monkeypatch
):
    brokers.create("raw.positions")
    positions, reads = {}, []

    def recorded(_, app_ids):
        reads.append(app_ids)
        return dict(positions)

    monkeypatch.setattr(TopicPositions, "versions", recorded)
    own = TopicPositions(brokers.config, "raw.positions")
    transactions = BatchTransactions(brokers.config, "t", own, "kafka raw")

    def batch(number):
        before = {"app": number - 1} if number else {"app": None}
        assert transactions.send(lambda: RECORDS, Transaction({"app": number}, before))
        positions["app"] = number

    batch(0)
    lose_a_connection_in(brokers, lambda: batch(1))
    batch(2)
    batch(3)
    assert (brokers.requests(INIT_PRODUCER_ID), len(reads)) == (2, 2)
