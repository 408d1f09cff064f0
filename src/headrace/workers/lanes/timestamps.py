"""Approximate timestamps of the records of a partition."""

from __future__ import annotations

from collections import deque

_GRAIN_MS = 1000  # the lag is shown in seconds
_MAX_SAMPLES = 10_000  # bounds memory while the first record is stuck


class TimestampIndex:
    """Approximate timestamps by offset, to a second.

    Holds one entry a second of timestamps, from the first record that is not done on, and every
    second one of them whenever they are too many.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()

    def read(self, offset: int, timestamp_ms: int) -> None:
        """A record was read, after those before it."""
        if not self._samples or abs(timestamp_ms - self._samples[-1][1]) >= _GRAIN_MS:
            self._samples.append((offset, timestamp_ms))
            if len(self._samples) > _MAX_SAMPLES:
                self._samples = deque(list(self._samples)[::2])

    def forget(self, offset: int) -> None:
        """Drops what is not needed for ``offset`` and those after it."""
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= offset:
            samples.popleft()

    def at(self, offset: int) -> int:
        """Returns the timestamp at ``offset``, or of the last record before it; -1: none was read.

        What is before ``offset`` is forgotten.
        """
        self.forget(offset)
        return self._samples[0][1] if self._samples else -1
