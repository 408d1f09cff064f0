"""A topic as a table: the newest record of each key.

:func:`read_table` reads it once, to its end. :class:`TableFollower` reads it on a thread of its own
for as long as it is open. :func:`held_table` lends a table that a process holds, and
:meth:`HeldTable.read_to` reads it up to the position of a batch.

Contract:

- *Order.* Records of a partition come in order of offset. Nothing holds between partitions, so all
  records of a key must be in the same one. Records without a key are skipped.
- *Uncommitted records* are never handed over.
- *Repetition.* A follower whose client fails starts at the first offset again, and hands over all
  records that are there, also those that it has handed over. They lead to the same table; before
  the end is reached again, keys have older values. ``on_start`` and ``on_ready`` are called around.
- *Deletion.* A record without a value deletes its key, and the value is handed over as ``None``.
- *Recreation, truncation.* A follower starts at the first offset again. Keys that have no record
  any more are handed over as deleted once the end is reached. Until then, they keep their values.
  It is certain to notice a recreated topic, and partitions that were added, only if its owner calls
  :meth:`TableFollower.compare` with the topic as it is.
  A held table of a truncated topic is read from the first offset again; a position in a recreated
  topic is refused, because the records before it were deleted.
- *Retention.* A follower does not notice that records it has handed over are deleted, and neither
  does a held table. A held table that retention or compaction may have overtaken, so that it would
  miss deletions of keys, is read from the first offset again.
- *Absence.* The table of a topic that does not exist is empty. A follower waits until it exists. A
  held table fails.
- *Brokers are unreachable.* A read fails; a follower keeps what it has, and continues later.
- *A callback that fails* for a record does not stop the follower: the error is logged, and the
  next record handed over. A held table that fails is dropped: it is at no position.
"""

from __future__ import annotations

import functools
import logging
import operator
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.errors import AuthorizationError, BrokerUnreachableError
from headrace.kafka.client.admin_requests import LiveTopic, describe
from headrace.kafka.client.broker_errors import Meaning, forbidden, meaning
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import earliest_offsets, high_watermarks, latest_offsets
from headrace.kafka.read.cluster import Cluster
from headrace.kafka.read.log_cuts import Seen
from headrace.kafka.read.polling import poll_endlessly
from headrace.kafka.read.range_reader import Record, read_records
from headrace.model import OffsetRange, TopicPartition

MAX_IDLE_SECONDS = 3_600.0
"""After this time without reading, a table is read from the first offset of its topic again.

Compaction removes the record that deletes a key after the topic's compaction lag and
``delete.retention.ms``, by default a day, without moving the first offset.
"""

OnRecord = Callable[[bytes, Any], None]
"""Called with key and value, ``None`` for a deleted key; in the order of each partition."""

_LOG = logging.getLogger("headrace.kafka")
_MAX_TABLES = 16  # that a process holds
_GROUP = "headrace.changelog"
_WAITING = {"fetch.wait.max.ms": "100"}  # how soon the end is known to be the end
_WAIT_SLICE_SECONDS = 0.5  # how soon a missing permission is noticed
_SILENCE_SECONDS = 30.0
_SETTLE_SECONDS = 120.0  # a transaction that was left open ends after a minute


def read_table(config: ClientConfig, name: str, *, settled: bool = False) -> dict[bytes, bytes]:
    """Returns the newest value of each key that is not deleted; empty if there is no such topic.

    Arguments and errors are those of :func:`table_records`.
    """
    records = table_records(config, name, settled=settled)
    table = {key: record.value() for record in records if (key := record.key()) is not None}
    return {key: value for key, value in table.items() if value is not None}


