"""How far behind a partition is: records by its end, seconds by the records' own timestamps."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping

from confluent_kafka import KafkaException

from headrace.errors import HeadraceError
from headrace.kafka.client import ClientConfig, watermarks
from headrace.kafka.groups import first_timestamps
from headrace.model import TopicPartition

_GRAIN_MS = 1000
_MOST_SAMPLES = 10_000


class Times:
    """About when the records of a partition are from, by offset: to a second, and for those kept.

    Holds one entry a second of timestamps, from the first record that is not done on, and every
    second one of them whenever they are too many.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()

    def read(self, offset: int, timestamp_ms: int) -> None:
        """A record was read, after those before it."""
        if not self._samples or abs(timestamp_ms - self._samples[-1][1]) >= _GRAIN_MS:
            self._samples.append((offset, timestamp_ms))
            if len(self._samples) > _MOST_SAMPLES:
                self._samples = deque(list(self._samples)[::2])

    def forget(self, offset: int) -> None:
        """Drops what is not needed for ``offset`` and those after it."""
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= offset:
            samples.popleft()

    def at(self, offset: int) -> int:
        """Of the record at ``offset``, or the last before it; -1: none was read.

        What is before ``offset`` is forgotten.
        """
        self.forget(offset)
        return self._samples[0][1] if self._samples else -1


class Ends:
    """Where partitions end, asked now and then, off the event loop.

    Attributes:
        reason: why the last question had no answer; empty: it had one.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._ends: Mapping[TopicPartition, int] = {}
        self._unread: dict[TopicPartition, tuple[int, int]] = {}
        self.reason = ""

    async def look(self, unread: Mapping[TopicPartition, int], read: set[TopicPartition]) -> None:
        """Ask. ``unread`` are positions in partitions that nothing was read of yet."""
        await asyncio.to_thread(self._look, dict(unread), {*unread, *read})

    def lag(self, partition: TopicPartition, offset: int) -> int:
        """Records from ``offset`` to the end, as it was when it was asked last."""
        return max(0, self._ends.get(partition, 0) - offset)

    def first_ms(self, partition: TopicPartition) -> int:
        """Timestamp of the first record that nothing was read of; -1: unknown."""
        return self._unread.get(partition, (0, -1))[1]

    def _look(self, unread: dict[TopicPartition, int], wanted: set[TopicPartition]) -> None:
        try:
            marks = watermarks(self._config, wanted)
            self._ends = {one: latest for one, (_, latest) in marks.items()}
            behind = {one: at for one, at in unread.items() if self.lag(one, at)}
            new = {one: at for one, at in behind.items() if self._unread.get(one, (-1, 0))[0] != at}
            found = first_timestamps(self._config, new)
            kept = {one: self._unread[one] for one in behind.keys() - new.keys()}
            self._unread = kept | {one: (new[one], timestamp) for one, timestamp in found.items()}
        except (HeadraceError, KafkaException) as error:
            self.reason = str(error)  # what was known stays
        else:
            self.reason = ""


def seconds_since(timestamp_ms: int) -> float:
    """Until now; 0 for a record without a timestamp."""
    return max(0.0, time.time() - timestamp_ms / 1000) if timestamp_ms >= 0 else 0.0
