"""A compacted topic as a table: the newest value of each key, followed for ever."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headrace.errors import BrokerUnreachableError
from headrace.kafka.broker_errors import Meaning, delivery_failure, meaning, needs
from headrace.kafka.client import (
    ClientConfig,
    admin_request,
    broker_ids,
    connected_producer,
    consumer,
    describe,
    earliest_offsets,
    fetch_metadata,
    high_watermarks,
)
from headrace.kafka.lost_brokers import IdleCheck
from headrace.kafka.partitions import client_partition
from headrace.kafka.range_reader import read_ranges
from headrace.kafka.topics import ensure_topics
from headrace.model import OffsetRange, Topic, TopicPartition

OnRecord = Callable[[bytes, bytes | None], None]
"""Called with key and value, ``None`` for a deleted key; in the order of each partition."""

_LOG = logging.getLogger("headrace.kafka")
_MAX_REPLICAS = 3  # as many as Kafka's own topics have
_POLL_SECONDS = 0.2
_WAITING = {"fetch.wait.max.ms": "100"}  # so soon the end is known to be the end
_SEND_SECONDS = 30.0
# Compaction and retention spare the open segment: with the default of a week they do nothing.
_SEGMENTS = {"segment.ms": "3600000"}
_SHORT_SEGMENTS = {"segment.ms": "60000", "cleanup.policy": "compact,delete"}
_SETTLE_SECONDS = 120.0  # a transaction that was left open ends after a minute


def ensure_changelog(config: ClientConfig, name: str, kept: timedelta | None = None) -> None:
    """Creates the topic unless it exists: one partition, compacted, three replicas if possible.

    Args:
        config: of librdkafka.
        name: of the topic.
        kept: about how long a value is, even the newest of its key; ``None``: for ever.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    ensure_topics(config, [changelog_topic(name, possible_replication(config), kept)])


def changelog_topic(name: str, replication: int, kept: timedelta | None = None) -> Topic:
    """Returns such a topic as it is to be: one partition, compacted.

    Args:
        name: of the topic.
        replication: how many replicas it has.
        kept: about how long a value is, even the newest of its key; ``None``: for ever.
    """
    return Topic(
        name,
        compaction=True,
        replication=replication,
        retention=kept,
        config=_SEGMENTS if kept is None else _SHORT_SEGMENTS,
    )


