"""Records of several topics, all of them or none, for those who read committed records.

A producer has an id of its own for its transactions. Whoever begins with that id ends what the
one before left open, and the one before can write no more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import SinkError, TopicMissingError
from headrace.kafka.client.broker_errors import Meaning, meaning
from headrace.kafka.client.client import ClientConfig, connected_producer
from headrace.kafka.write.sending import ProducerRecord

TRANSACTION_SECONDS = 60
_SLICE_SECONDS = 1.0  # so that Ctrl-C is heard
_POLL_SECONDS = 0.1
_UNSETTLED = frozenset({Meaning.UNREACHABLE, Meaning.TRANSIENT, Meaning.PURGED})


class TransactionFencedError(Exception):
    """Another producer uses this transactional id, or a transaction took more than a minute."""


class TransactionUnsettledError(Exception):
    """It is unknown whether the transaction was committed; a new producer with its id ends it.

    Attributes:
        reason: librdkafka's words.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def finish_step(
    step: Callable[[float], None], seconds: float, on_wait: Callable[[], None] = lambda: None
) -> None:
    """Repeats a step of a transaction until it is done: a further call continues it.

    Args:
        step: takes a time-out in seconds, such as ``Producer.commit_transaction``.
        seconds: limit of all calls together.
        on_wait: is called each second in which the brokers do not answer.

    Raises:
        KafkaException: if it failed, or was not done in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return step(_SLICE_SECONDS)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            on_wait()


class TransactionalProducer:
    """A producer for one transaction at a time.

    After any error but of :meth:`send`'s own making, close it and begin with a new one: no
    transaction follows one that was given up by the same producer, so none of its late records
    can come into another transaction.

    Args:
        config: librdkafka's settings of the cluster.
        transactional_id: of its transactions.
        on_wait: is called each second in which the brokers do not answer.

    Raises:
        TransactionUnsettledError: if no broker answers.
        TransactionFencedError: if another producer began with the id at the same time.
    """

    def __init__(
        self,
        config: ClientConfig,
        transactional_id: str,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_wait = on_wait
        limit = str(TRANSACTION_SECONDS * 1000)
        self._producer = connected_producer(
            config,
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": limit,
                "message.timeout.ms": limit,
                "linger.ms": "5",
            },
        )
        self._failures: list[tuple[str, KafkaError]] = []
        self._finish(self._producer.init_transactions)

    def send(self, records: Iterable[ProducerRecord]) -> None:
        """Writes all records in one transaction; returns when it is committed.

        Raises:
            TransactionUnsettledError: if it may have been committed or not.
            TransactionFencedError: if it was not committed, and this producer can't write any more.
            TopicMissingError, SinkError: if it was not committed: a record can't be written.
        """
        self._failures.clear()
        try:
            self._producer.begin_transaction()
            for record in records:
                self._produce(record)
        except KafkaException as error:
            raise self._named(self._aborted(error.args[0])) from error
        self._finish(self._producer.commit_transaction)

    def close(self) -> None:
        """Gives up what was not committed."""
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(_SLICE_SECONDS)

    def _produce(self, record: ProducerRecord) -> None:
        where = {} if record.partition < 0 else {"partition": record.partition}
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    on_delivery=self._delivered,
                    **where,
                )
            # The queue is full: reports that are taken make room, and only polls take them.
            except BufferError:
                self._producer.poll(_POLL_SECONDS)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self._failures.append((message.topic() or "", error))

    def _finish(self, step: Callable[[float], None]) -> None:
        try:
            finish_step(step, TRANSACTION_SECONDS, self._on_wait)
        except KafkaException as error:
            cause = error.args[0]
            if cause.txn_requires_abort():
                cause = self._aborted(cause)
            raise self._named(cause) from error

    def _named(self, cause: KafkaError) -> Exception:
        for error in (cause, *(failure for _, failure in self._failures)):
            if meaning(error) is Meaning.FENCED:
                return TransactionFencedError(error.str())
        for topic, failure in self._failures:
            if meaning(failure) is Meaning.MISSING:
                return TopicMissingError(topic)
            if meaning(failure) not in _UNSETTLED:
                return SinkError(topic, failure.str())
        return TransactionUnsettledError(cause.str())

    def _aborted(self, cause: KafkaError) -> KafkaError:
        """Aborts the transaction, and takes all its delivery reports; returns why it failed.

        After a fatal error, ``produce`` says only that there was one. An abort always says which;
        a poll does once, when the error has come through librdkafka's queue.
        """
        try:
            self._producer.abort_transaction(_SLICE_SECONDS)
        except KafkaException as error:
            of_abort: KafkaError = error.args[0]
            return of_abort if of_abort.fatal() else cause
        return cause
