"""How far the time of events goes on while a topic has no new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.kafka.cluster import LivePositions
from headrace.queries.records.matched import Tick

QUIET_MS = 10_000


@dataclass
class _Matched:
    """What ticks say of a topic.

    Attributes:
        topic_id: of the topic; empty: not known.
        positions: the next offset of each partition.
        event_us: the time of its events at the last tick, or when the last quiet time was over.
        since_ms: since when nothing of it has been matched.
        quiet_us: how far its time has gone on while it is quiet; None: it is not quiet.
    """

    topic_id: str = ""
    positions: dict[int, int] = field(default_factory=dict)
    event_us: int | None = None
    since_ms: int = 0
    quiet_us: int | None = None

    def begin_anew(self, now_ms: int) -> None:
        """Ends a quiet time; the time of events stays as far as it is."""
        self.since_ms = now_ms
        if self.quiet_us is not None:
            self.event_us, self.quiet_us = self.quiet_us, None

    def is_of_another_topic(self, topic_id: str) -> bool:
        return bool(self.topic_id and topic_id) and self.topic_id != topic_id

    def has_matched(self, ends: Mapping[int, int]) -> bool:
        return all(self.positions.get(partition, 0) >= end for partition, end in ends.items())


class QuietTopics:
    """The topics whose events are matched, and which of them are quiet.

    A topic is quiet that has no record behind what was matched, for ten seconds. Its time goes on
    as the clock does from then on, so that windows end: no event of its time can be on its way but
    one that comes late. Offsets of a topic that was deleted say nothing of the one that was created
    after it.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _Matched] = {}

    @property
    def topics(self) -> list[str]:
        """Returns the topics of which a tick has come."""
        return list(self._topics)

    def take(self, tick: Tick, now_ms: int) -> None:
        """Takes what a tick says of its topic.

        Args:
            tick: the next one of the partition.
            now_ms: a clock that is never set, in milliseconds.
        """
        matched = self._topics.setdefault(tick.topic, _Matched())
        if matched.is_of_another_topic(tick.topic_id):
            matched.positions.clear()
        matched.topic_id = tick.topic_id or matched.topic_id
        if any(matched.positions.get(p, -1) < at for p, at in tick.positions.items()):
            matched.positions |= tick.positions
            matched.begin_anew(now_ms)
        if tick.event_us is not None:
            before_us = tick.event_us if matched.event_us is None else matched.event_us
            matched.event_us = max(tick.event_us, before_us)

    def event_us(self, topic: str, live: LivePositions | None, asked_ms: int) -> int | None:
        """Returns how far the time of a topic's events was then; None: it was not quiet.

        Args:
            topic: of which a tick has come.
            live: the topic as it was then; None: it is not known, so that it may have had events.
            asked_ms: when that was asked, by a clock that is never set, in milliseconds. What is
                later is not known: this process may have been frozen since.
        """
        matched = self._topics[topic]
        if (
            live is None
            or matched.is_of_another_topic(live.topic_id)
            or not matched.has_matched(live.latest)
        ):
            matched.begin_anew(asked_ms)
        quiet_ms = asked_ms - matched.since_ms
        if matched.event_us is None or quiet_ms < QUIET_MS:
            return None
        matched.quiet_us = matched.event_us + (quiet_ms - QUIET_MS) * 1000
        return matched.quiet_us
