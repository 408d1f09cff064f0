"""Moves event clocks on while topics are idle."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.kafka.read.cluster import LivePositions
from headrace.queries.records.matched import Tick

# A topic is idle if it has had no record for this time. In shorter pauses its clock stands still:
# events after a pause that had ended their windows would be late.
QUIET_MS = 10_000


@dataclass
class _TopicProgress:
    """How far a topic of events is matched, as of its ticks.

    Attributes:
        topic_id: the id of the topic; empty if it is not known.
        positions: the next offset of each partition.
        event_us: the event clock at the last tick, or at the end of the last idle time.
        since_ms: the time since which no new record is known, by the monotonic clock, in
            milliseconds.
        quiet_us: the event clock of the topic while it is idle; ``None`` if it is not idle.
    """

    topic_id: str = ""
    positions: dict[int, int] = field(default_factory=dict)
    event_us: int | None = None
    since_ms: int = 0
    quiet_us: int | None = None

    def start_over(self, now_ms: int) -> None:
        """Ends an idle time; the event clock stays where it is."""
        self.since_ms = now_ms
        if self.quiet_us is not None:
            self.event_us, self.quiet_us = self.quiet_us, None

    def is_of_another_topic(self, topic_id: str) -> bool:
        return bool(self.topic_id and topic_id) and self.topic_id != topic_id


class QuietTopics:
    """The topics whose events are matched, and which of these topics are idle.

    A topic is idle if it has had no record after the matched records for ten seconds. From then on,
    its event clock moves on as the wall clock does, so that windows end: an event of that time
    that is still on its way is late. The offsets of a deleted topic say nothing about a topic that
    was created after it with the same name.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _TopicProgress] = {}

    @property
    def topics(self) -> list[str]:
        """The topics that have had a tick."""
        return list(self._topics)

    def take(self, tick: Tick, now_ms: int) -> None:
        """Takes the positions and the event clock of a tick.

        Args:
            tick: the next tick of the partition.
            now_ms: the monotonic clock, in milliseconds.
        """
        progress = self._topics.setdefault(tick.topic, _TopicProgress())
        if progress.is_of_another_topic(tick.topic_id):
            progress.positions.clear()
        progress.topic_id = tick.topic_id or progress.topic_id
        if any(progress.positions.get(p, -1) < at for p, at in tick.positions.items()):
            progress.positions |= tick.positions
            progress.start_over(now_ms)
        if tick.event_us is not None:
            before_us = tick.event_us if progress.event_us is None else progress.event_us
            progress.event_us = max(tick.event_us, before_us)

    def event_us(self, topic: str, live: LivePositions | None, asked_ms: int) -> int | None:
        """Returns the event clock of an idle topic, or ``None`` if the topic was not idle.

        Args:
            topic: a topic that has had a tick.
            live: the end offsets of the topic; ``None`` if they are not known, so that the topic
                may have had events.
            asked_ms: when the end offsets were requested, by the monotonic clock, in milliseconds.
                The event clock is that of this time: the process may have been frozen since.
        """
        progress = self._topics[topic]
        if (
            live is None
            or progress.is_of_another_topic(live.topic_id)
            or any(progress.positions.get(p, 0) < end for p, end in live.latest.items())
        ):
            progress.start_over(asked_ms)
        quiet_ms = asked_ms - progress.since_ms
        if progress.event_us is None or quiet_ms < QUIET_MS:
            return None
        progress.quiet_us = progress.event_us + (quiet_ms - QUIET_MS) * 1000
        return progress.quiet_us
