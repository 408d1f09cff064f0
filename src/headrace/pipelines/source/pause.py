"""How long an idle source is not looked at."""

from __future__ import annotations

import time

FIRST_SECONDS = 0.1
MAX_SECONDS = 10.0


class Pause:
    """The pause between polls without records: twice as long each time, up to ``max_wait_seconds``.

    Who waits so long for a batch to fill loses nothing by it: the wait of the first record that
    is found has begun with the last look that found none.
    """

    def __init__(self, max_wait_seconds: float) -> None:
        self._longest = min(max_wait_seconds, MAX_SECONDS)
        self._seconds = 0.0
        self._idle_at: float | None = None

    def lasts(self) -> bool:
        """Whether it is too early for the next look."""
        return self._idle_at is not None and time.monotonic() < self._idle_at + self._seconds

    def prolong(self) -> None:
        """A look found nothing."""
        self._idle_at = time.monotonic()
        self._seconds = min(max(FIRST_SECONDS, 2 * self._seconds), self._longest)

    def end(self) -> float:
        """A look found something; returns since when it may have been there, at the earliest."""
        since = time.monotonic() if self._idle_at is None else self._idle_at
        self._idle_at, self._seconds = None, 0.0
        return since
