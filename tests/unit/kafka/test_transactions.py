"""What a producer of transactions raises, by what librdkafka says of its records."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import SinkError
from headrace.kafka import transactions
from headrace.kafka.sending import ProducerRecord
from headrace.kafka.transactions import (
    TransactionalProducer,
    TransactionFencedError,
    TransactionUnsettledError,
    finish_step,
)

FATAL = KafkaError(KafkaError._FATAL)
FENCED = KafkaError(KafkaError._FENCED)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


class Place:
    def topic(self):
        return "clicks"


class Producer:
    """Can't produce a second record: to give the transaction up hands over why."""

    def __init__(self, failures, fatal):
        self.failures, self.fatal, self.produced = failures, fatal, 0

    def init_transactions(self, _):
        """It is the only one."""

    def begin_transaction(self):
        """Nothing is to be done for it."""

    def produce(self, *_, on_delivery, **__):
        self.produced += 1
        if self.produced > 1:
            raise KafkaException(FATAL)
        self.report = on_delivery

    def poll(self, _):
        """Nothing has come through the queue of librdkafka so far."""

    def abort_transaction(self, _):
        for failure in self.failures:
            self.report(failure, Place())
        if self.fatal is not None:
            raise KafkaException(self.fatal)


@pytest.mark.parametrize(
    ("failures", "fatal", "raised"),
    [
        ([FENCED], None, TransactionFencedError),
        ([TOO_LARGE, FENCED], None, TransactionFencedError),
        ([], FENCED, TransactionFencedError),
        ([TOO_LARGE], None, SinkError),
        ([], TOO_LARGE, TransactionUnsettledError),
        ([], None, TransactionUnsettledError),
    ],
)
def test_a_producer_that_another_one_has_fenced_says_so(monkeypatch, failures, fatal, raised):
    producer = Producer(failures, fatal)
    monkeypatch.setattr(transactions, "producer", lambda *_: producer)
    records = [ProducerRecord("clicks", b"k", b"value", ())] * 2
    with pytest.raises(raised, match=re.escape((fatal or FATAL).str()) if not failures else None):
        TransactionalProducer({}, "id").send(records)


def test_each_second_without_an_answer_is_reported():
    waits = []

    def commit(_):
        if len(waits) < 3:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

    finish_step(commit, 60.0, lambda: waits.append(None))
    assert len(waits) == 3
