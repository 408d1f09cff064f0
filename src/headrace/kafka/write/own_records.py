"""Whether a producer is still the only one that has written, once another one has replaced it."""

from __future__ import annotations

from collections.abc import Iterable

import confluent_kafka

from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import high_watermarks
from headrace.kafka.read.open_transactions import OPEN_TRANSACTION_SECONDS
from headrace.kafka.read.range_reader import read_records
from headrace.kafka.write.transactions import TransactionFencedError, TransactionUnsettledError
from headrace.model import OffsetRange, TopicPartition

_MARKERS = 1  # what ends a transaction; another one would have a record and a marker


class OwnRecords:
    """Detects records of another producer behind this one's last record.

    To be made after the producer has fenced the one before it, and before its positions are read.

    Args:
        config: librdkafka's settings of the cluster.
        partitions: where they are.
        key: of these records; ``None``: no one else writes to the partitions.
    """

    def __init__(
        self, config: ClientConfig, partitions: Iterable[TopicPartition], key: bytes | None = None
    ) -> None:
        self._config, self._key = config, key
        self._behind = high_watermarks(config, partitions)
        self._topics = {partition.topic for partition in self._behind}

    def note(self, message: confluent_kafka.Message) -> None:
        """Takes a record that this producer has written."""
        topic = message.topic() or ""
        if topic in self._topics and self._key in (None, message.key()):
            place = TopicPartition(topic, int(message.partition() or 0))
            self._behind[place] = int(message.offset() or 0) + 1

    def check(self) -> None:
        """Checks that no one else has written, once the producer has fenced all others.

        Raises:
            TransactionFencedError: if another process has.
            TransactionUnsettledError: if records of this one are lost.
            BrokerUnreachableError: if the brokers do not respond.
        """
        ends = high_watermarks(self._config, self._behind)
        unknown: list[OffsetRange] = []
        for place, behind in self._behind.items():
            if ends[place] < behind:
                reason = f"{place} ends at offset {ends[place]}, before what was written"
                raise TransactionUnsettledError(reason)
            if ends[place] > behind + _MARKERS:
                unknown.append(OffsetRange(place, behind, ends[place]))
        records = read_records(
            self._config, "headrace.own", unknown, silence_limit_seconds=OPEN_TRANSACTION_SECONDS
        )
        for record in records:
            if self._key in (None, record.key()):
                reason = f"another process has written, at offset {record.offset()}"
                raise TransactionFencedError(reason)
