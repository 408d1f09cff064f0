"""Detects whether a thread hangs while its process runs."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback

_LOG = logging.getLogger("headrace.service")


class Watchdog:
    """Watches the thread that created it. Its methods may be called on any thread.

    Args:
        look_seconds: the limit of the time between two calls of :meth:`is_hung`, in seconds; if
            more time has passed, the whole process was frozen.
        hung_seconds: the thread hangs if it shows no heartbeat for this time.
    """

    def __init__(self, look_seconds: float, hung_seconds: float) -> None:
        self._look_seconds, self._hung_seconds = look_seconds, hung_seconds
        self._thread = threading.get_ident()
        self._heartbeat_at = self._looked_at = time.monotonic()
        self._is_hung = False

    def heartbeat(self) -> None:
        """Shows that the thread does not hang."""
        self._heartbeat_at = time.monotonic()

    def is_hung(self) -> bool:
        """Returns whether the thread hangs; logs once where it hangs."""
        now, was_hung = time.monotonic(), self._is_hung
        if now - self._looked_at > self._look_seconds:
            self._heartbeat_at = now
        self._looked_at = now
        self._is_hung = now - self._heartbeat_at > self._hung_seconds
        if self._is_hung and not was_hung:
            frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - its public name
            _LOG.error(
                "The process has hung for %g s; its lease is not renewed, so that another one "
                "takes over. It hangs here:\n%s",
                self._hung_seconds,
                "".join(traceback.format_stack(frame)),
            )
        return self._is_hung
