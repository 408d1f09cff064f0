"""Where topics of events end now, asked on threads of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from headrace.kafka.cluster import LivePositions

_LOG = logging.getLogger("headrace.queries")
_ASK_SECONDS = 1.0


class TopicEnd(NamedTuple):
    """Says where a topic ended.

    Attributes:
        live: the topic as it was; None: not known, or a transaction was open in it.
        asked_ms: when it was asked, by the monotonic clock, in milliseconds.
    """

    live: LivePositions | None
    asked_ms: int


class TopicEnds:
    """Asks for the ends of topics once a second. Its methods are called on any thread.

    A topic that is missing, or that has a partition without a leader, is not known, and harms no
    other: each is asked for on a thread of its own, which waits for its brokers alone.

    Args:
        live: returns a topic as it is now; None: a transaction is open in it, whose events come
            when it is committed.
        topics: names of the topics.
    """

    def __init__(self, live: Callable[[str], LivePositions | None], topics: Iterable[str]) -> None:
        self._live = live
        self._answers: dict[str, TopicEnd] = {}
        self._lock = threading.Lock()
        self._ending = threading.Event()
        for topic in topics:
            name = f"end of {topic}"
            threading.Thread(target=self._run, args=(topic,), name=name, daemon=True).start()

    def take(self) -> dict[str, TopicEnd]:
        """Returns what was answered last since the last call, by topic.

        A topic that was not known at some time since is not known: what was sent meanwhile may not
        be there yet. So it is with one that had an open transaction.
        """
        with self._lock:
            answers, self._answers = self._answers, {}
        return answers

    def close(self) -> None:
        """Asks no more. A request that is under way is not waited for."""
        self._ending.set()

    def _run(self, topic: str) -> None:
        while not self._ending.wait(_ASK_SECONDS):
            asked_ms = time.monotonic_ns() // 1_000_000
            live = self._ask(topic)
            with self._lock:
                was_unknown = topic in self._answers and self._answers[topic].live is None
                self._answers[topic] = TopicEnd(None if was_unknown else live, asked_ms)

    def _ask(self, topic: str) -> LivePositions | None:
        try:
            return self._live(topic)
        except Exception as error:  # noqa: BLE001 - a thread that ended would ask for no topic
            _LOG.warning(
                "Cannot see where %s ends, so its time goes on with events alone: %s", topic, error
            )
            return None
