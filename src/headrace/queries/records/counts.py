"""What has become of matches, on their way into windows and into results."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec


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


class ResultCounts(msgspec.Struct):
    """The matches of one topic in the windows that have ended for a partition of the results.

    Attributes:
        sent: as the partitions say in which the windows have ended.
        taken: of the same windows, as their records say.
        begun: of windows of which their partition has not said yet that it has sent them, by
            partition.
        answered: in results.
        waiting: in windows that wait for their place; None: not known, as an instance that has
            begun anew takes their records once more.
    """

    sent: int = 0
    taken: int = 0
    begun: dict[int, int] = {}
    answered: int = 0
    waiting: int | None = 0

    @property
    def missing_records(self) -> int:
        """How many matches were sent and have not come; below 0: too many have."""
        return self.sent - self.taken

    @property
    def missing_in_results(self) -> int:
        """How many matches have come, and are in no result; below 0: results have too many."""
        if self.waiting is None:
            return 0
        return self.taken + sum(self.begun.values()) - self.answered - self.waiting

    @property
    def unbalanced(self) -> int:
        """How many matches are missing or too many."""
        return abs(self.missing_records) + abs(self.missing_in_results)


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
