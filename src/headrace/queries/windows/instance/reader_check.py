"""Checks that a reader still receives the ended windows of each of its partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable

from headrace.kafka.read.open_transactions import OPEN_TRANSACTION_SECONDS

# Partitions are checked at this interval.
_COUNT_SECONDS = 1.0


class ReaderStalledError(Exception):
    """No record of a partition is read, though records are written; a new reader may help."""


class ReaderCheck:
    """Checks the partitions of the topic of ended windows; used on the reader's thread.

    Every instance writes its clocks to each partition once a second. Silence is counted in checks,
    a second apart: an instance that was busy for a minute has made one check in that time.

    Args:
        topic: the name of the topic of ended windows.
        partitions: the partitions that are read.
        max_silence_seconds: a partition of which nothing is read for longer is stalled.
    """

    def __init__(
        self,
        topic: str,
        partitions: Iterable[int],
        max_silence_seconds: float = OPEN_TRANSACTION_SECONDS,
    ) -> None:
        self._topic, self._max_silence_seconds = topic, max_silence_seconds
        self._silent = dict.fromkeys(partitions, 0)
        self._counted_at = time.monotonic()

    def received(self, partition: int) -> None:
        """Notes that a record of the partition was read."""
        self._silent[partition] = 0

    def check(self) -> None:
        """Counts the checks since the last record of each partition, at most once a second.

        Raises:
            ReaderStalledError: if no record of a partition was read for ``max_silence_seconds``.
        """
        if time.monotonic() - self._counted_at < _COUNT_SECONDS:
            return
        self._counted_at = time.monotonic()
        for partition in self._silent:
            self._silent[partition] += 1
            if self._silent[partition] >= self._max_silence_seconds / _COUNT_SECONDS:
                raise ReaderStalledError(
                    f"nothing of {self._topic}[{partition}] was read for "
                    f"{self._max_silence_seconds:.0f} s, though records are written to it; if a "
                    "new reader does not help, a transaction may be open there: see "
                    "`kafka-transactions.sh find-hanging`"
                )
