"""Fetches the end offsets of topics of events, on a thread for each topic."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.kafka.read.cluster import LivePositions

_LOG = logging.getLogger("headrace.queries")


class TopicEnd(NamedTuple):
    """The end offsets of a topic at one time.

    Attributes:
        live: the topic and its offsets; ``None`` if they are not known, or a transaction was open.
        asked_ms: when they were requested, by the monotonic clock, in milliseconds.
    """

    live: LivePositions | None
    asked_ms: int


class TopicEnds:
    """Fetches the end offsets of topics once a second. Methods may be called on any thread.

    If a topic is missing, or has a partition without a leader, its offsets are not known. It does
    not delay other topics: each topic has a thread of its own, which waits for its brokers alone.

    Args:
        live: a function that returns the offsets of a topic; ``None`` if a transaction is open,
            whose events come when it is committed.
        topics: the names of the topics.
        interval_seconds: the time between two requests.
    """

    def __init__(
        self,
        live: Callable[[str], LivePositions | None],
        topics: Iterable[str],
        interval_seconds: float = 1.0,
    ) -> None:
        self._live, self._interval_seconds = live, interval_seconds
        self._answers: dict[str, TopicEnd] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        for topic in topics:
            name = f"end of {topic}"
            threading.Thread(target=self._run, args=(topic,), name=name, daemon=True).start()

    def take(self) -> dict[str, TopicEnd]:
        """Returns the newest end offsets since the last call, by topic.

        If one of the requests since then failed, or met an open transaction, the offsets are not
        known: records that were sent meanwhile may not be readable yet.
        """
        with self._lock:
            answers, self._answers = self._answers, {}
        return answers

    def close(self) -> None:
        """Stops the requests, without waiting for those that are under way."""
        self._ending.set()

    def _run(self, topic: str) -> None:
        while not self._ending.wait(self._interval_seconds):
            asked_ms = time.monotonic_ns() // 1_000_000
            try:
                live = self._live(topic)
            except Exception as error:  # noqa: BLE001 - a thread that ended would ask for no topic
                live = None
                _LOG.warning(
                    "Cannot see where %s ends, so only events advance its clock: %s", topic, error
                )
            with self._lock:
                was_unknown = topic in self._answers and self._answers[topic].live is None
                self._answers[topic] = TopicEnd(None if was_unknown else live, asked_ms)
