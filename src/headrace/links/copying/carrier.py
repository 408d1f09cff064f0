"""Records from one cluster to the other, a transaction at a time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from headrace.kafka.client.headers import headers_of
from headrace.kafka.client.partitions import client_partition
from headrace.kafka.origin import ORIGIN, origin_prefix
from headrace.kafka.read.log_cuts import epoch_of
from headrace.kafka.read.resume import Position, SourceChangedError
from headrace.links.copying.plan import CopyPlan
from headrace.links.instance import Carrier
from headrace.links.site_times import SITE_TIMES, SiteTime, SourceEnds, site_time_key
from headrace.links.source_reader import SourceReader
from headrace.links.target import Rejection
from headrace.links.writing import LinkWriter
from headrace.model import TopicPartition

_TAKE_RECORDS = 5_000
_FULL_BYTES = 16 * 1024 * 1024  # at a slow link, too, a transaction is to end in time
_FULL_RECORDS_ALONE = 1_000  # each of them is a request of its own
_READING = {"queued.max.messages.kbytes": "16384", "fetch.wait.max.ms": "100"}
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
        target_id: of the topic of its copy.
        next: the next offset to copy; those before it are in the transaction, or committed.
        read_to: the offset after the last record that was copied.
        start_epoch: of the leader that gave that record, as known at the start; -1: not known.
        committed: what ``next`` was at the end of the last transaction; -1: nothing is committed.
        rejection: a record that the target refuses.
        last: the last record that was copied since the start.
    """

    source: TopicPartition
    copy: TopicPartition
    prefix: bytes
    topic_id: str
    target_id: str
    next: int
    read_to: int
    start_epoch: int
    committed: int
    rejection: Rejection | None
    last: Any = None

    @property
    def position(self) -> Position:
        """The next record to copy."""
        epoch = self.start_epoch if self.last is None else epoch_of(self.last)
        return Position(self.next, self.topic_id, self.read_to, epoch, target_id=self.target_id)


