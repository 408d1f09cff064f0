"""Counts of the matches in ended windows, to show that results have each of them once."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from headrace.queries.records.counts import ResultCounts
from headrace.queries.records.ended import PartitionClocks, WindowResults

_LOG = logging.getLogger("headrace.queries")


class PartitionResultCounts:
    """The match counts of a partition of the results, updated with each record.

    Args:
        counts: the counts to continue with, by topic of the events.
    """

    def __init__(self, counts: Mapping[str, ResultCounts]) -> None:
        self._counts = {topic: _copy(of_topic) for topic, of_topic in counts.items()}

    def take(self, window: WindowResults) -> None:
        """Counts the matches of an ended window."""
        begun = self._of(window.topic).begun
        begun[window.partition] = begun.get(window.partition, 0) + window.matches

    def take_copy(self, window: WindowResults) -> None:
        """Counts a copy of a deleted record; its partition has counted the record as sent."""
        counts = self._of(window.topic)
        counts.sent += window.matches
        counts.taken += window.matches

    def answer(self, window: WindowResults) -> None:
        """Counts the matches of a window whose results are written."""
        self._of(window.topic).answered += window.matches

    def compare(self, clocks: PartitionClocks, before: PartitionClocks | None) -> None:
        """Compares the matches that a partition has sent with those that were received.

        Args:
            clocks: the clocks of the partition, which follow all that it has sent until then.
            before: the previous clocks of the partition; ``None`` if there were none, so that it is
                not known what was sent since.
        """
        for topic in clocks.matches.keys() | self._counts.keys():
            counts = self._of(topic)
            taken = counts.begun.pop(clocks.partition, 0)
            sent = taken if before is None else clocks.matches_since(before, topic)
            if sent != taken:
                _LOG.error(
                    "Partition %d has sent %d matches of %s in ended windows, and %d have come",
                    *(clocks.partition, sent, topic, taken),
                )
            counts.sent += sent
            counts.taken += taken

    def with_waiting(self, waiting: Mapping[str, int] | None) -> dict[str, ResultCounts]:
        """Returns a copy of the counts, by topic.

        Args:
            waiting: matches in waiting windows, by topic; ``None`` if they are not known.
        """
        return {
            topic: _copy(counts, None if waiting is None else waiting.get(topic, 0))
            for topic, counts in self._counts.items()
        }

    def _of(self, topic: str) -> ResultCounts:
        return self._counts.setdefault(topic, ResultCounts())


def _copy(counts: ResultCounts, waiting: int | None = None) -> ResultCounts:
    return msgspec.structs.replace(counts, begun=dict(counts.begun), waiting=waiting)
