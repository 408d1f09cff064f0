"""Records from one cluster to the other, a transaction at a time."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import MirrorRecordError, SinkError
from headrace.kafka.broker_errors import Meaning, delivery_failure, is_final_for_topic, meaning
from headrace.kafka.client import consumer, describe, producer
from headrace.kafka.headers import headers_of
from headrace.kafka.lost_brokers import IdleCheck
from headrace.kafka.transactions import (
    TransactionFencedError,
    TransactionUnsettledError,
    finish_step,
)
from headrace.mirror.link import Link
from headrace.mirror.origin import ORIGIN, origin_prefix, origins
from headrace.mirror.positions import Position
from headrace.model import TopicPartition

_LOG = logging.getLogger("headrace.mirror")
_LOG.addHandler(logging.NullHandler())  # silent unless the application asks for it

TRANSACTION_SECONDS = 10
"""So long a transaction stays open whose instance is gone: readers of the copy wait for its end."""

_TAKE_RECORDS = 5_000
_FULL_BYTES = 16 * 1024 * 1024  # at a slow link, too, a transaction is to end in time
_READING = {
    "fetch.message.max.bytes": "1048576",
    "queued.min.messages": "50000",
    "queued.max.messages.kbytes": "16384",
    "fetch.queue.backoff.ms": "10",  # by default a queue that is full is filled again after 1 s
    "fetch.wait.max.ms": "100",
    "check.crcs": "true",
}
_WRITING = {
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "131072",
    "transaction.timeout.ms": str(TRANSACTION_SECONDS * 1000),
    "message.timeout.ms": str(TRANSACTION_SECONDS * 1000),
}
_FENCED = frozenset({Meaning.FENCED, Meaning.REBALANCING, Meaning.EVICTED})
_POLL_SECONDS = 0.1
_CLOSE_SECONDS = 1.0


class SourceChangedError(Exception):
    """The next record is not there: where the partitions begin is to be asked again."""


@dataclass(slots=True)
class CopiedRecords:
    """Records that were committed to the target.

    Attributes:
        records: how many.
        value_bytes: of their values.
        returning: records that came from the target, and were not sent back.
    """

    records: int = 0
    value_bytes: int = 0
    returning: int = 0

    def add(self, other: CopiedRecords) -> None:
        """Adds those of another transaction."""
        self.records += other.records
        self.value_bytes += other.value_bytes
        self.returning += other.returning


@dataclass(slots=True)
class _Partition:
    """A partition that is copied.

    Attributes:
        source: the partition.
        copy: the one of the target.
        prefix: of the origin of its records.
        topic_id: of the topic that its offsets are of.
        next: the next offset to copy; those before it are in the transaction, or committed.
        epoch: of the leader that gave the record before ``next``; -1: not known.
        committed: what ``next`` was at the end of the last transaction; -1: nothing is committed.
    """

    source: TopicPartition
    copy: TopicPartition
    prefix: bytes
    topic_id: str
    next: int
    epoch: int
    committed: int

    @property
    def start(self) -> confluent_kafka.TopicPartition:
        """What the reader is assigned: with the epoch, it notices a log that was truncated."""
        source = self.source
        return confluent_kafka.TopicPartition(
            source.topic, source.partition, self.next, "", self.epoch
        )

    @property
    def offset(self) -> confluent_kafka.TopicPartition:
        """What is committed for it."""
        metadata = Position(self.next, self.topic_id, self.epoch).metadata
        return confluent_kafka.TopicPartition(
            self.copy.topic, self.copy.partition, self.next, metadata
        )


class Copier:
    """Copies the partitions it was given. Used on one thread, until it raises.

    Args:
        link: the mirror and its clusters.
        transactional_id: of this instance alone.

    Raises:
        TransactionUnsettledError: if the target's brokers do not answer.
    """

    def __init__(self, link: Link, transactional_id: str) -> None:
        self._link = link
        self._reader = self._new_reader()
        self._idle_check = IdleCheck(link.source)
        self._producer = producer(link.target, _WRITING | {"transactional.id": transactional_id})
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._rejections: list[tuple[str, KafkaError]] = []
        self._is_open = False
        self._uncommitted = CopiedRecords()
        with _writing():
            finish_step(self._producer.init_transactions, TRANSACTION_SECONDS)

    @property
    def is_full(self) -> bool:
        """Whether the transaction is to end before its time."""
        return self._uncommitted.value_bytes >= _FULL_BYTES

    def add(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Copies further partitions of the source, from their positions on."""
        for source, start in starts.items():
            self._partitions[source.topic, source.partition] = _Partition(
                source,
                self._link.copy_of(source),
                origin_prefix(self._link.source_site, source.topic, source.partition),
                start.topic_id,
                start.offset,
                start.epoch,
                start.offset if start.is_committed else -1,
            )
        # A new one: a client that is given a partition again may begin where it was before.
        self._reader.close()
        self._reader = self._new_reader()
        self._reader.assign([partition.start for partition in self._partitions.values()])

    def remove(self, sources: Collection[TopicPartition]) -> None:
        """Copies these no more. What is in the transaction of them was committed before."""
        gone = [s for s in sources if self._partitions.pop((s.topic, s.partition), None)]
        self._reader.incremental_unassign(
            [confluent_kafka.TopicPartition(s.topic, s.partition) for s in gone]
        )

    def copy(self, seconds: float) -> None:
        """Takes up to 5,000 records into the transaction; waits ``seconds`` for the first.

        Raises:
            SourceChangedError: if the source does not have the next record of a partition.
            MirrorRecordError: if a record can't be copied as it is.
            SinkError: if the target does not take a record.
            BrokersLostError: if the client has lost the source's brokers.
            KafkaException: if an error of a site is permanent.
        """
        messages = self._reader.consume(_TAKE_RECORDS, seconds)
        if messages:
            self._idle_check.received()
        else:
            self._idle_check.check(self._reader)
        for message in messages:
            # None: the client had fetched it of a partition that went meanwhile.
            partition = self._partitions.get((message.topic(), message.partition()))
            error = message.error()
            if error is not None:
                self._note(partition, message, error)
            elif partition is not None:
                self._take(partition, message)
        with _writing():
            self._producer.poll(0)

    def commit(self, group: Any) -> CopiedRecords:
        """Ends the transaction: its records are there for readers, and its positions are kept.

        Args:
            group: metadata of the group at the target, as this instance is a member of it. Of an
                instance that is no member any more, the brokers refuse the transaction.

        Returns:
            what was in the transaction.

        Raises:
            TransactionUnsettledError: if it may have been committed or not.
            TransactionFencedError: if another instance has the partitions, or the transaction took
                longer than ten seconds.
            SourceChangedError: if a topic was deleted or made again since its records were read.
            SinkError: if the target does not take a record.
            BrokerUnreachableError: if the source's brokers do not answer.
        """
        moved = [each for each in self._partitions.values() if each.next != each.committed]
        if not moved:
            return CopiedRecords()
        self._open()  # also for offsets alone: at the start, and behind what is not sent back
        self._flush()
        self._check_topics(moved)
        offsets = [partition.offset for partition in moved]
        send_offsets = self._producer.send_offsets_to_transaction
        with _writing():
            finish_step(lambda seconds: send_offsets(offsets, group, seconds), TRANSACTION_SECONDS)
            finish_step(self._producer.commit_transaction, TRANSACTION_SECONDS)
        self._is_open = False
        for partition in moved:
            partition.committed = partition.next
        counts, self._uncommitted = self._uncommitted, CopiedRecords()
        return counts

    def close(self) -> None:
        """Gives up what is not committed."""
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(_CLOSE_SECONDS)
        self._reader.close()

    def _take(self, partition: _Partition, message: Any) -> None:
        headers, offset = headers_of(message), message.offset()
        if offset < partition.next:
            raise SourceChangedError(f"{partition.source} gave offset {offset} again")
        if headers is None:
            reason = "the name of one of its headers is not UTF-8"
            source = partition.source
            where = (self._link.name, self._link.source_site, f"{source.topic}/{source.partition}")
            raise MirrorRecordError(*where, offset, reason)
        if headers and any(origin.site == self._link.target_site for origin in origins(headers)):
            self._uncommitted.returning += 1
        else:
            self._open()
            origin = (ORIGIN, b"%b%d" % (partition.prefix, offset))
            self._send(partition.copy, message, [*headers, origin])
        partition.next = offset + 1
        epoch = message.leader_epoch()
        partition.epoch = -1 if epoch is None else epoch

    def _open(self) -> None:
        if not self._is_open:
            with _writing():
                self._producer.begin_transaction()
            self._is_open = True

    def _send(self, copy: TopicPartition, message: Any, headers: list[Any]) -> None:
        value = message.value()
        while not self._is_queued(copy, message, value, headers):
            # The queue is full: reports that are taken make room, and only polls take them.
            with _writing():
                self._producer.poll(_POLL_SECONDS)
        self._uncommitted.records += 1
        self._uncommitted.value_bytes += len(value or b"")

    def _is_queued(
        self, copy: TopicPartition, message: Any, value: bytes | None, headers: list[Any]
    ) -> bool:
        try:
            self._producer.produce(
                copy.topic,
                value,
                message.key(),
                copy.partition,
                self._delivered,
                timestamp=max(message.timestamp()[1], 0),
                headers=headers,
            )
        except BufferError:
            return False
        except KafkaException as error:
            raise _failure(copy.topic, error.args[0]) from error
        return True

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        failure = delivery_failure(error, message)
        if failure is not None:
            self._rejections.append((message.topic(), failure))

    def _note(self, partition: _Partition | None, message: Any, error: KafkaError) -> None:
        """Handles what the reader is told beside records."""
        means = meaning(error)
        if means in {Meaning.UNREACHABLE, Meaning.TRANSIENT}:
            _LOG.warning("%s: site %s: %s", self._link.name, self._link.source_site, error.str())
        elif means in {Meaning.NO_RECORD, Meaning.TRUNCATED, Meaning.MISSING}:
            raise SourceChangedError(error.str())
        elif means is not Meaning.END:
            raise KafkaException(error)
        elif partition is not None:  # markers of transactions behind the last record are no records
            partition.next = max(partition.next, message.offset())

    def _check_topics(self, partitions: Collection[_Partition]) -> None:
        """Checks that what was read is of the topic that the positions belong to."""
        topics = describe(self._link.source, {partition.source.topic for partition in partitions})
        for partition in partitions:
            topic = topics.get(partition.source.topic)
            if topic is None or topic.topic_id != partition.topic_id:
                raise SourceChangedError(f"topic {partition.source.topic} was deleted")

    def _flush(self) -> None:
        """Waits until the target has all records of the transaction."""
        with _writing():
            left = self._producer.flush(TRANSACTION_SECONDS)
        for topic, rejection in self._rejections:
            raise _failure(topic, rejection)
        if left:
            raise TransactionUnsettledError(f"{left} records were not acknowledged in time")

    def _new_reader(self) -> confluent_kafka.Consumer:
        return consumer(self._link.source, self._link.group, _READING)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    """Names what the producer raises: its transaction is given up, and another one begins anew."""
    try:
        yield
    except KafkaException as error:
        cause = error.args[0]
        fenced = meaning(cause) in _FENCED
        ended = TransactionFencedError if fenced else TransactionUnsettledError
        raise ended(cause.str()) from error


def _failure(topic: str, error: KafkaError) -> Exception:
    if is_final_for_topic(error):
        return SinkError(topic, error.str())
    return TransactionUnsettledError(error.str())
