"""Writes records and positions to the target in transactions."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headrace.errors import AuthorizationError
from headrace.kafka.client.admin_requests import topic_ids
from headrace.kafka.client.broker_errors import (
    is_final_for_topic,
    is_forbidden,
    is_of_record,
    refusing_setting,
)
from headrace.kafka.write.failures import failure
from headrace.kafka.write.transactions import TransactionUnsettledError, TransactionWriter
from headrace.links.target import LinkTarget, Rejection, check_topic_ids, naming_site
from headrace.model import TopicPartition
from headrace.runtime.clock import now_in_ms
from headrace.runtime.instance_name import process_name
from headrace.spark.header_columns import TIMESTAMP

TRANSACTION_SECONDS = 10
"""Brokers abort the transaction of an instance that died after this time; readers wait for it."""

NO_TIMESTAMP_MS = -1
"""What stands for the timestamp of a record that has none."""

_UNWRITABLE_MS = (NO_TIMESTAMP_MS, 0)  # with 0, the client takes the time of the clock
_WRITING = {
    "linger.ms": "20",  # a tenth of a transaction: larger batches, hardly a later commit
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "131072",
}
_ONE_BY_ONE = {"batch.num.messages": "1"}
_FLUSH_SLICES = 60  # between them failures are looked for, every sixth of a second


class RejectedBatchError(Exception):
    """The target refuses records for their content; the transaction is aborted.

    Attributes:
        records: the first one of each partition of the source. Empty: brokers refuse a batch as a
            whole, and it is not known which record of it is at fault.
    """

    def __init__(self, reason: str, records: dict[TopicPartition, Rejection]) -> None:
        self.records = records
        super().__init__(reason)


def _with_time(timestamp_ms: int, headers: list[Any]) -> tuple[int, list[Any]]:
    """Returns a timestamp that can be written, and headers that say which one the record has.

    That of a record without one is the time of copying: by one of 1970, retention would delete the
    copy at once, where the source keeps its record.
    """
    writable_ms = now_in_ms() if timestamp_ms == NO_TIMESTAMP_MS else 1
    if any(name == TIMESTAMP for name, _ in headers):  # a dispatcher has kept the first one
        return writable_ms, headers
    return writable_ms, [*headers, (TIMESTAMP, b"%d" % timestamp_ms)]


class LinkWriter(TransactionWriter):
    """Writes records and positions in transactions, one after another.

    Used on one thread, until it raises anything but LinkRecordError.

    Args:
        target: where it writes.
        transactional_id: of this writer alone.
        one_by_one: send each record in a batch of its own, so that a refusal names the record.

    Raises:
        TransactionUnsettledError, BrokerUnreachableError: if the target's brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """

    def __init__(
        self, target: LinkTarget, transactional_id: str, *, one_by_one: bool = False
    ) -> None:
        self._target, self._one_by_one, self._group = target, one_by_one, f"group {target.group}"
        self._rejected: dict[TopicPartition, Rejection] = {}
        config = {"client.id": process_name()} | dict(target.config)
        own = {
            "transactional.id": transactional_id,
            # Shorter, so that a broker that is silent is left before the transaction times out.
            "socket.timeout.ms": str(TRANSACTION_SECONDS * 1000 // 2),
        }
        tuning = _WRITING | (_ONE_BY_ONE if one_by_one else {}) | own
        super().__init__(config, tuning, TRANSACTION_SECONDS)
        # Before positions are fetched: those are of topics that have these ids, or are refused.
        with naming_site(target.site):
            self._topic_ids = topic_ids(target.config, target.topics)

    def begin(self) -> None:
        """Begins a transaction, where none is open; of a new producer after a lost connection.

        That fences no other writer: the id is this one's alone, and the generation of the group
        says whose the partitions are.
        """
        if not self._is_open:
            self.renew()
            super().begin()

    def check_topics(self, topics: Collection[str]) -> None:
        """Checks that topics of the target are those that were there when the writer was created.

        A position that is committed for a topic that was recreated would skip all records before.

        Raises:
            SourceChangedError: if one was deleted or recreated.
            AuthorizationError: if an ACL is missing.
            BrokerUnreachableError: if the brokers do not answer.
        """
        check_topic_ids(self._target.config, self._target.site, self.known_ids(topics))

    def known_ids(self, topics: Collection[str]) -> set[tuple[str, str]]:
        """Returns topics of the target with the ids that :meth:`check_topics` compares.

        A carrier whose sources are in the same cluster compares all with one request.
        """
        return {(topic, self._topic_ids.get(topic, "")) for topic in topics}

    def send(
        self, source: TopicPartition, target: TopicPartition, message: Any, headers: list[Any]
    ) -> None:
        """Adds a record to the transaction; starts one if none is open.

        Raises:
            LinkRecordError: if the client does not take the record. The transaction stays open.
            RejectedBatchError: if the target has refused records.
            AuthorizationError, SinkError: if the target takes no records of the topic.
            TransactionFencedError, TransactionUnsettledError: if the transaction can't continue.
        """
        if not self._is_open:
            self.begin()
        _, timestamp_ms = message.timestamp()
        if timestamp_ms in _UNWRITABLE_MS:
            timestamp_ms, headers = _with_time(timestamp_ms, headers)
        report = (
            functools.partial(self._delivered_alone, source, message.offset(), timestamp_ms)
            if self._one_by_one
            else self._delivered
        )
        record = (
            target.topic,
            message.value(),
            message.key(),
            target.partition,
            report,
            None,
            timestamp_ms,
            headers,
        )
        try:
            self._take(record)
        except KafkaException as error:
            raise self._not_queued(source, message, error.args[0]) from error

    def send_own(self, topic: str, key: bytes, value: bytes) -> None:
        """Adds a record that no source has to the transaction. Raises as :meth:`send`."""
        self.begin()
        try:
            self._take((topic, value, key, -1, self._delivered))
        except KafkaException as error:
            raise self._cause(error.args[0].str()) from error

    def flush(self) -> None:
        """Waits until the target has all records of the transaction. Raises as :meth:`send`.

        Returns at the first failure: of a transaction that has failed, librdkafka sends nothing
        more.
        """
        left = 0
        with self._naming():
            for _ in range(_FLUSH_SLICES):
                left = self._producer.flush(TRANSACTION_SECONDS / _FLUSH_SLICES)
                if not left or self._failures:
                    break
        self._check_failures()
        if left:
            raise self._cause(f"{left} records were not acknowledged in time")

    def _not_queued(self, source: TopicPartition, message: Any, cause: KafkaError) -> Exception:
        """Returns why the client does not take a record. Raises as :meth:`send`."""
        if is_of_record(cause) or cause.name() == "_INVALID_ARG":
            setting = refusing_setting(cause, message.timestamp()[1])
            rejection = Rejection(message.offset(), cause.str(), setting)
            return self._target.record_error(source, rejection)
        self.poll()
        self._check_failures()
        return self._cause(cause.str())

    def _delivered_alone(
        self,
        source: TopicPartition,
        offset: int,
        timestamp_ms: int,
        error: KafkaError | None,
        message: Any,
    ) -> None:
        self._delivered(error, message)
        if error is not None and is_of_record(error):
            rejection = Rejection(offset, error.str(), refusing_setting(error, timestamp_ms))
            self._rejected.setdefault(source, rejection)

    def _check_failures(self) -> None:
        for _, error in self._failures:
            if is_of_record(error):
                raise RejectedBatchError(error.str(), self._rejected)
        # By what helps an operator most: a record at fault, then what a topic or an ACL refuses.
        for topic, error in self._failures:
            if is_forbidden(error):
                raise self._forbidden(error, topic, self._group)
            if is_final_for_topic(error):
                raise failure(self._config, topic, error)
        for topic, error in self._failures:  # such as "purged", of a transaction that has failed
            raise self._cause(f"{topic}: {error.str()}")

    def _cause(self, reason: str) -> Exception:
        """Returns why the transaction can't continue, as the client says when one is started."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            cause = error.args[0]
            if cause.name() != "_STATE":
                return self._named(cause)
        return TransactionUnsettledError(reason)

    def _named(self, cause: KafkaError) -> Exception:
        if is_forbidden(cause):
            return self._forbidden(cause, ", ".join(self._target.topics), self._group)
        return super()._named(cause)

    def _forbidden(self, cause: KafkaError, topic: str, group: str) -> AuthorizationError:
        try:
            with naming_site(self._target.site):
                raise super()._forbidden(cause, topic, group)
        except AuthorizationError as error:
            return error


def end_transaction(target: LinkTarget, transactional_id: str) -> None:
    """Ends the open transaction of a writer: commits it if its commit was sent, else aborts it.

    Raises:
        TransactionUnsettledError, BrokerUnreachableError: if the target's brokers do not answer.
        AuthorizationError: if an ACL is missing.
    """
    LinkWriter(target, transactional_id).close()