def possible_replication(config: ClientConfig) -> int:
    """Returns how many replicas a topic of headrace's own has: three, or one for each broker.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    return min(_MAX_REPLICAS, len(admin_request(config, broker_ids)))


def write_changelog(config: ClientConfig, name: str, changes: Mapping[bytes, bytes | None]) -> None:
    """Writes new values, ``None`` to delete a key; returns once all in-sync replicas have them.

    Raises:
        KafkaException: if a value was not written, or it is not known whether it was.
    """
    failures: list[KafkaError] = []

    def reported(error: KafkaError | None, message: confluent_kafka.Message) -> None:
        failure = delivery_failure(error, message)
        if failure is not None:
            failures.append(failure)

    sender = connected_producer(config)
    for key, value in changes.items():
        sender.produce(name, value, key, on_delivery=reported)
    if sender.flush(_SEND_SECONDS) > 0:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - its public name
    if failures:
        with needs(config, "WRITE", f"topic {name}"):
            raise KafkaException(failures[0])


def read_changelog(config: ClientConfig, name: str) -> dict[bytes, bytes]:
    """The newest value of each key that is not deleted; empty when there is no such topic.

    Raises:
        BrokerUnreachableError: if the brokers do not answer.
    """
    if name not in describe(config, [name]):
        return {}
    table: dict[bytes, bytes | None] = {}
    follower = ChangelogFollower(config, name, table.__setitem__)
    follower.wait_ready(_SEND_SECONDS)
    follower.close()
    return {key: value for key, value in table.items() if value is not None}


def read_settled_changelog(config: ClientConfig, name: str) -> dict[bytes, bytes]:
    """Returns what :func:`read_changelog` does, up to the very end: waits for open transactions.

    Until they end, readers of committed records see nothing that was written after they began,
    not even what others have committed.

    Raises:
        BrokerUnreachableError: if the brokers do not answer, or a transaction stays open.
    """
    live = describe(config, [name]).get(name)
    if live is None:
        return {}
    ends = high_watermarks(config, live.all_partitions)
    starts = earliest_offsets(config, live.all_partitions)
    ranges = [OffsetRange(partition, starts[partition], end) for partition, end in ends.items()]
    table: dict[bytes, bytes | None] = {}
    reader = consumer(config, "headrace.changelog", _WAITING | {"auto.offset.reset": "earliest"})
    try:
        for chunk in read_ranges(reader, ranges, config, silence_limit_seconds=_SETTLE_SECONDS):
            table |= {
                key: record.value() for record in chunk.records if (key := record.key()) is not None
            }
    finally:
        reader.close()
    return {key: value for key, value in table.items() if value is not None}


class ChangelogFollower:
    """Reads a changelog from its earliest offset, then what is added, on a thread of its own.

    It waits for a topic that does not exist yet, and outlives the broker's absence: what was read
    stays valid meanwhile. Where it reads the topic again from the beginning, as after the topic was
    deleted and created again, keys that are not there any more are deleted once the end is reached.

    ``on_ready`` is called on that thread when :attr:`ready` has become true.
    """

    def __init__(
        self,
        config: ClientConfig,
        name: str,
        on_record: OnRecord,
        retry_seconds: float = 1.0,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._name, self._on_record = config, name, on_record
        self._retry_seconds, self._on_ready = retry_seconds, on_ready
        # Of the values that were handed over.
        self._keys: set[bytes] = set()
        self._ready = threading.Event()
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
            BrokerUnreachableError: if the brokers do not answer within ``seconds``.
        """
        if not self._ready.wait(seconds):
            reason = f"{self._name} was not read to its end within {seconds:g} s"
            raise BrokerUnreachableError(self._config.get("bootstrap.servers", ""), reason)

    def close(self) -> None:
        """Ends the thread."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._follow(self._partitions())
            except Exception:  # noqa: BLE001 - what a thread that ended follows would stay as it is
                _LOG.exception(
                    "Cannot follow %s, retrying in %g s", self._name, self._retry_seconds
                )
                self._ending.wait(self._retry_seconds)

    def _partitions(self) -> list[TopicPartition]:
        while not self._ending.is_set():
            live = describe(self._config, [self._name]).get(self._name)
            if live is not None:
                return live.all_partitions
            self._ending.wait(self._retry_seconds)
        return []

    def _follow(self, partitions: list[TopicPartition]) -> None:
        reader = consumer(self._config, "headrace.changelog", _WAITING)
        fetch_metadata(reader, self._name)
        earliest = confluent_kafka.OFFSET_BEGINNING
        reader.assign([client_partition(partition, earliest) for partition in partitions])
        unread, missing = {partition.partition for partition in partitions}, set(self._keys)
        idle_check = IdleCheck(self._config)
        try:
            while not self._ending.is_set():
                message = reader.poll(_POLL_SECONDS)
                idle_check.check(reader, has_received=message is not None)
                if message is not None:
                    self._take(message, unread, missing)
        finally:
            reader.close()

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
                self._hand_over(message.key(), message.value())
        elif meaning(error) is Meaning.END:
            unread.discard(message.partition())
            if not unread:
                self._end_reached(missing)
        elif meaning(error) not in {Meaning.UNREACHABLE, Meaning.TRANSIENT}:
            raise KafkaException(error)

    def _end_reached(self, missing: set[bytes]) -> None:
        while missing:
            self._hand_over(missing.pop(), None)
        if not self._ready.is_set():
            _LOG.info("%s is read to its end, and followed", self._name)
            self._ready.set()
            self._on_ready()

    def _hand_over(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._keys.discard(key)
        else:
            self._keys.add(key)
        try:
            self._on_record(key, value)
        except Exception:  # noqa: BLE001 - those after it must be read
            _LOG.exception("Skipped a record of %s that cannot be taken: key %r", self._name, key)
