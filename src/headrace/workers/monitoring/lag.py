"""Lag of partitions: records by their ends, seconds by the records' own timestamps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from confluent_kafka import KafkaException

from headrace.errors import HeadraceError
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import watermarks
from headrace.kafka.group.groups import first_timestamps
from headrace.model import TopicPartition


class EndOffsets:
    """The end offsets of partitions, refreshed at intervals on another thread.

    Attributes:
        reason: why the last request had no answer; empty: it had one.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._ends: Mapping[TopicPartition, int] = {}
        self._unread: dict[TopicPartition, tuple[int, int]] = {}
        self.reason = ""

    async def refresh(
        self, unread: Mapping[TopicPartition, int], read: set[TopicPartition]
    ) -> None:
        """Fetches the ends. ``unread`` are positions of partitions without a read record."""
        await asyncio.to_thread(self._refresh, dict(unread), {*unread, *read})

    def lag(self, partition: TopicPartition, offset: int) -> int:
        """Returns the records from ``offset`` to the end, as of the last refresh."""
        return max(0, self._ends.get(partition, 0) - offset)

    def first_ms(self, partition: TopicPartition) -> int:
        """Returns the timestamp of the first record of an unread partition; -1: unknown."""
        return self._unread.get(partition, (0, -1))[1]

    def _refresh(self, unread: dict[TopicPartition, int], partitions: set[TopicPartition]) -> None:
        try:
            marks = watermarks(self._config, partitions)
            self._ends = {partition: latest for partition, (_, latest) in marks.items()}
            behind = {partition: at for partition, at in unread.items() if self.lag(partition, at)}
            new = {
                partition: at
                for partition, at in behind.items()
                if self._unread.get(partition, (-1, 0))[0] != at
            }
            timestamps = first_timestamps(self._config, new)
            kept = {partition: self._unread[partition] for partition in behind.keys() - new.keys()}
            self._unread = kept | {
                partition: (new[partition], timestamp)
                for partition, timestamp in timestamps.items()
            }
        except (HeadraceError, KafkaException) as error:
            self.reason = str(error)  # the ends known so far stay
        else:
            self.reason = ""


def seconds_since(timestamp_ms: int) -> float:
    """Returns the seconds since a timestamp; 0 for a record without one."""
    return max(0.0, time.time() - timestamp_ms / 1000) if timestamp_ms >= 0 else 0.0
