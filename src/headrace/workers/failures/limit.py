"""The limit of a worker's dead letters: counted by where records were read, not by when they ended.

Records end in any order: one that is retried ends long after others that were read later. Counted
as they end, a few bad ones that come late would be most of what ends then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from headrace.kafka.dead_letters.limiter import DeadLetterRules
from headrace.model import TopicPartition
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.attempt import RecordAttempt
from headrace.workers.lanes.offsets import Ranges

_ALONE = -1  # the window of a record that is not counted with others
_MAX_RANGES = 10_000  # of bad records in a partition; then those far behind are dropped
_FAR_BEHIND = 100_000  # offsets


class ReadWindows:
    """Counts a bad record in the window it was read in, and at its place in its partition.

    A window is ``min_records`` records in the order in which the instance read them, from its start
    on. Records that were done before a restart belong to it as they are read over, as good ones.

    The first record of a partition whose committed offset is continued at is in no window: it is
    there because it was not done, so it is bad more often than others, and an instance with many
    partitions would begin with many of those. Only a limit that allows no bad record of
    ``min_records`` stops at it.
    """

    def __init__(self, rules: DeadLetterRules) -> None:
        self._rules, self._size = rules, rules.limit.min_records
        self._window = self._records = 0
        self._bad: Counter[int] = Counter()  # of windows with records that have not ended
        self._open: Counter[int] = Counter()
        self._partitions: dict[TopicPartition, _ReadPartition] = {}

    def read(self, assigned: AssignedPartition, offset: int, *, is_new: bool) -> None:
        """Counts a record of the window, unless it was read before."""
        window = self._window
        partition = self._partitions.get(assigned.partition)
        if partition is None:
            partition = self._partitions[assigned.partition] = _ReadPartition()
            if assigned.is_resumed:
                window = _ALONE
        if not partition.read(offset, window, is_new=is_new) or window == _ALONE:
            return
        self._open[window] += is_new
        self._records += 1
        if self._records == self._size:
            self._window += 1
            self._records = 0
            self._forget_ended(window)

    def succeeded(self, attempt: RecordAttempt) -> None:
        """Notes that a record is done, and not bad."""
        record = attempt.record
        partition = self._partitions.get(TopicPartition(record.topic, record.partition))
        if partition is not None:
            self._ended(partition.succeeded(attempt.offset))

    def on_rebalance(self, here: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Forgets the partitions that went: they may come back at an earlier offset."""
        for name in self._partitions.keys() - here.keys():
            for window in self._partitions.pop(name).open_windows:
                self._ended(window)

    def reject(self, attempt: RecordAttempt, example: str) -> None:
        """Counts a bad record, which ``example`` describes.

        Raises:
            DeadLetterLimitError: if it is beyond the limit.
        """
        name = attempt.record.topic_partition
        partition, window = self._partitions.get(name), _ALONE
        if partition is not None:
            run, window = partition.reject(attempt.offset)
            self._rules.check_run(run, name, example)
        if window == _ALONE:
            self._rules.check_share(1, self._size, example)
            return
        self._bad[window] += 1
        records = self._records if window == self._window else self._size
        self._rules.check_share(self._bad[window], records, example)
        self._ended(window)

    def _ended(self, window: int) -> None:
        if window != _ALONE:
            self._open[window] -= 1
            self._forget_ended(window)

    def _forget_ended(self, window: int) -> None:
        """Forgets a window to which no bad record can come any more."""
        if window != self._window and not self._open[window]:
            del self._open[window]
            self._bad.pop(window, None)


class _ReadPartition:
    """What was read of a partition since it was assigned, and is not decided.

    Places are offsets without the gaps that compaction, transactions, and records that are left
    out make, so that neighbours are known. A run of bad records is kept while a neighbour of it may
    become bad. So memory follows the records that have not ended, whatever was read beyond them.
    """

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, int]] = {}  # offset: place and window
        self._open_places: set[int] = set()
        self._next = self._places = 0
        self._ends: dict[int, int] = {}  # of runs, by their starts: places
        self._starts: dict[int, int] = {}

    @property
    def open_windows(self) -> list[int]:
        """The windows of the records that have not ended."""
        return [window for _, window in self._open.values()]

    def read(self, offset: int, window: int, *, is_new: bool) -> bool:
        """Returns whether it is a record that was not read before; one that is not new is done."""
        if offset < self._next:
            return False
        place = self._places
        self._next, self._places = offset + 1, place + 1
        if is_new:
            self._open[offset] = place, window
            self._open_places.add(place)
        else:
            self._forget_runs(place)
        return True

    def succeeded(self, offset: int) -> int:
        """Returns the window of a record that is done."""
        place, window = self._end(offset)
        self._forget_runs(place)
        return window

    def reject(self, offset: int) -> tuple[int, int]:
        """Returns the length of the run of bad records that it is in, and the window of it."""
        place, window = self._end(offset)
        if place < 0:  # of an earlier assignment
            return 1, _ALONE
        start, end = self._starts.pop(place, place), self._ends.pop(place + 1, place + 1)
        self._ends.pop(start, None)
        self._starts.pop(end, None)
        if self._may_grow(start, end):
            self._ends[start], self._starts[end] = end, start
        return end - start, window

    def _end(self, offset: int) -> tuple[int, int]:
        place, window = self._open.pop(offset, (-1, _ALONE))
        self._open_places.discard(place)
        return place, window

    def _forget_runs(self, place: int) -> None:
        """Forgets runs beside a good record that have another one, or nothing, at their far end."""
        start, end = self._starts.get(place, place), self._ends.get(place + 1, place + 1)
        if start < place and not self._may_grow(start, place):
            del self._starts[place], self._ends[start]
        if end > place + 1 and not self._may_grow(place + 1, end):
            del self._starts[end], self._ends[place + 1]

    def _may_grow(self, start: int, end: int) -> bool:
        is_last = end == self._places
        return is_last or start - 1 in self._open_places or end in self._open_places


class OriginBlocks:
    """Counts bad records of a worker with retry topics by their places in the topic they came from.

    A record of a retry topic is read there because it failed, minutes after its neighbours were
    done, perhaps by another instance. So the windows are blocks of ``min_records`` offsets of each
    partition of the topic, whatever was read of them. A record that comes twice counts once.
    """

    def __init__(self, rules: DeadLetterRules) -> None:
        self._rules, self._size = rules, rules.limit.min_records
        self._bad: defaultdict[TopicPartition, Ranges] = defaultdict(Ranges)

    def read(self, assigned: AssignedPartition, offset: int, *, is_new: bool) -> None:
        """Ignores a record that was read: its block is known by its offset."""

    def succeeded(self, attempt: RecordAttempt) -> None:
        """Ignores a record that is done: it is in its block, whatever became of it."""

    def on_rebalance(self, here: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Ignores that partitions came or went: blocks stay what they are."""

    def reject(self, attempt: RecordAttempt, example: str) -> None:
        """Counts a bad record, which ``example`` describes.

        Raises:
            DeadLetterLimitError: if it is beyond the limit.
        """
        partition, offset = attempt.record.topic_partition, attempt.record.offset
        bad = self._bad[partition]
        start, end = bad.add(offset, offset + 1)
        self._rules.check_run(end - start, partition, example)
        block = offset - offset % self._size
        self._rules.check_share(bad.count(block, block + self._size), self._size, example)
        if len(bad) > _MAX_RANGES:
            bad.forget(start - _FAR_BEHIND)
