"""Transactions: records of several topics, and positions, all of them or none."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import AuthorizationError
from headrace.kafka.client.broker_errors import (
    Meaning,
    delivery_failure,
    forbidden,
    is_forbidden,
    meaning,
)
from headrace.kafka.client.clients import ClientConfig, connected_producer, writer_tuning
from headrace.kafka.write.failures import failure
from headrace.kafka.write.record import ProducerRecord, until_taken

_LOG = logging.getLogger("headrace.kafka")
TRANSACTION_SECONDS = 60
_SLICE_SECONDS = 1.0  # so that Ctrl-C takes effect
_MAX_OFFSETS = 1_000  # in one request, which the coordinator writes as one batch of limited size
_CLOSE_SECONDS = 1.0
_NEEDED = {
    "CLUSTER_AUTHORIZATION_FAILED": ("IDEMPOTENT_WRITE", "cluster"),
    "GROUP_AUTHORIZATION_FAILED": ("READ", "{group}"),
    "TOPIC_AUTHORIZATION_FAILED": ("WRITE", "topic {topic}"),
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": ("WRITE", "transactional id {id}"),
}
_MAX_RENEWALS = 10  # before one transaction
_FENCED = frozenset({Meaning.FENCED, Meaning.REBALANCING, Meaning.EVICTED})
_UNSETTLED = frozenset({Meaning.UNREACHABLE, Meaning.TRANSIENT, Meaning.PURGED})
_GROUP = "the group of the transaction"

# The lines that `Connections` needs, whatever a project sets.
_LOGGED = {"log.connection.close": "true", "log_level": "6"}
# librdkafka does not log that a broker has closed a connection over which nothing was sent for a
# minute, but takes note of its words, and leaves out lines with the words of the last two. So an
# idle connection is closed by the client before that; a client reconnects when it has to send.
MAX_IDLE_MS = 45_000
_MAX_IDLE = "connections.max.idle.ms"
# Messages that occur only before a request was sent. The state is ignored: librdkafka suppresses
# repeated text.
_BEFORE_REQUESTS = re.compile(r"Connect to |[Hh]andshake|SASL|AUTH_LEGACY|resolve")
_TIMED_OUT = re.compile(r"[1-9]\d* (in-flight|partially-sent)")


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


class Connections:
    """What librdkafka logs of a producer's connections, which it reports in no other way.

    Its error callback is not called where a connection fails and the next one is accepted. A
    connection that it closes since a broker has not answered in time is logged as that request. It
    logs no further failure of a broker in the words of the last two, for 30 s: so the first of them
    must count, also where no request was sent yet.

    Attributes:
        are_lost: whether one failed over which requests may have been sent.
    """

    def __init__(self) -> None:
        self.are_lost = False

    def log(self, level: int, message: str, *parts: object) -> None:
        """Is called as a logger's, within polls of the producer."""
        _LOG.log(level, message, *parts)
        text = message % parts if parts else message
        if text.startswith("FAIL"):
            self.are_lost |= not _BEFORE_REQUESTS.search(text)
        elif text.startswith("REQTMOUT"):
            self.are_lost |= bool(_TIMED_OUT.search(text))


