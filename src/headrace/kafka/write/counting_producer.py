"""A producer for programs that send and end: it counts what Kafka has acknowledged."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException, Message

from headrace.kafka.client.broker_errors import delivery_failure, is_forbidden
from headrace.kafka.client.clients import ClientConfig, producer, writer_tuning
from headrace.kafka.client.headers import check_header_names
from headrace.kafka.write.failures import failure
from headrace.kafka.write.record import until_taken

_POLL_SECONDS = 0.1


class CountingProducer:
    """Sends records, and counts those that all in-sync replicas have.

    Order: records of a partition arrive in the order of :meth:`send`.
    Delivery: each record once, unless it is reported as failed: then it may be in its topic or
    not. A record that was sent and is not reported yet is lost with the process.
    After a failure nothing more should be sent, or it would overtake what failed.
    Use it on one thread; delivery reports are handled within its methods.

    Args:
        config: the cluster's, as :func:`headrace.kafka.client.clients.client_config` makes it.
        max_batch_bytes: size of a batch that the topics take (``max.message.bytes``).
        on_acknowledged: called within :meth:`send`, :meth:`poll` and :meth:`drain` with the label
            of each record that all in-sync replicas have, and the record.

    Attributes:
        acknowledged: number of records by topic that all in-sync replicas have.
        failures: by the label of the record, why Kafka did not acknowledge it.
    """

    def __init__(
        self,
        config: ClientConfig,
        max_batch_bytes: int,
        on_acknowledged: Callable[[int, Message], object] = lambda *_: None,
    ) -> None:
        size = str(max_batch_bytes)
        self._config, self._on_acknowledged = config, on_acknowledged
        limits = {"message.max.bytes": size, "batch.size": size}
        self._producer = producer(config, writer_tuning(config, limits))
        self.acknowledged: Counter[str] = Counter()
        self.failures: dict[int, str] = {}

    def __len__(self) -> int:
        """Returns the number of records that are not reported yet."""
        return len(self._producer)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        *,
        partition: int = -1,
        headers: Sequence[tuple[str, bytes | None]] = (),
        label: int = 0,
    ) -> None:
        """Hands a record over to the client library; waits while its queue is full.

        Args:
            topic: an existing topic.
            value: the record's value.
            key: its key; also decides the partition where none is given.
            partition: -1 for the partition of its key.
            headers: in order, repeated names included.
            label: names the record in :attr:`failures` and for ``on_acknowledged``.

        Raises:
            UnicodeEncodeError: if the name of a header holds half of a surrogate pair.
        """
        check_header_names(headers)
        report = functools.partial(self._on_delivery, label)
        record = (topic, value, key, partition, report, None, 0, list(headers))
        try:
            until_taken(self._producer.produce, self.poll, record)
        except KafkaException as error:
            self._on_failure(label, topic, error.args[0])
        else:
            self.poll(0)

    def poll(self, seconds: float) -> None:
        """Handles delivery reports; waits for the first one for at most ``seconds``."""
        try:
            self._producer.poll(seconds)
        except KafkaException as error:
            # Idempotence is lost: the client library takes no more, and fails what it holds.
            cause: KafkaError = error.args[0]
            if not cause.fatal():
                raise
            self._producer.purge(blocking=False)

    def drain(self) -> None:
        """Waits until every record is reported, which ``message.timeout.ms`` bounds (3 minutes)."""
        while len(self._producer):
            self.poll(_POLL_SECONDS)

    def _on_delivery(self, label: int, error: KafkaError | None, message: Message) -> None:
        cause = delivery_failure(error, message)
        if cause is None:
            self.acknowledged[message.topic()] += 1
            self._on_acknowledged(label, message)
        else:
            self._on_failure(label, message.topic(), cause)

    def _on_failure(self, label: int, topic: str, error: KafkaError) -> None:
        # Only an ACL has a sentence of its own here: the other ones are librdkafka's.
        is_acl = is_forbidden(error)
        self.failures[label] = str(failure(self._config, topic, error)) if is_acl else error.str()
