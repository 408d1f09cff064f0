"""Whether a reader still gets the ended windows of each of its partitions."""

from __future__ import annotations

import time
from collections.abc import Iterable

from headrace.kafka.open_transactions import OPEN_TRANSACTION_SECONDS

_COUNT_SECONDS = 1.0
_MAX_SILENT_CHECKS = int(OPEN_TRANSACTION_SECONDS / _COUNT_SECONDS)


class ReaderStalledError(Exception):
    """Nothing of a partition is read, though records are written to it; a new reader may help."""


class ReaderCheck:
    """Looks after the partitions of the topic of ended windows; used on the reader's thread.

    Every instance writes its clocks to each of them once a second. Silence is counted in checks, a
    second apart: an instance that was busy for long has checked once.

    Args:
        topic: of ended windows.
        partitions: that are read.
    """

    def __init__(self, topic: str, partitions: Iterable[int]) -> None:
        self._topic = topic
        self._silent = dict.fromkeys(partitions, 0)
        self._counted_at = time.monotonic()

    def received(self, partition: int) -> None:
        """A record of the partition was read."""
        self._silent[partition] = 0

    def check(self) -> None:
        """Counts the partitions of which nothing was read since the last call.

        Raises:
            ReaderStalledError: if it was nothing for a minute and a half.
        """
        if time.monotonic() - self._counted_at < _COUNT_SECONDS:
            return
        self._counted_at = time.monotonic()
        for partition in self._silent:
            self._silent[partition] += 1
            if self._silent[partition] >= _MAX_SILENT_CHECKS:
                raise ReaderStalledError(
                    f"nothing of {self._topic}[{partition}] was read for "
                    f"{OPEN_TRANSACTION_SECONDS:.0f} s, though records are written to it; if a new "
                    "reader does not help, a transaction may be open there: see "
                    "`kafka-transactions.sh find-hanging`"
                )
