"""Records and positions of a batch in one transaction, which the driver sends.

Fencing: a new producer of a transactional id ends what an earlier one has left open, and fences it.
It reads the positions after that, before it sends, so a batch is sent only where they are those
that it follows. A driver that was frozen finds itself fenced, and then other positions.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

from headrace.errors import SinkError, SinkUnavailableError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import (
    TRANSACTION_SECONDS,
    TransactionalProducer,
    TransactionFencedError,
    TransactionUnsettledError,
)
from headrace.sinks.api import Transaction
from headrace.sinks.topic_positions import TopicPositions

_LOG = logging.getLogger("headrace.pipelines")


class BatchTransactions:
    """Sends the records of a batch, and the positions that it records, in one transaction.

    Args:
        client: librdkafka's settings of the cluster.
        transactional_id: of one writer: a second driver with it fences the first.
        positions: where the positions are recorded.
        label: of the sink, for messages.

    Raises:
        BrokerUnreachableError, SinkUnavailableError: if the brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """

    def __init__(
        self, client: ClientConfig, transactional_id: str, positions: TopicPositions, label: str
    ) -> None:
        self._config, self._id = client, transactional_id
        self._positions, self._label = positions, label
        self._is_checked = False
        # Before positions are read: this ends the open transaction of an earlier producer.
        with self._naming():
            self._producer: TransactionalProducer | None = self._opened()

    def send(
        self, records: Callable[[], Iterable[ProducerRecord]], transaction: Transaction
    ) -> bool:
        """Sends a batch; returns False if the positions say that it was sent before.

        Args:
            records: returns those of the batch; may be called twice.
            transaction: what the batch records beside them.

        Raises:
            SinkUnavailableError: if the brokers do not answer: the outcome is unknown until the
                next producer has read the positions.
            SinkError: if other positions are recorded, the transaction takes more than a minute, or
                Kafka refuses a record: nothing is committed.
        """
        with self._naming():
            try:
                return self._sent(records, transaction)
            except TransactionFencedError as error:
                # The other driver may have ended since: the positions say what it has sent.
                _LOG.warning("%s: fenced, reading the positions again: %s", self._label, error)
                return self._sent(records, transaction)

    def close(self) -> None:
        """Closes the producer, and aborts a transaction that was not committed."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _sent(
        self, records: Callable[[], Iterable[ProducerRecord]], transaction: Transaction
    ) -> bool:
        try:
            producer = self._current()
            if not self._is_checked:
                known = self._positions.versions(transaction.app_ids)
                if not transaction.follows(known, self._label):
                    return False
            producer.send(self._with_positions(records(), transaction))
        except BaseException:
            self.close()  # no transaction follows a failed one of the same producer
            raise
        self._is_checked = True
        return True

    def _current(self) -> TransactionalProducer:
        if self._producer is None:
            self._producer = self._opened()
        elif self._producer.renew():
            self._is_checked = False
        return self._producer

    def _opened(self) -> TransactionalProducer:
        self._is_checked = False
        return TransactionalProducer(self._config, self._id)

    def _with_positions(
        self, records: Iterable[ProducerRecord], transaction: Transaction
    ) -> Iterator[ProducerRecord]:
        yield from records
        yield from self._positions.records(transaction.versions)

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Names what the producer raises as sinks do."""
        try:
            yield
        except TransactionUnsettledError as error:
            raise SinkUnavailableError(self._label, error.reason) from error
        except TransactionFencedError as error:
            reason = (
                f"another run of this pipeline writes, or a batch takes longer to send than "
                f"{TRANSACTION_SECONDS} s, and needs a lower max_records: {error}"
            )
            raise SinkError(self._label, reason) from error
