"""What has become of the matches of a partition: none may be missing, or counted twice."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

import msgspec

from headrace.queries.matched import Tick

_LOG = logging.getLogger("headrace.queries")


class TopicCounts(msgspec.Struct):
    """The matches of one topic: an event counts once for every query and window that it is in.

    Attributes:
        sent: of the batches that have ended, as their ticks say.
        taken: of the same batches, as their records say.
        begun: of a batch whose tick has not come yet.
        ended: in the final results of windows.
        late: came for windows that had ended.
        faulty: in records that can't be added up.
        open: in windows that have not ended; None: not known, as an instance that has begun anew
            takes records that windows have already.
    """

    sent: int = 0
    taken: int = 0
    begun: int = 0
    ended: int = 0
    late: int = 0
    faulty: int = 0
    open: int | None = 0

    @property
    def missing_records(self) -> int:
        """How many matches of ended batches have not come; below 0: too many have."""
        return self.sent - self.taken

    @property
    def missing_in_windows(self) -> int:
        """How many matches that came are in no window; below 0: windows have too many."""
        if self.open is None:
            return 0
        return self.taken + self.begun - self.ended - self.late - self.faulty - self.open

    @property
    def unbalanced(self) -> int:
        """How many matches are missing or too many."""
        return abs(self.missing_records) + abs(self.missing_in_windows)


class PartitionCounts:
    """The counts of a partition of the matched topic, as its records come.

    Args:
        counts: by topic of the events, to go on with.
        ended: matches of the windows that have ended since, by topic.
    """

    def __init__(self, counts: Mapping[str, TopicCounts], ended: Mapping[str, int]) -> None:
        self._counts = {topic: msgspec.structs.replace(each) for topic, each in counts.items()}
        for topic, events in ended.items():
            self.of(topic).ended += events

    def of(self, topic: str) -> TopicCounts:
        """Returns the counts of a topic, which may be changed."""
        return self._counts.setdefault(topic, TopicCounts())

    def take(self, tick: Tick) -> None:
        """Compares what a batch has added with what has come of it."""
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
            open_events: in windows that have not ended, by topic; None: not known.
        """
        return {
            topic: msgspec.structs.replace(
                counts, open=None if open_events is None else open_events.get(topic, 0)
            )
            for topic, counts in self._counts.items()
        }


def added_up(counts: Collection[TopicCounts]) -> TopicCounts:
    """Returns the sums of the counts of several partitions; None where one of them is not known."""
    total = TopicCounts()
    for name in TopicCounts.__struct_fields__:
        setattr(total, name, known_sum(getattr(each, name) for each in counts))
    return total


def known_sum(numbers: Iterable[int | None]) -> int | None:
    """Returns the sum of numbers; None if one of them is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
