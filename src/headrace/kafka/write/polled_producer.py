"""A producer whose delivery reports the event loop fetches.

A thread that polls would wait for the interpreter's lock once for every single report.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError

from headrace.kafka.client.clients import ClientConfig, producer

_LOG = logging.getLogger("headrace.kafka")
_REPORTS_SECONDS = 0.002  # seconds: the sender of a record waits for its report
_IDLE_SECONDS = 0.5  # while idle, only log lines and errors wait for a poll


class PolledProducer:
    """Used on one event loop. A producer that failed fatally is replaced.

    Attributes:
        current: hand records to it, with a callback each, then call :meth:`expect_reports`.
    """

    def __init__(self, config: ClientConfig, tuning: ClientConfig) -> None:
        self._config, self._tuning = config, tuning
        self.current = self._new()
        self._ended: list[confluent_kafka.Producer] = []
        self._looking: asyncio.TimerHandle | None = None
        self._is_idle = True

    def __len__(self) -> int:
        return sum(map(len, (self.current, *self._ended)))

    def expect_reports(self) -> None:
        """Records were handed over."""
        if self._is_idle:
            self._look_after(_REPORTS_SECONDS)

    async def close(self, seconds: float) -> int:
        """Waits for acknowledgements; returns how many are missing after ``seconds``."""
        deadline = time.monotonic() + seconds
        if self._looking is not None:
            self._looking.cancel()
        while (left := len(self)) and time.monotonic() < deadline:
            self._poll()
            await asyncio.sleep(_REPORTS_SECONDS)
        return left

    def _look_after(self, seconds: float) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._is_idle = seconds == _IDLE_SECONDS
        self._looking = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Polls often while delivery reports are expected, and rarely otherwise."""
        try:
            self._poll()
        finally:  # without further polls, senders would wait without end
            self._look_after(_REPORTS_SECONDS if len(self) else _IDLE_SECONDS)

    def _poll(self) -> None:
        for client in (self.current, *self._ended):
            try:
                client.poll(0)
            except Exception as error:  # noqa: BLE001 - without this nothing would be confirmed
                cause = error.args[0] if error.args else None
                is_fatal = isinstance(cause, KafkaError) and cause.fatal()
                if is_fatal and client is self.current:
                    self._replace(error)
                else:
                    _LOG.exception("Cannot poll the producer, retrying")
        self._ended = [ended for ended in self._ended if len(ended)]

    def _replace(self, error: Exception) -> None:
        """A fatal error ends a producer: what it held is reported as failed, and it takes no more.

        The client library raises such an error from ``poll``; it does not call ``error_cb``.
        """
        _LOG.error("Fatal producer error, creating a new producer: %s", error)
        successor = self._new()  # first: if it fails, the next poll tries again
        self.current.purge(blocking=False)
        self._ended.append(self.current)
        self.current = successor

    def _new(self) -> confluent_kafka.Producer:
        config: dict[str, Any] = {**self._config, "error_cb": _on_error}
        return producer(config, self._tuning)


def _on_error(error: KafkaError) -> None:
    _LOG.warning("Kafka producer: %s", error.str())
