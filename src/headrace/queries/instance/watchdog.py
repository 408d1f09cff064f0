"""Whether the thread of an instance hangs, though its process lives."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback

_LOG = logging.getLogger("headrace.queries")
# As long as Kafka's own max.poll.interval.ms.
_HUNG_SECONDS = 300.0


class Watchdog:
    """Watches the thread that has made it. Its methods are called on any thread.

    Args:
        look_seconds: more time than passes between two calls of :meth:`is_hung`, unless the whole
            process was frozen.
    """

    def __init__(self, look_seconds: float) -> None:
        self._look_seconds = look_seconds
        self._thread = threading.get_ident()
        self._heartbeat_at = self._looked_at = time.monotonic()
        self._is_hung = False

    def heartbeat(self) -> None:
        """Says that the thread does not hang."""
        self._heartbeat_at = time.monotonic()

    def is_hung(self) -> bool:
        """Whether there was no heartbeat for five minutes; where it hangs is logged once."""
        now, was_hung = time.monotonic(), self._is_hung
        if now - self._looked_at > self._look_seconds:
            self._heartbeat_at = now
        self._looked_at = now
        self._is_hung = now - self._heartbeat_at > _HUNG_SECONDS
        if self._is_hung and not was_hung:
            frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - its public name
            _LOG.error(
                "The instance has hung for %g s; its lease is not renewed, so that another one "
                "takes its partitions. It hangs here:\n%s",
                _HUNG_SECONDS,
                "".join(traceback.format_stack(frame)),
            )
        return self._is_hung
