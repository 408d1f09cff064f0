"""What a producer of transactions raises, by what librdkafka says of its records."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import (
    AuthorizationError,
    RecordRejectedError,
    SinkError,
    TopicMissingError,
)
from headrace.kafka.client.broker_errors import is_forbidden
from headrace.kafka.write import transactions
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import (
    TransactionalProducer,
    TransactionFencedError,
    TransactionUnsettledError,
)

FATAL = KafkaError(KafkaError._FATAL)
FENCED = KafkaError(KafkaError._FENCED, fatal=True)
TOO_OLD = KafkaError(KafkaError._TIMED_OUT, "it took too long", fatal=True)
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, retriable=True)
NOT_NOW = KafkaError(KafkaError._STATE)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
FORBIDDEN = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
MISSING = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
PURGED = KafkaError(KafkaError._PURGE_QUEUE)
REFUSED = KafkaError(KafkaError.POLICY_VIOLATION)
TO_BE_ABORTED = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, txn_requires_abort=True)


class Place:
    def topic(self):
        return "clicks"


class Producer:
    """One call of it fails; polls come too early, and an abort hands over why."""

    def __init__(self, failing, cause, failures=(), of_abort=None):
        self.failing, self.cause, self.failures, self.of_abort = failing, cause, failures, of_abort
        self.reports = []

    def _call(self, name):
        if name == self.failing:
            raise KafkaException(self.cause)

    def init_transactions(self, _):
        self._call("init")

    def begin_transaction(self):
        self._call("begin")

    def produce(self, *by_place):
        self._call("produce" if self.reports else "first produce")
        self.reports.append(by_place[4])

    def poll(self, _):
        """Nothing has come through the queue of librdkafka so far."""

    def commit_transaction(self, _):
        self._call("commit")

    def abort_transaction(self, _):
        for failure in self.failures:
            self.reports[0](failure, Place())
        if self.of_abort is not None:
            raise KafkaException(self.of_abort)


def send(monkeypatch, producer):
    monkeypatch.setattr(transactions, "connected_producer", lambda *_: producer)
    TransactionalProducer({}, "id").send([ProducerRecord("clicks", b"k", b"value", ())] * 2)


@pytest.mark.parametrize(("failing", "cause"), [("produce", FATAL), ("commit", TO_BE_ABORTED)])
@pytest.mark.parametrize(
    ("failures", "of_abort", "raised"),
    [
        ([FENCED], None, TransactionFencedError),
        ([TOO_LARGE, FENCED], None, TransactionFencedError),
        ([], FENCED, TransactionFencedError),
        ([TOO_LARGE], None, RecordRejectedError),
        ([TOO_LARGE], TIMED_OUT, RecordRejectedError),
        ([FORBIDDEN], None, AuthorizationError),
        ([MISSING], None, TopicMissingError),
        ([PURGED, REFUSED], None, SinkError),
    ],
)
def test_what_ended_a_transaction_is_said_whenever_it_is_told(
    monkeypatch, failing, cause, failures, of_abort, raised
):
    with pytest.raises(raised):
        send(monkeypatch, Producer(failing, cause, failures, of_abort))


@pytest.mark.parametrize(
    ("failing", "code", "operation", "resource"),
    [
        ("init", "TRANSACTIONAL_ID", "WRITE", "transactional id id"),
        ("init", "CLUSTER", "IDEMPOTENT_WRITE", "cluster"),
        ("produce", "TOPIC", "WRITE", "topic clicks"),
        ("commit", "GROUP", "READ", "the group of the transaction"),
    ],
)
def test_a_missing_acl_of_a_transaction_is_named(monkeypatch, failing, code, operation, resource):
    """Its records count as purged: what the brokers say of the transaction alone names it."""
    error = KafkaError(getattr(KafkaError, f"{code}_AUTHORIZATION_FAILED"))
    with pytest.raises(AuthorizationError) as raised:
        send(monkeypatch, Producer(failing, error, [PURGED]))
    assert (raised.value.operation, raised.value.resource) == (operation, resource)


@pytest.mark.parametrize(
    ("failure", "operation", "resource"),
    [
        (FORBIDDEN, "WRITE", "topic clicks"),
        (KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED), "IDEMPOTENT_WRITE", "cluster"),
    ],
)
def test_a_missing_acl_of_a_record_is_named(monkeypatch, failure, operation, resource):
    with pytest.raises(AuthorizationError) as raised:
        send(monkeypatch, Producer("produce", FATAL, [failure]))
    assert (raised.value.operation, raised.value.resource) == (operation, resource)


NAMES = [name for name in dir(KafkaError) if name.endswith("_AUTHORIZATION_FAILED")]
OF_ACLS = [code for name in NAMES if is_forbidden(KafkaError(code := getattr(KafkaError, name)))]


@pytest.mark.parametrize("code", OF_ACLS)
def test_every_error_that_means_a_missing_acl_names_one(monkeypatch, code):
    assert len(OF_ACLS) == 4
    with pytest.raises(AuthorizationError):
        send(monkeypatch, Producer("init", KafkaError(code)))


@pytest.mark.parametrize(
    ("failing", "cause", "of_abort", "reason"),
    [
        ("init", TIMED_OUT, None, TIMED_OUT),
        ("begin", NOT_NOW, NOT_NOW, NOT_NOW),
        ("begin", FATAL, TOO_OLD, TOO_OLD),
        ("first produce", NOT_NOW, TIMED_OUT, NOT_NOW),
        ("produce", FATAL, None, FATAL),
        ("commit", NOT_NOW, TOO_OLD, NOT_NOW),  # it may be committed: nothing is aborted
    ],
)
def test_a_transaction_that_ends_for_another_reason_is_unsettled_and_names_it(
    monkeypatch, failing, cause, of_abort, reason
):
    monkeypatch.setattr(transactions, "TRANSACTION_SECONDS", -1)
    with pytest.raises(TransactionUnsettledError, match=f"^{re.escape(reason.str())}$"):
        send(monkeypatch, Producer(failing, cause, of_abort=of_abort))


def test_each_second_without_an_answer_is_reported(monkeypatch):
    waits, producer = [], Producer("", None)

    def commit(_):
        if len(waits) < 3:
            raise KafkaException(TIMED_OUT)

    producer.commit_transaction = commit
    monkeypatch.setattr(transactions, "connected_producer", lambda *_: producer)
    TransactionalProducer({}, "id", lambda: waits.append(None)).send([])
    assert len(waits) == 3
