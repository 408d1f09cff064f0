"""Topics whose events Kafka has not confirmed in time, as all workers of a host know them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path

from headrace.ingest.mapped_file import map_file, open_shared

_WORD_BYTES = 8
_HELD_SECONDS = 2.0  # how long a killed worker holds a topic
_RENEWED_SECONDS = 0.5  # well within _HELD_SECONDS


class OverdueTopics:
    """For each topic, the time until which no more of its events are taken.

    A client that gets "unknown" sends the same events again, perhaps to another worker. If each
    attempt were handed to a producer, an outage would put every copy into the topic.

    Any worker writes a word without a lock: each only ever moves it forward to about now, by the
    clock of the machine.

    Args:
        topics: their names, in an order that is the same in all workers.
        words: one for each topic, of any value.
        clock: seconds that only grow, the same in all workers.
    """

    def __init__(
        self,
        topics: Iterable[str],
        words: list[int] | memoryview[int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = {topic: place for place, topic in enumerate(topics)}
        self._words = [0] * len(self._places) if words is None else words
        self._clock = clock

    @classmethod
    def shared(cls, path: Path, topics: Iterable[str]) -> OverdueTopics:
        """Shares the times with all processes that name this file, which must not outlive a boot.

        Raises:
            IngestStateError: if the file can't be made, or the disk has no room for it.
        """
        # A topic's place in the file must be the same in all workers.
        names = sorted(topics)
        file = open_shared(path)
        try:
            words = map_file(file, path, len(names) * _WORD_BYTES)
        finally:
            os.close(file)  # the mapping has a descriptor of its own
        return cls(names, memoryview(words).cast("q"))

    def __contains__(self, topic: str) -> bool:
        until = self._words[self._places[topic]]
        # Most topics were never overdue: for those, the clock is not read.
        return bool(until) and self._now_ms() < until

    def hold(self, topic: str) -> None:
        """Notes that some events of a topic are overdue now."""
        self._words[self._places[topic]] = self._now_ms() + int(_HELD_SECONDS * 1000)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


class OverdueRequests:
    """One worker's requests that timed out, until Kafka has answered for each of their events.

    It is used in one event loop.
    """

    def __init__(self, topics: OverdueTopics) -> None:
        self._topics = topics
        self._requests: dict[Hashable, tuple[str, Callable[[], bool]]] = {}

    def add(self, request: Hashable, topic: str, is_settled: Callable[[], bool]) -> None:
        """Holds a topic until ``is_settled`` returns ``True``."""
        self._topics.hold(topic)
        self._requests[request] = topic, is_settled
        if len(self._requests) == 1:
            self._look_later()

    def _look(self) -> None:
        self._requests = {
            request: (topic, is_settled)
            for request, (topic, is_settled) in self._requests.items()
            if not is_settled()
        }
        for topic in {topic for topic, _ in self._requests.values()}:
            self._topics.hold(topic)
        if self._requests:
            self._look_later()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(_RENEWED_SECONDS, self._look)