class CopyCarrier(Carrier[Position]):
    """Copies the partitions it was given. Used on one thread, until it raises.

    Args:
        plan: the link and its clusters.
        transactional_id: of this one alone.
        rejections: records that the target refuses; not ``None``: it refused some, so that each
            record is sent in a batch of its own.

    Raises:
        TransactionUnsettledError, BrokerUnreachableError: if the target's brokers do not answer.
        AuthorizationError: if an ACL is missing at the target.
    """

    def __init__(
        self,
        plan: CopyPlan,
        transactional_id: str,
        rejections: Mapping[TopicPartition, Rejection] | None = None,
    ) -> None:
        self._plan = plan
        self._alone, self._rejections = rejections is not None, rejections or {}
        self._writer = LinkWriter(plan.link_target, transactional_id, one_by_one=self._alone)
        self._reader = SourceReader(
            plan.source_names,
            plan.group,
            _PATIENCE | dict(plan.source),
            _READING,
            lambda source: self._partitions[source.topic, source.partition].next,
        )
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._uncommitted: defaultdict[str, int] = defaultdict(int)  # quicker than a Counter
        self._source_ends = SourceEnds(plan.source) if plan.reports_times else None
        self._reported_ms = 0
        self._counter_of, self._placed = plan.filter.counter_of, plan.placed
        self._skipping = plan.skipping()
        self._requests = ThreadPoolExecutor(1, "topics of a target")

    @property
    def is_full(self) -> bool:
        if self._alone and self._uncommitted.get("records", 0) >= _FULL_RECORDS_ALONE:
            return True
        return self._uncommitted.get("value_bytes", 0) >= _FULL_BYTES

    def add(self, starts: Mapping[TopicPartition, Position]) -> None:
        for copy, start in starts.items():
            source = self._plan.source_of(copy)
            self._partitions[source.topic, source.partition] = _Partition(
                source,
                copy,
                origin_prefix(self._plan.origin_site, source.topic, source.partition),
                start.topic_id,
                start.target_id,
                start.seen.offset,
                start.read_to,
                start.epoch,
                start.seen.offset if start.is_committed else -1,
                self._rejections.get(source),
            )
        # All of them, as `assign` makes a new consumer: the others continue at their next records.
        self._reader.assign(
            {partition.source: partition.position.seen for partition in self._partitions.values()}
        )

    def keep(self, _offsets: Sequence[confluent_kafka.TopicPartition]) -> None:
        """Does nothing: the group subscribes to the topics of its offsets."""

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        sources = map(self._plan.source_of, partitions)
        self._reader.remove(
            [s for s in sources if self._partitions.pop((s.topic, s.partition), None)]
        )

    @property
    def has_uncommitted(self) -> bool:
        """Returns whether records are in an open transaction."""
        return bool(self._uncommitted)

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """Returns the next offsets that are committed, by partitions of the source; -1: none is."""
        return {partition.source: partition.committed for partition in self._partitions.values()}

    def lags(self) -> dict[TopicPartition, int | None]:
        """Returns the offsets from the next record to the end of each partition.

        The end is that of the last fetch; ``None``: nothing was fetched yet.
        """
        return {
            partition.source: self._reader.lag(partition.source, partition.next)
            for partition in self._partitions.values()
        }

    def move(self, seconds: float) -> None:
        """Takes up to 5,000 records. Those before one that can't be copied can be committed."""
        limit = _FULL_RECORDS_ALONE if self._alone else _TAKE_RECORDS
        records, ends = self._reader.read(limit, seconds)
        for record in records:
            partition = self._partitions.get((record.topic(), record.partition()))
            if partition is not None:
                self._take(partition, record)
        for source in ends.keys() & self._partitions.keys():
            partition = self._partitions[source]
            # Beyond markers of transactions: the lag of a partition that is copied is 0.
            partition.next = max(partition.next, ends[source])
        self._writer.poll()

    def commit(self, group: Any) -> Counter[str]:
        moved = [
            partition
            for partition in self._partitions.values()
            if partition.next != partition.committed
        ]
        has_times = self._send_times()
        if not moved and not has_times:
            return Counter()
        self._writer.begin()  # also for offsets alone: at the start, and after loops
        self._writer.flush()
        # Between its read and this commit a topic may have been recreated: the offsets of the old
        # one would be committed, and records of the new one skipped; or a new copy would lack what
        # the old one had.
        self._check_topics(moved)
        offsets = [client_partition(at.copy, at.next, at.position.metadata) for at in moved]
        self._writer.commit(offsets, group)
        for partition in moved:
            partition.committed = partition.next
        counts, self._uncommitted = Counter(self._uncommitted), defaultdict(int)
        return counts

    def check_topics(self) -> None:
        self._check_topics(self._partitions.values())

    def close(self) -> None:
        if self._source_ends is not None:
            self._source_ends.close()
        self._requests.shutdown(wait=False)
        self._writer.close()
        self._reader.close()

    def _check_topics(self, partitions: Collection[_Partition]) -> None:
        sources = {(at.source.topic, at.topic_id) for at in partitions}
        copies = {self._plan.copies[at.source.topic] for at in partitions}
        if self._plan.source == self._plan.target:  # one cluster answers for both
            self._reader.check_topics(sources | self._writer.known_ids(copies))
        else:  # the time of both requests is part of each transaction
            answer = self._requests.submit(self._writer.check_topics, copies)
            self._reader.check_topics(sources)
            answer.result()

    def _send_times(self) -> bool:
        """Sends the time at which partitions were copied to their end; returns whether any was."""
        if self._source_ends is None:
            return False
        self._source_ends.ask_for([partition.source for partition in self._partitions.values()])
        time_ms, ends = self._source_ends.latest
        if time_ms == self._reported_ms:
            return False
        self._reported_ms = time_ms
        copied = [
            partition
            for partition in self._partitions.values()
            if partition.next >= ends.get(partition.source, partition.next + 1)
        ]
        for at in copied:
            value = SiteTime(time_ms, at.target_id).record_value
            self._writer.send_own(SITE_TIMES, site_time_key(at.copy), value)
        return bool(copied)

    def _take(self, partition: _Partition, message: Any) -> None:
        headers, offset = headers_of(message), message.offset()
        if offset < partition.next:
            raise SourceChangedError(f"{partition.source} gave offset {offset} again")
        if headers is None:
            unreadable = Rejection(offset, "the name of one of its headers is not UTF-8")
            raise self._plan.record_error(partition.source, unreadable)
        rejection = partition.rejection
        if rejection is not None and rejection.offset == offset:
            raise self._plan.record_error(partition.source, rejection)
        counter = self._counter_of(headers)
        if counter == "records":
            origin = (ORIGIN, b"%b%d" % (partition.prefix, offset))
            copy, sent = partition.copy, message
            if self._placed is not None:
                copy, sent = self._placed(message)
            self._writer.send(partition.source, copy, sent, [*headers, origin])
            self._uncommitted["value_bytes"] += len(message.value() or b"")
        else:
            self._skipping(partition.source, offset, headers)
        self._uncommitted[counter] += 1
        partition.next = partition.read_to = offset + 1
        partition.last = message