class TransactionWriter:
    """A producer's transactions, one after another.

    After an error, close it and start with a new one: no transaction follows a failed one of the
    same producer, so none of its late records can get into another transaction.

    Nor does one follow a lost connection: the client may have asked for the end of a transaction
    twice, over the connection that failed and over the next one. Brokers can't distinguish the
    request that comes late from that for the end of the next transaction, half of which it would
    commit (KAFKA-17754), unless that has another epoch: that of a new producer.

    Args:
        config: librdkafka's settings of the cluster.
        tuning: the producer's own settings, with its ``transactional.id``.
        seconds: how long a transaction may last, and brokers may take to answer. Readers wait so
            long for the end of one whose producer has crashed.
        on_wait: is called each second in which the brokers do not answer.

    Raises:
        TransactionUnsettledError: if no broker answers.
        TransactionFencedError: if another producer began with the id at the same time.
    """

    def __init__(
        self,
        config: ClientConfig,
        tuning: ClientConfig,
        seconds: int,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._seconds, self._on_wait = config, seconds, on_wait
        limit = str(seconds * 1000)
        limits = {"transaction.timeout.ms": limit, "message.timeout.ms": limit}
        idle_ms = min(int(config.get(_MAX_IDLE) or 0) or MAX_IDLE_MS, MAX_IDLE_MS)
        own = _LOGGED | {_MAX_IDLE: str(idle_ms)}
        self._tuning = writer_tuning(config, limits | dict(tuning)) | own
        self._failures: list[tuple[str, KafkaError]] = []
        self._connect()

    def renew(self) -> bool:
        """Replaces a producer that has lost a connection; returns whether it has done so.

        To be called between transactions. This fences a producer that another process has started
        with the id meanwhile, so a caller whose place another may have taken reads its positions
        after that, before it writes.

        Raises:
            TransactionUnsettledError, TransactionFencedError: as the constructor.
        """
        self.poll()  # what was logged since the last transaction
        if not self._connections.are_lost:
            return False
        _LOG.info("%s: has lost a connection, and is replaced", self._tuning["transactional.id"])
        self.close()
        self._connect()
        return True

    def begin(self) -> None:
        """Begins a transaction, where none is open.

        Raises:
            TransactionUnsettledError: if the producer has lost a connection; see :meth:`renew`.
            TransactionFencedError: if another producer started with the id.
        """
        if not self._is_open:
            with self._naming():
                self._open()

    def poll(self, seconds: float = 0) -> None:
        """Handles delivery reports."""
        with self._naming():
            self._producer.poll(seconds)

    def commit(
        self, offsets: Sequence[confluent_kafka.TopicPartition] = (), group: Any = None
    ) -> None:
        """Commits the transaction, and offsets for the group with it.

        Raises:
            TransactionUnsettledError: if it may have been committed or not.
            TransactionFencedError: if it was not: ``group`` names no member, or it took too long.
            HeadraceError: if it was not, for another reason that is known.
        """
        for first in range(0, len(offsets), _MAX_OFFSETS):
            part = list(offsets[first : first + _MAX_OFFSETS])
            send = functools.partial(self._producer.send_offsets_to_transaction, part, group)
            self._finish(send)
        self._finish(self._producer.commit_transaction)
        self._is_open = False

    def close(self) -> None:
        """Aborts what is not committed."""
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(_CLOSE_SECONDS)

    def _connect(self) -> None:
        self._is_open = False
        self._connections = Connections()
        self._producer: confluent_kafka.Producer = connected_producer(
            self._config, self._tuning, self._connections
        )
        self._take = functools.partial(until_taken, self._producer.produce, self.poll)
        self._finish(self._producer.init_transactions)

    def _open(self) -> None:
        self._producer.poll(0)  # what was logged since the last transaction
        if self._connections.are_lost:
            reason = "a connection was lost: the end of the last transaction may be asked for twice"
            raise TransactionUnsettledError(reason)
        self._producer.begin_transaction()
        self._is_open = True

    def _delivered(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None and message.offset() is not None:
            return  # as of nearly all records
        cause = delivery_failure(error, message)
        if cause is not None:
            self._failures.append((message.topic() or "", cause))

    def _finish(self, step: Callable[[float], None]) -> None:
        """Repeats a step, which takes a time-out, until it is done: a further call continues it."""
        deadline = time.monotonic() + self._seconds
        with self._naming():
            while True:
                try:
                    return step(_SLICE_SECONDS)
                except KafkaException as error:
                    if not error.args[0].retriable() or time.monotonic() > deadline:
                        raise
                    self._on_wait()

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Names what the producer raises."""
        try:
            yield
        except KafkaException as error:
            raise self._named(error.args[0]) from error

    def _named(self, cause: KafkaError) -> Exception:
        ended = TransactionFencedError if meaning(cause) in _FENCED else TransactionUnsettledError
        return ended(cause.str())

    def _forbidden(self, cause: KafkaError, topic: str, group: str) -> AuthorizationError:
        """Returns the error that names the missing ACL.

        Args:
            cause: what the brokers say.
            topic: what is written, if they mean that.
            group: whose offsets are committed, if they mean that.
        """
        operation, resource = _NEEDED[cause.name()]
        name = resource.format(topic=topic, group=group, id=self._tuning["transactional.id"])
        return forbidden(self._config, operation, name)


class WrittenRecords(Protocol):
    """What a producer has written, and whether another one has: see ``OwnRecords``."""

    def note(self, message: confluent_kafka.Message) -> None:
        """Takes a record that was written."""

    def check(self) -> None:
        """Raises TransactionFencedError if another one has written since."""


class TransactionalProducer(TransactionWriter):
    """Writes records that are known together, each call of :meth:`send` in a transaction.

    Args:
        config: librdkafka's settings of the cluster.
        transactional_id: another producer that is started with it fences this one.
        on_wait: as of :class:`TransactionWriter`.
        seconds: as of :class:`TransactionWriter`.
        written: makes what :meth:`renew` asks whether another producer has written, when this one
            has fenced all before it. With it, :meth:`send` needs no :meth:`renew`.
    """

    def __init__(
        self,
        config: ClientConfig,
        transactional_id: str,
        on_wait: Callable[[], None] = lambda: None,
        *,
        seconds: int = TRANSACTION_SECONDS,
        written: Callable[[], WrittenRecords] | None = None,
    ) -> None:
        tuning = {"transactional.id": transactional_id, "linger.ms": "5"}
        super().__init__(config, tuning, seconds, on_wait)
        self._written = None if written is None else written()
        self._report = self._delivered if written is None else self._noted

    def renew(self) -> bool:
        """See :meth:`TransactionWriter.renew`.

        Raises:
            TransactionFencedError: if another producer has written: the caller starts over.
        """
        is_new = super().renew()
        if is_new and self._written is not None:
            self._written.check()
        return is_new

    def send(
        self,
        records: Iterable[ProducerRecord],
        offsets: Sequence[confluent_kafka.TopicPartition] = (),
        group: Any = None,
    ) -> None:
        """Writes all records in one transaction; returns when it is committed.

        Offsets of a group are committed with it, as of :meth:`commit`.

        Raises:
            TransactionUnsettledError: if it may have been committed or not.
            TransactionFencedError: if it was not committed, and this producer can't write any more.
            AuthorizationError, TopicMissingError, SinkError: if it was not committed: a record
                can't be written, see :func:`failure`.
        """
        self._failures.clear()
        self._settle()
        produce, poll = self._producer.produce, self._producer.poll
        try:
            self._open()
            for record in records:
                by_place = (record.value, record.key, record.partition, self._report, None, 0)
                until_taken(produce, poll, (record.topic, *by_place, list(record.headers)))
                poll(0)
        except KafkaException as error:
            raise self._failed(self._aborted(error.args[0])) from error
        self.commit(offsets, group)

    def _settle(self) -> None:
        """Continues with a producer that has lost no connection, where another can't have written.

        It may lose the next one before it begins.
        """
        if self._written is not None:
            any(not self.renew() for _ in range(_MAX_RENEWALS))

    def _noted(self, error: KafkaError | None, message: confluent_kafka.Message) -> None:
        self._delivered(error, message)
        if error is None and self._written is not None:
            self._written.note(message)

    def _named(self, cause: KafkaError) -> Exception:
        return self._failed(self._aborted(cause) if cause.txn_requires_abort() else cause)

    def _failed(self, cause: KafkaError) -> Exception:
        """Returns why the transaction was not committed; a record's failure says more."""
        errors = (cause, *(error for _, error in self._failures))
        if fencing := [error for error in errors if meaning(error) in _FENCED]:
            return TransactionFencedError(fencing[0].str())
        for topic, error in self._failures:
            if is_forbidden(error):
                return self._forbidden(error, topic, _GROUP)
            if meaning(error) not in _UNSETTLED:
                return failure(self._config, topic, error)
        if is_forbidden(cause):
            topics = ", ".join(sorted({topic for topic, _ in self._failures}))
            return self._forbidden(cause, topics or "of the transaction", _GROUP)
        return TransactionUnsettledError(cause.str())

    def _aborted(self, cause: KafkaError) -> KafkaError:
        """Aborts the transaction, and takes all its delivery reports; returns why it failed.

        After a fatal error, ``produce`` says only that there was one. An abort always says which;
        a poll does once, when the error has come through librdkafka's queue.
        """
        self._is_open = False
        try:
            self._producer.abort_transaction(_CLOSE_SECONDS)
        except KafkaException as error:
            of_abort: KafkaError = error.args[0]
            return of_abort if of_abort.fatal() else cause
        return cause
