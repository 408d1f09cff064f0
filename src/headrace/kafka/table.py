"""A topic as a table: the newest value of each key.

:func:`read_table` reads it once, to its end. :class:`TableFollower` reads it on a thread of its own
for as long as it is open.

Contract:

- *Order.* Records of a partition come in order of offset. Nothing holds between partitions, so all
  records of a key must be in the same one. Records without a key are skipped.
- *Uncommitted records* are never handed over.
- *Repetition.* A follower whose client fails starts at the first offset again, and hands over all
  records that are there, also those that it has handed over. They lead to the same table.
- *Deletion.* A record without a value deletes its key, and the value is handed over as ``None``.
- *Recreation, truncation.* A follower starts at the first offset again. Keys that have no record
  any more are handed over as deleted once the end is reached. Until then, they keep their values.
- *Retention.* A follower does not notice that records it has handed over are deleted.
- *Absence.* The table of a topic that does not exist is empty. A follower waits until it exists.
- *Brokers are unreachable.* A read fails; a follower keeps what it has, and continues later.
- *A callback that fails* for a record does not stop the follower: the error is logged, and the
  next record handed over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import confluent_kafka
from confluent_kafka import KafkaException

from headrace.errors import BrokerUnreachableError
from headrace.kafka.broker_errors import Meaning, meaning
from headrace.kafka.client import (
    ClientConfig,
    consumer,
    describe,
    earliest_offsets,
    fetch_metadata,
    high_watermarks,
    latest_offsets,
)
from headrace.kafka.lost_brokers import IdleCheck
from headrace.kafka.partitions import client_partition
from headrace.kafka.range_reader import read_records
from headrace.model import OffsetRange, TopicPartition

OnRecord = Callable[[bytes, bytes | None], None]
"""Called with key and value, ``None`` for a deleted key; in the order of each partition."""

_LOG = logging.getLogger("headrace.kafka")
_GROUP = "headrace.changelog"
_POLL_SECONDS = 0.2
_WAITING = {"fetch.wait.max.ms": "100"}  # so soon the end is known to be the end
_SILENCE_SECONDS = 30.0
_SETTLE_SECONDS = 120.0  # a transaction that was left open ends after a minute


def read_table(config: ClientConfig, name: str, *, settled: bool = False) -> dict[bytes, bytes]:
    """Returns the newest value of each key that is not deleted; empty if there is no such topic.

    Args:
        config: librdkafka's settings of the cluster.
        name: name of the topic.
        settled: waits for open transactions to end. Until they do, readers of committed records
            see nothing that was written after they began, not even what others have committed.

    Raises:
        AuthorizationError: if an ACL is missing.
        BrokerUnreachableError: if the brokers do not answer, or a transaction stays open.
    """
    live = describe(config, [name]).get(name)
    if live is None:
        return {}
    starts = earliest_offsets(config, live.all_partitions)
    if settled:
        ends, limit = high_watermarks(config, live.all_partitions), _SETTLE_SECONDS
    else:
        latest, limit = latest_offsets(config, live.all_partitions), _SILENCE_SECONDS
        ends = {partition: end for partition, (end, _) in latest.items()}
    ranges = [OffsetRange(partition, starts[partition], end) for partition, end in ends.items()]
    records = read_records(config, _GROUP, ranges, silence_limit_seconds=limit)
    table = {key: record.value() for record in records if (key := record.key()) is not None}
    return {key: value for key, value in table.items() if value is not None}


class TableFollower:
    """Hands over the records of a topic, and those that are added, on a thread of its own.

    Args:
        config: librdkafka's settings of the cluster.
        name: name of the topic.
        on_record: called on that thread with each record.
        retry_seconds: the time between two attempts.
        on_ready: called on that thread when :attr:`ready` has become true.
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
        reader = consumer(self._config, _GROUP, _WAITING)
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
