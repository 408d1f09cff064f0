"""How long the planner does not poll an idle source."""

from __future__ import annotations

import time

# It starts at the interval at which Spark asks for a batch and ends at six polls a minute, which
# are no load for a broker. A record waits at most `max_wait` for a poll, which bounds the pause,
# too.
FIRST_SECONDS = 0.1
MAX_SECONDS = 10.0


class Pause:
    """The pause between polls without records: twice as long each time, up to ``max_wait_seconds``.

    A batch is not delayed by it: ``max_wait`` of its first record counts from the last poll that
    found none.
    """

    def __init__(self, max_wait_seconds: float) -> None:
        self._longest = min(max_wait_seconds, MAX_SECONDS)
        self._seconds = 0.0
        self._idle_at: float | None = None

    def lasts(self) -> bool:
        """Whether it is too early for the next poll."""
        return self._idle_at is not None and time.monotonic() < self._idle_at + self._seconds

    def prolong(self) -> None:
        """Notes that a poll found no records."""
        self._idle_at = time.monotonic()
        self._seconds = min(max(FIRST_SECONDS, 2 * self._seconds), self._longest)

    def end(self) -> float:
        """Notes that a poll found records; returns since when they may have been there."""
        since = time.monotonic() if self._idle_at is None else self._idle_at
        self._idle_at, self._seconds = None, 0.0
        return since
