"""The transactions of one consumer, on whatever thread waits for them: one at a time."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.write.record import ProducerRecord
from headrace.kafka.write.transactions import TransactionalProducer, TransactionUnsettledError
from headrace.runtime.instance_name import process_name

TRANSACTION_SECONDS = 30
"""How long a transaction may last. Brokers abort that of an instance that was killed after it, and
other owners of its partitions wait for that. Sessions, which they wait for too, last 45 s."""

MAX_BYTES = 16 * 2**20
_FIRST_BYTES, _MIN_BYTES = 2**20, 2**16
_QUICK_SECONDS, _SLOW_SECONDS = 1.0, 10.0

_LOG = logging.getLogger("headrace.workers")


class TransactionSize:
    """How much a transaction may have, so that brokers take it well within its time.

    Brokers abort one that takes longer, and the next one must not have as much, or nothing would
    ever be committed. So it starts small, and follows how long transactions take.

    Attributes:
        bytes: of records. One record's sends may be more: they can't be divided.
    """

    def __init__(self) -> None:
        self.bytes = _FIRST_BYTES

    def committed(self, size: int, seconds: float) -> None:
        """Notes that a transaction of ``size`` bytes took so long."""
        if seconds > _SLOW_SECONDS:
            self.bytes = max(_MIN_BYTES, self.bytes // 2)
        elif 2 * size > self.bytes and seconds < _QUICK_SECONDS:
            self.bytes = min(MAX_BYTES, 2 * self.bytes)

    def failed(self) -> None:
        """Notes that one took too long, or was not answered."""
        self.bytes = max(_MIN_BYTES, self.bytes // 4)


class Transactions:
    """Makes a producer when there is something to write, and another one after each failure.

    Args:
        config: of the cluster.
        name: of the consumer group; begins the transactional ids.
        batch_bytes: the size of a batch that all topics take.
    """

    def __init__(self, config: ClientConfig, name: str, batch_bytes: Callable[[], int]) -> None:
        self._config = {"client.id": process_name()} | dict(config)
        self._name, self._batch_bytes = name, batch_bytes
        self._producer: TransactionalProducer | None = None
        self._id, self._limit = "", 0

    def write(
        self,
        records: Sequence[ProducerRecord],
        offsets: Sequence[confluent_kafka.TopicPartition],
        group: Any,
    ) -> None:
        """Writes records and offsets in one transaction; returns when it is committed.

        Raises:
            TransactionFencedError: if it was not committed: the group has another generation.
            TransactionUnsettledError: if it may have been committed or not.
            HeadraceError: if it was not committed: Kafka refuses a record.
        """
        if self._producer is not None and self._batch_bytes() < self._limit:
            self.close()
        try:
            self.settle()
            producer = self._producer
            if producer is not None:
                producer.send(records, offsets, group)
        except BaseException:
            self.close()  # no transaction follows a failed one of the same producer
            raise

    def settle(self) -> None:
        """Returns when no transaction of an earlier producer is open, with a new one.

        Raises:
            TransactionUnsettledError: if the brokers do not answer.
        """
        if self._producer is not None:
            self._producer.renew()  # where it has lost a connection
            return
        if self._id:
            # This ends what is open. Brokers that are killed can forget to abort a transaction; the
            # next one of its id would commit its records, so that gets another id.
            self._opened().close()
        self._id = f"{self._name}.{uuid.uuid4()}"
        self._producer = self._opened()

    def close(self) -> None:
        """Aborts what is not committed."""
        if self._producer is not None:
            with contextlib.suppress(TransactionUnsettledError):
                self._producer.close()
            self._producer = None

    def _opened(self) -> TransactionalProducer:
        self._limit = self._batch_bytes()
        config = self._config | {"batch.size": str(self._limit)}
        return TransactionalProducer(config, self._id, self._on_wait, seconds=TRANSACTION_SECONDS)

    def _on_wait(self) -> None:
        _LOG.warning("%s: a transaction waits for the brokers", self._name)
