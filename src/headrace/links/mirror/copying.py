"""Records from one cluster to the other, a transaction at a time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from headrace.kafka.client.broker_errors import Meaning, forbidden, meaning
from headrace.kafka.client.client import consumer, describe
from headrace.kafka.client.headers import headers_of
from headrace.kafka.client.lost_brokers import IdleCheck
from headrace.kafka.origin import ORIGIN, origin_prefix, origins
from headrace.kafka.read.log_cuts import epoch_of
from headrace.kafka.read.resume import Position
from headrace.links.instance import SourceChangedError
from headrace.links.mirror.link import Link
from headrace.links.site_times import SITE_TIMES, SourceEnds, site_time_key
from headrace.links.target import Rejection, naming_site
from headrace.links.writing import TransferWriter
from headrace.model import TopicPartition
from headrace.runtime.instance_name import process_name

_LOG = logging.getLogger("headrace.mirror")
_LOG.addHandler(logging.NullHandler())  # silent unless the application asks for it

_TAKE_RECORDS = 5_000
_FULL_BYTES = 16 * 1024 * 1024  # at a slow link, too, a transaction is to end in time
_FULL_RECORDS_ALONE = 1_000  # each of them is a request of its own
_READING = {
    "fetch.message.max.bytes": "1048576",
    "queued.min.messages": "50000",
    "queued.max.messages.kbytes": "16384",
    "fetch.queue.backoff.ms": "10",  # by default a queue that is full is filled again after 1 s
    "fetch.wait.max.ms": "100",
    "check.crcs": "true",
}
# A broker that is silent is left after this time, by default after a minute. A response must come
# within it, so it is limited: at 400 KB/s, one of eight megabytes does.
_PATIENCE = {"socket.timeout.ms": "20000", "fetch.max.bytes": str(8 * 1024 * 1024)}


@dataclass(slots=True)
class _Partition:
    """A partition that is copied.

    Attributes:
        source: the partition.
        copy: the one of the target.
        prefix: of the origin of its records.
        topic_id: of the topic that its offsets are of.
        next: the next offset to copy; those before it are in the transaction, or committed.
        read_to: the offset after the last record that was copied.
        epoch: of the leader that gave that record; -1: not known.
        committed: what ``next`` was at the end of the last transaction; -1: nothing is committed.
        rejection: a record that the target refuses.
    """

    source: TopicPartition
    copy: TopicPartition
    prefix: bytes
    topic_id: str
    next: int
    read_to: int
    epoch: int
    committed: int
    rejection: Rejection | None

    @property
    def position(self) -> Position:
        """The next record to copy."""
        return Position(self.next, self.topic_id, self.read_to, self.epoch)

    @property
    def start(self) -> confluent_kafka.TopicPartition:
        """What the reader is assigned: with the epoch, it notices a log that was truncated."""
        source, (offset, epoch) = self.source, self.position.seen
        return confluent_kafka.TopicPartition(source.topic, source.partition, offset, "", epoch)

    @property
    def offset(self) -> confluent_kafka.TopicPartition:
        """What is committed for it."""
        copy, metadata = self.copy, self.position.metadata
        return confluent_kafka.TopicPartition(copy.topic, copy.partition, self.next, metadata)


class Copier:
    """Copies the partitions it was given. Used on one thread, until it raises.

    Args:
        link: the mirror and its clusters.
        transactional_id: of this one alone.
        rejections: records that the target refuses; not ``None``: it refused some, so that each
            record is sent in a batch of its own.

    Raises:
        TransactionUnsettledError: if the target's brokers do not answer.
        AuthorizationError: if an ACL is missing at the target.
    """

    def __init__(
        self,
        link: Link,
        transactional_id: str,
        rejections: Mapping[TopicPartition, Rejection] | None = None,
    ) -> None:
        self._link = link
        self._alone, self._rejections = rejections is not None, rejections or {}
        self._writer = TransferWriter(
            link.transfer_target, transactional_id, one_by_one=self._alone
        )
        self._reader = self._new_reader()
        self._idle_check = IdleCheck(link.source)
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._uncommitted: Counter[str] = Counter()
        self._source_ends = SourceEnds(link.source) if link.tells_times else None
        self._told_ms = 0
        self._passed_sites = link.passed_sites

    @property
    def is_full(self) -> bool:
        """Whether the transaction is to end before its time."""
        if self._alone and self._uncommitted["records"] >= _FULL_RECORDS_ALONE:
            return True
        return self._uncommitted["value_bytes"] >= _FULL_BYTES

    def add(self, starts: Mapping[TopicPartition, Position]) -> None:
        """Copies further partitions, named by their copies, from their positions on."""
        for copy, start in starts.items():
            source = self._link.source_of(copy)
            self._partitions[source.topic, source.partition] = _Partition(
                source,
                copy,
                origin_prefix(self._link.source_site, source.topic, source.partition),
                start.topic_id,
                start.seen.offset,
                start.read_to,
                start.epoch,
                start.seen.offset if start.is_committed else -1,
                self._rejections.get(source),
            )
        # A new one: a client that is given a partition again may begin where it was before.
        self._reader.close()
        self._reader = self._new_reader()
        self._reader.assign([partition.start for partition in self._partitions.values()])

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Copies these no more. What is in the transaction of them was committed before."""
        sources = map(self._link.source_of, partitions)
        gone = [s for s in sources if self._partitions.pop((s.topic, s.partition), None)]
        self._reader.incremental_unassign(
            [confluent_kafka.TopicPartition(s.topic, s.partition) for s in gone]
        )

    def lags(self) -> dict[TopicPartition, int | None]:
        """Returns the offsets from the next record to the end of each partition.

        The end is that of the last fetch; ``None``: nothing was fetched yet.
        """
        return {partition.source: self._lag(partition) for partition in self._partitions.values()}

    def _lag(self, partition: _Partition) -> int | None:
        source = partition.source
        place = confluent_kafka.TopicPartition(source.topic, source.partition)
        try:
            _, end = self._reader.get_watermark_offsets(place, cached=True)
        except KafkaException:  # the client has not begun with it
            return None
        return None if end == OFFSET_INVALID else max(end - partition.next, 0)

    def move(self, seconds: float) -> None:
        """Takes up to 5,000 records into the transaction; waits ``seconds`` for the first.

        Raises:
            SourceChangedError: if the source does not have the next record of a partition.
            LinkRecordError: if a record can't be copied as it is. What was taken before it can be
                committed.
            RejectedBatchError: if the target has refused records.
            AuthorizationError: if an ACL is missing at a site.
            SinkError: if the target takes no records of a topic.
            TransactionFencedError, TransactionUnsettledError: if the transaction can't go on.
            BrokersLostError: if the client has lost the source's brokers.
            KafkaException: if an error of a site is permanent.
        """
        limit = _FULL_RECORDS_ALONE if self._alone else _TAKE_RECORDS
        messages = self._reader.consume(limit, seconds)
        self._idle_check.check(self._reader, has_received=bool(messages))
        for message in messages:
            # None: the client had fetched it of a partition that went meanwhile.
            partition = self._partitions.get((message.topic(), message.partition()))
            error = message.error()
            if error is not None:
                self._note(partition, message, error)
            elif partition is not None:
                self._take(partition, message)
        self._writer.poll()

    def commit(self, group: Any) -> Counter[str]:
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
            RejectedBatchError: if the target has refused records.
            SourceChangedError: if a topic was deleted or recreated since its records were read.
            AuthorizationError: if an ACL is missing at a site.
            SinkError: if the target takes no records of a topic.
            BrokerUnreachableError: if the source's brokers do not answer.
        """
        moved = [
            partition
            for partition in self._partitions.values()
            if partition.next != partition.committed
        ]
        is_told = self._tell_times()
        if not moved and not is_told:
            return Counter()
        self._writer.begin()  # also for offsets alone: at the start, and after what is not sent
        self._writer.flush()
        self._check_topics(moved)
        self._writer.commit([partition.offset for partition in moved], group)
        for partition in moved:
            partition.committed = partition.next
        counts, self._uncommitted = self._uncommitted, Counter()
        return counts

    def check_topics(self) -> None:
        """Looks for topics that were deleted: of an idle one, the client may not be told.

        Raises:
            SourceChangedError: if one was deleted or recreated.
            AuthorizationError: if an ACL is missing at the source.
            BrokerUnreachableError: if the source's brokers do not answer.
        """
        self._check_topics(self._partitions.values())

    def close(self) -> None:
        """Gives up what is not committed."""
        if self._source_ends is not None:
            self._source_ends.close()
        self._writer.close()
        self._reader.close()

    def _tell_times(self) -> bool:
        """Says of partitions that are copied to their end at a time; whether any is."""
        if self._source_ends is None:
            return False
        self._source_ends.ask_for([partition.source for partition in self._partitions.values()])
        time_ms, ends = self._source_ends.latest
        if time_ms == self._told_ms:
            return False
        self._told_ms = time_ms
        copied = [
            partition.copy
            for partition in self._partitions.values()
            if partition.next >= ends.get(partition.source, partition.next + 1)
        ]
        for copy in copied:
            self._writer.tell(SITE_TIMES, site_time_key(copy), b"%d" % time_ms)
        return bool(copied)

    def _take(self, partition: _Partition, message: Any) -> None:
        headers, offset = headers_of(message), message.offset()
        if offset < partition.next:
            raise SourceChangedError(f"{partition.source} gave offset {offset} again")
        if headers is None:
            unreadable = Rejection(offset, "the name of one of its headers is not UTF-8")
            raise self._link.record_error(partition.source, unreadable)
        rejection = partition.rejection
        if rejection is not None and rejection.offset == offset:
            raise self._link.record_error(partition.source, rejection)
        if headers and self._is_loop(headers):
            self._uncommitted["loops_skipped"] += 1
        else:
            origin = (ORIGIN, b"%b%d" % (partition.prefix, offset))
            self._writer.send(partition.source, partition.copy, message, [*headers, origin])
            self._uncommitted["records"] += 1
            self._uncommitted["value_bytes"] += len(message.value() or b"")
        partition.next = partition.read_to = offset + 1
        partition.epoch = epoch_of(message)

    def _is_loop(self, headers: Any) -> bool:
        """Whether a record has been at the target before, or came back to the source."""
        return any(origin.site in self._passed_sites for origin in origins(headers))

    def _note(self, partition: _Partition | None, message: Any, error: KafkaError) -> None:
        """Handles what the reader is told beside records."""
        means = meaning(error)
        if means in {Meaning.UNREACHABLE, Meaning.TRANSIENT}:
            _LOG.warning("%s: site %s: %s", self._link.name, self._link.source_site, error.str())
        elif means in {Meaning.NO_RECORD, Meaning.TRUNCATED, Meaning.MISSING}:
            raise SourceChangedError(error.str())
        elif means is Meaning.FORBIDDEN:
            with naming_site(self._link.source_site):
                topics = message.topic() or ", ".join(self._link.copies)
                raise forbidden(self._link.source, "READ", f"topic {topics}")
        elif means is not Meaning.END:
            raise KafkaException(error)
        elif partition is not None:  # markers of transactions after the last record are no records
            partition.next = max(partition.next, message.offset())

    def _check_topics(self, partitions: Collection[_Partition]) -> None:
        """Checks that what was read is of the topic that the positions belong to."""
        with naming_site(self._link.source_site):
            topics = describe(
                self._link.source, {partition.source.topic for partition in partitions}
            )
        for partition in partitions:
            topic = topics.get(partition.source.topic)
            if topic is None or topic.topic_id != partition.topic_id:
                raise SourceChangedError(f"topic {partition.source.topic} was deleted")

    def _new_reader(self) -> confluent_kafka.Consumer:
        config = {"client.id": process_name()} | _PATIENCE | dict(self._link.source)
        return consumer(config, self._link.group, _READING)
