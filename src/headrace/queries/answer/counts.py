"""What has become of the matches in ended windows, on their way into the results."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from headrace.queries.records.counts import ResultCounts
from headrace.queries.records.ended import PartitionClocks, WindowResults

_LOG = logging.getLogger("headrace.queries")


class PartitionResultCounts:
    """The counts of a partition of the results, as its records come.

    Args:
        counts: by topic of the events, to go on with.
    """

    def __init__(self, counts: Mapping[str, ResultCounts]) -> None:
        self._counts = {topic: _copy(each) for topic, each in counts.items()}

    def take(self, window: WindowResults) -> None:
        """Counts a record of a window that has ended."""
        begun = self._of(window.topic).begun
        begun[window.partition] = begun.get(window.partition, 0) + window.matches

    def take_copy(self, window: WindowResults) -> None:
        """Counts a copy of a record that was deleted, which its partition has counted before."""
        counts = self._of(window.topic)
        counts.sent += window.matches
        counts.taken += window.matches

    def answer(self, window: WindowResults) -> None:
        """Counts the results of a window that has been taken."""
        self._of(window.topic).answered += window.matches

    def compare(self, clocks: PartitionClocks, before: PartitionClocks | None) -> None:
        """Compares what a partition has sent with what has come.

        Args:
            clocks: of the partition; what it has sent is before them.
            before: the last ones of the partition; None: these are the first, and it is not known
                what it has sent since others.
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
            waiting: matches in windows that wait, by topic; None: not known.
        """
        return {
            topic: _copy(counts, None if waiting is None else waiting.get(topic, 0))
            for topic, counts in self._counts.items()
        }

    def _of(self, topic: str) -> ResultCounts:
        return self._counts.setdefault(topic, ResultCounts())


def _copy(counts: ResultCounts, waiting: int | None = None) -> ResultCounts:
    return msgspec.structs.replace(counts, begun=dict(counts.begun), waiting=waiting)
