"""How far the time of events goes on while a topic has no new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.queries.matched import Tick

QUIET_MS = 10_000


@dataclass
class _Matched:
    """What ticks say of a topic.

    Attributes:
        positions: the next offset of each partition.
        event_us: the time of its events at the last tick.
        since_ms: since when nothing of it has been matched.
    """

    positions: dict[int, int] = field(default_factory=dict)
    event_us: int | None = None
    since_ms: int = 0


class QuietTopics:
    """The topics whose events are matched, and which of them are quiet.

    A topic is quiet that has no record behind what was matched, for ten seconds. Its time goes on
    as the clock does from then on, so that windows end: no event of its time can be on its way but
    one that comes late.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _Matched] = {}

    @property
    def topics(self) -> list[str]:
        """Returns the topics of which a tick has come."""
        return list(self._topics)

    def take(self, tick: Tick, now_ms: int) -> None:
        """Notes a tick."""
        matched = self._topics.setdefault(tick.topic, _Matched())
        if any(matched.positions.get(p, -1) < at for p, at in tick.positions.items()):
            matched.positions |= tick.positions
            matched.since_ms = now_ms
        if tick.event_us is not None:
            before_us = tick.event_us if matched.event_us is None else matched.event_us
            matched.event_us = max(tick.event_us, before_us)

    def event_us(self, topic: str, ends: Mapping[int, int], now_ms: int) -> int | None:
        """Returns how far the time of a topic's events is now; None: it is not quiet.

        Args:
            topic: of which a tick has come.
            ends: the offset after the last record of each partition.
            now_ms: a clock that is never set, in milliseconds.
        """
        matched = self._topics[topic]
        is_matched = all(matched.positions.get(p, 0) >= end for p, end in ends.items())
        if not is_matched:
            matched.since_ms = now_ms
        quiet_ms = now_ms - matched.since_ms
        if matched.event_us is None or quiet_ms < QUIET_MS:
            return None
        return matched.event_us + (quiet_ms - QUIET_MS) * 1000
