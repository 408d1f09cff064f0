"""Counts of the matches of a partition, to show that none is missing or counted twice."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from headrace.queries.records.counts import TopicCounts
from headrace.queries.records.matched import Tick

_LOG = logging.getLogger("headrace.queries")


class PartitionCounts:
    """The match counts of a partition of the matched topic, updated with each record.

    Args:
        counts: the counts to continue with, by topic of the events.
        ended: matches in the windows that have ended since those counts, by topic.
    """

    def __init__(self, counts: Mapping[str, TopicCounts], ended: Mapping[str, int]) -> None:
        self._counts = {
            topic: msgspec.structs.replace(of_topic) for topic, of_topic in counts.items()
        }
        for topic, events in ended.items():
            self.of(topic).ended += events

    def of(self, topic: str) -> TopicCounts:
        """Returns the counts of a topic; the caller may change them."""
        return self._counts.setdefault(topic, TopicCounts())

    def take(self, tick: Tick) -> None:
        """Compares the matches that a batch has sent with those that were received."""
        counts = self.of(tick.topic)
        if tick.events != counts.begun:
            _LOG.error(
                "Pipeline %s has sent %d matches of %s in a batch, and %d have come",
                *(tick.pipeline, tick.events, tick.topic, counts.begun),
            )
        counts.sent += tick.events
        counts.taken += counts.begun
        counts.begun = 0

    def with_open(self, open_events: Mapping[str, int] | None) -> dict[str, TopicCounts]:
        """Returns a copy of the counts, by topic.

        Args:
            open_events: matches in open windows, by topic; ``None`` if they are not known.
        """
        return {
            topic: msgspec.structs.replace(
                counts, open=None if open_events is None else open_events.get(topic, 0)
            )
            for topic, counts in self._counts.items()
        }
