"""Counts of matches on their way into windows, and from there into results."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec


class TopicCounts(msgspec.Struct):
    """The matches of one topic: an event counts once for every query and window that it is in.

    Attributes:
        sent: matches that pipelines report for completed batches.
        taken: matches received in the records of completed batches.
        begun: matches received for a batch that is not complete.
        ended: matches in the final results of windows.
        late: matches that came for ended windows.
        faulty: matches in records or windows that can't be added up.
        open: matches in open windows; ``None`` if not known, because an instance has restarted and
            takes records that are in the windows already.
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
        """How many matches of completed batches have not come; negative if too many came."""
        return self.sent - self.taken

    @property
    def missing_in_windows(self) -> int:
        """How many matches that came are in no window; negative if windows have too many."""
        if self.open is None:
            return 0
        return self.taken + self.begun - self.ended - self.late - self.faulty - self.open

    @property
    def unbalanced(self) -> int:
        """How many matches are missing or too many."""
        return abs(self.missing_records) + abs(self.missing_in_windows)


class ResultCounts(msgspec.Struct):
    """The matches of one topic in the ended windows of a partition of the results.

    Attributes:
        sent: matches that partitions of the matched topic report for windows they have ended.
        taken: matches received in the records of these windows.
        begun: matches received in windows that their partition has not reported yet, by partition
            of the matched topic.
        answered: matches in written results.
        waiting: matches in windows that wait for their turn in the results; ``None`` if not known,
            because an instance has restarted and takes their records again.
    """

    sent: int = 0
    taken: int = 0
    begun: dict[int, int] = {}
    answered: int = 0
    waiting: int | None = 0

    @property
    def missing_records(self) -> int:
        """How many matches were sent and have not come; negative if too many came."""
        return self.sent - self.taken

    @property
    def missing_in_results(self) -> int:
        """How many matches that came are in no result; negative if results have too many."""
        if self.waiting is None:
            return 0
        return self.taken + sum(self.begun.values()) - self.answered - self.waiting

    @property
    def unbalanced(self) -> int:
        """How many matches are missing or too many."""
        return abs(self.missing_records) + abs(self.missing_in_results)


def added_up(counts: Collection[TopicCounts]) -> TopicCounts:
    """Returns the sums of the counts of partitions; a sum is ``None`` if a count is not known."""
    total = TopicCounts()
    for name in TopicCounts.__struct_fields__:
        setattr(total, name, known_sum(getattr(of_topic, name) for of_topic in counts))
    return total


def known_sum(numbers: Iterable[int | None]) -> int | None:
    """Returns the sum of numbers, or ``None`` if one is ``None``."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