def table_records(
    config: ClientConfig, name: str, group: str = _GROUP, *, settled: bool = False
) -> Iterator[Record]:
    """Yields the records of a topic, up to its end of now; none if there is no such topic.

    Args:
        config: librdkafka's settings of the cluster.
        name: name of the topic.
        group: name by which brokers know the consumer; it joins no group.
        settled: waits for open transactions to end. Until they do, readers of committed records
            see nothing that was written after they began, not even what others have committed.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer, or a transaction stays open.
    """
    live = describe(config, [name]).get(name)
    if live is None:
        return
    starts = earliest_offsets(config, live.all_partitions)
    if settled:
        # The high watermark includes open transactions: reading up to it waits for their end.
        ends, limit = high_watermarks(config, live.all_partitions), _SETTLE_SECONDS
    else:
        latest, limit = latest_offsets(config, live.all_partitions), _SILENCE_SECONDS
        ends = {partition: end for partition, (end, _) in latest.items()}
    ranges = [OffsetRange(partition, starts[partition], end) for partition, end in ends.items()]
    yield from read_records(config, group, ranges, silence_limit_seconds=limit)


@dataclass(frozen=True)
class TopicPosition:
    """A position in all partitions of a topic.

    Attributes:
        topic_id: of the topic.
        partitions: by partition, the offset after the last record of the table.
        epochs: by partition, the epoch of the leader that reported the offset, where it is known.
    """

    topic_id: str
    partitions: Mapping[int, int]
    epochs: Mapping[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the position as it is kept in a checkpoint."""
        partitions = {str(p): end for p, end in sorted(self.partitions.items())}
        epochs = {str(p): epoch for p, epoch in sorted(self.epochs.items())}
        return {"topic_id": self.topic_id, "partitions": partitions, "epochs": epochs}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> TopicPosition:
        """Reads what :meth:`to_json` wrote."""
        partitions = {int(p): int(end) for p, end in stored["partitions"].items()}
        epochs = {int(p): int(epoch) for p, epoch in stored.get("epochs", {}).items()}
        return cls(stored["topic_id"], partitions, epochs)

    def leads_to(self, later: TopicPosition, cluster: Cluster, topic: str) -> bool:
        """Returns whether a table at this position is at a later one once it has read the rest.

        It is not if the topic is another one, or was truncated before this position since. Only a
        new leader truncates a log, so leaders are asked where the epoch has changed.

        Raises:
            BrokerUnreachableError: if no leader answers.
        """
        if self.topic_id != later.topic_id:
            return False
        # The later position lies before this one: a batch is repeated, or the log was truncated.
        if any(end > later.partitions.get(p, 0) for p, end in self.partitions.items()):
            return False
        newly_led = {
            p: Seen(end, self.epochs[p])
            for p, end in self.partitions.items()
            if self.epochs.get(p) not in {None, later.epochs.get(p)}
        }
        return not newly_led or not cluster.cuts(topic, newly_led)

    def ranges_to(
        self, later: TopicPosition, topic: str, earliest: Mapping[int, int]
    ) -> list[OffsetRange]:
        """Returns the ranges of offsets between this position and a later one, without empty ones.

        Args:
            later: the position up to which records are read.
            topic: name of the topic.
            earliest: by partition, its first offset; partitions without a position start there.
        """
        ranges = (
            OffsetRange(TopicPartition(topic, p), self.partitions.get(p, earliest[p]), end)
            for p, end in later.partitions.items()
        )
        return [range_ for range_ in ranges if range_.start < range_.end]


def live_positions(cluster: Cluster, topics: Iterable[str]) -> dict[str, TopicPosition]:
    """Returns where topics end now, by topic.

    Raises:
        TopicMissingError: if there is no such topic.
        BrokerUnreachableError: if the broker does not respond.
    """
    positions = {}
    for topic in topics:
        live = cluster.live(topic, with_earliest=False)
        positions[topic] = TopicPosition(live.topic_id, live.latest, live.epochs)
    return positions


class TakesRecords(Protocol):
    """What a process makes of the records of a topic."""

    def take(self, records: Sequence[Record]) -> None:
        """Applies the next records, in the order of each partition."""


TableT = TypeVar("TableT", bound=TakesRecords)


class TableRecreatedError(Exception):
    """Raised if a topic is not the one that a position was taken of; its reader says what follows.

    Attributes:
        topic: its name.
        known_id: id of the topic that the position is of.
        live_id: id of the topic that has the name now.
    """

    def __init__(self, topic: str, known_id: str, live_id: str) -> None:
        super().__init__(f"topic {topic!r} was recreated: its id is {live_id}, it was {known_id}")
        self.topic, self.known_id, self.live_id = topic, known_id, live_id


class HeldTable(Generic[TableT]):
    """A table that is read up to the position of one batch after the other. Used by one thread.

    Args:
        create: creates an empty table.

    Attributes:
        table: the table, which the next :meth:`read_to` changes or replaces.
    """

    def __init__(self, create: Callable[[], TableT]) -> None:
        self._create = create
        self.table = create()
        self._position: TopicPosition | None = None
        self._read_at = 0.0

    def clear(self) -> None:
        """Empties the table, to be read from the first offset again."""
        self.table, self._position = self._create(), None

    def read_to(self, position: TopicPosition, cluster: Cluster, topic: str) -> TableT:
        """Returns the table with the records before a position.

        Reads only those after the last position, if it leads to this one. Brokers are not asked if
        it is the same.

        Args:
            position: the position.
            cluster: the cluster of the topic.
            topic: name of the topic.

        Raises:
            TableRecreatedError: if the topic was recreated since the position was taken.
            RecordsDeletedError: if Kafka deletes records while they are read.
            BrokerUnreachableError: if the broker does not respond.
        """
        now = time.monotonic()
        if position != self._position:
            live = cluster.live(topic)
            if live.topic_id != position.topic_id:
                raise TableRecreatedError(topic, position.topic_id, live.topic_id)
            last = self._position
            if last is None or not (
                now - self._read_at <= MAX_IDLE_SECONDS
                and all(end >= live.earliest[p] for p, end in last.partitions.items())
                and last.leads_to(position, cluster, topic)
            ):
                self.clear()
                last = TopicPosition(position.topic_id, {})
            ranges = last.ranges_to(position, topic, live.earliest)
            for chunk in cluster.read(ranges) if ranges else ():
                self.table.take(chunk.records)
        self._position, self._read_at = position, now
        return self.table


@contextmanager
def held_table(create: Callable[[], TableT], *key: Hashable) -> Iterator[HeldTable[TableT]]:
    """Lends the table that this process holds for a key, or a new one if it holds none.

    A table is not held any longer once its use ends with an error.

    Args:
        create: creates an empty table.
        key: values that determine what the table has, and whose positions it is read to.
    """
    tables = _tables(os.getpid())
    # Taken out while it is used: after an error it is not put back.
    held = tables.pop(key, None) or HeldTable(create)
    yield held
    tables[key] = held
    if len(tables) > _MAX_TABLES:
        tables.popitem(last=False)


@functools.cache
def _tables(pid: int) -> OrderedDict[tuple[Hashable, ...], HeldTable[Any]]:  # noqa: ARG001
    """Returns the tables of a process; a forked one starts without tables."""
    return OrderedDict()


class TableFollower:
    """Hands over the records of a topic, and those that are added, on a thread of its own.

    Args:
        config: librdkafka's settings of the cluster.
        name: name of the topic.
        on_record: called on that thread with each record.
        retry_seconds: the time between two attempts.
        on_start: called on that thread before it starts at the first offset, each time.
        on_ready: called on that thread when it has reached the end since.
        value_of: returns what is handed over of a record that has a value; by default the value.

    Attributes:
        is_at_end: whether it has reached the end since it started at the first offset.
        failure: why it could not follow the topic at last; ``None`` once it has reached the end.
    """

    def __init__(  # noqa: PLR0913 - what is called, each with a default
        self,
        config: ClientConfig,
        name: str,
        on_record: OnRecord,
        retry_seconds: float = 1.0,
        *,
        on_start: Callable[[], None] = lambda: None,
        on_ready: Callable[[], None] = lambda: None,
        value_of: Callable[[Record], object] = operator.methodcaller("value"),
    ) -> None:
        self._config, self._name, self._on_record = config, name, on_record
        self._retry_seconds, self._on_start, self._on_ready = retry_seconds, on_start, on_ready
        self._value_of = value_of
        self.is_at_end = False
        self.failure: Exception | None = None
        # Of the values that were handed over.
        self._keys: set[bytes] = set()
        self._followed: LiveTopic | None = None
        self._ready = threading.Event()
        self._is_other = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow {name}", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """The end was reached once."""
        return self._ready.is_set()

    def wait_ready(self, seconds: float) -> None:
        """Waits until the end was reached once.

        Raises:
            AuthorizationError: if the brokers forbid to read the topic.
            BrokerUnreachableError: if the brokers do not answer within ``seconds``.
        """
        deadline = time.monotonic() + seconds
        while not self._ready.wait(_WAIT_SLICE_SECONDS):
            if isinstance(self.failure, AuthorizationError):
                raise self.failure
            if time.monotonic() > deadline:
                reason = f"{self._name} was not read to its end within {seconds:g} s"
                raise BrokerUnreachableError(self._config.get("bootstrap.servers", ""), reason)

    def compare(self, live: LiveTopic) -> None:
        """Starts at the first offset again if the topic is not the one that is followed.

        Args:
            live: the topic as it is now: recreated, or with more partitions.
        """
        known = self._followed
        if known is None or self._is_other.is_set():
            return
        if live.topic_id != known.topic_id or live.partitions > known.partitions:
            _LOG.info("%s was recreated or has more partitions, reading it again", self._name)
            self._is_other.set()

    def close(self) -> None:
        """Ends the thread."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            self.is_at_end = False
            self._is_other.clear()
            try:
                self._follow(self._partitions())
            except Exception as error:  # noqa: BLE001 - of a thread that ended, nothing would change
                self.failure = error
                _LOG.exception(
                    "Cannot follow %s, retrying in %g s", self._name, self._retry_seconds
                )
                self._ending.wait(self._retry_seconds)

    def _partitions(self) -> list[TopicPartition]:
        while not self._ending.is_set():
            live = describe(self._config, [self._name]).get(self._name)
            if live is not None:
                self._followed = live
                return live.all_partitions
            self._ending.wait(self._retry_seconds)
        return []

    def _follow(self, partitions: list[TopicPartition]) -> None:
        self._on_start()
        unread, missing = {partition.partition for partition in partitions}, set(self._keys)
        starts = dict.fromkeys(partitions, confluent_kafka.OFFSET_BEGINNING)
        for messages in poll_endlessly(self._config, _GROUP, starts, _WAITING):
            for message in messages:
                self._take(message, unread, missing)
            if self._ending.is_set() or self._is_other.is_set():
                break

    def _take(
        self, message: confluent_kafka.Message, unread: set[int], missing: set[bytes]
    ) -> None:
        """Takes a message.

        Args:
            message: the next one.
            unread: partitions of which the end has not been reached.
            missing: keys known from before, of which no record has come.
        """
        error = message.error()
        if error is None:
            if message.key() is not None:
                missing.discard(message.key())
                value = None if message.value() is None else self._value_of(message)
                self._hand_over(message.key(), value)
        elif meaning(error) is Meaning.END:
            unread.discard(message.partition())
            if not unread:
                self._end_reached(missing)
        elif meaning(error) is Meaning.FORBIDDEN:
            raise forbidden(self._config, "READ", f"topic {self._name}")
        else:
            raise KafkaException(error)

    def _end_reached(self, missing: set[bytes]) -> None:
        while missing:
            self._hand_over(missing.pop(), None)
        if not self.is_at_end:
            _LOG.info("%s is read to its end, and followed", self._name)
            self.is_at_end, self.failure = True, None
            self._ready.set()
            self._on_ready()

    def _hand_over(self, key: bytes, value: object) -> None:
        if value is None:
            self._keys.discard(key)
        else:
            self._keys.add(key)
        try:
            self._on_record(key, value)
        except Exception:  # noqa: BLE001 - those after it must be read
            _LOG.exception("Skipped a record of %s that cannot be taken: key %r", self._name, key)
