"""The limit of a worker's dead letters: counted by where records were read, not by when they ended.

Records end in any order: one that is retried ends long after others that were read later. Counted
as they end, a few bad ones that come late would be most of what ends then.
"""

from __future__ import annotations

import bisect
import operator
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from headrace.kafka.dead_letters.limiter import DeadLetterRules
from headrace.model import TopicPartition
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.attempt import RecordAttempt
from headrace.workers.lanes.offsets import Ranges

_ALONE = -1  # the window of a record that is not counted with others
_MAX_WINDOWS = 1_000  # with bad records; then those are dropped whose records have all ended
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
        self._bad: Counter[int] = Counter()
        self._partitions: dict[TopicPartition, _ReadPartition] = {}

    def read(self, assigned: AssignedPartition, offset: int) -> None:
        """Counts a record of the window, unless it was read before."""
        partition = self._partitions.get(assigned.partition)
        if partition is None:
            partition = self._partitions[assigned.partition] = _ReadPartition(assigned)
            if assigned.is_resumed:
                partition.read(offset, _ALONE)
                return
        if not partition.read(offset, self._window):
            return
        self._records += 1
        if self._records == self._size:
            self._window += 1
            self._records = 0

    def on_rebalance(self, here: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Forgets the partitions that went: they may come back at an earlier offset."""
        self._partitions = {
            name: partition for name, partition in self._partitions.items() if name in here
        }

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
        if len(self._bad) > _MAX_WINDOWS:
            self._forget_ended()

    def _forget_ended(self) -> None:
        oldest = min(partition.oldest_window for partition in self._partitions.values())
        self._bad = Counter({window: n for window, n in self._bad.items() if window >= oldest})


class _Stretch(NamedTuple):
    """Records without a gap in their offsets, read in one window.

    Attributes:
        offset: of the first one.
        place: of that one, among all records of the partition.
        window: a number.
    """

    offset: int
    place: int
    window: int


class _ReadPartition:
    """What was read of a partition since it was assigned, and which of it was bad.

    Places are offsets without the gaps that compaction, transactions, and records that are left
    out make, so that neighbours are known. Kept as stretches, from the first record that is not
    done on.
    """

    def __init__(self, assigned: AssignedPartition) -> None:
        self._assigned = assigned
        self._stretches: list[_Stretch] = []
        self._bad = Ranges()
        self._next = self._places = 0
        self._window = _ALONE

    @property
    def oldest_window(self) -> int:
        return self._stretches[0].window

    def read(self, offset: int, window: int) -> bool:
        """Returns whether it is a record that was not read before."""
        if offset < self._next:
            return False
        if offset > self._next or window != self._window or not self._stretches:
            self._stretches.append(_Stretch(offset, self._places, window))
            self._window = window
            self._forget_done()
        self._next = offset + 1
        self._places += 1
        return True

    def reject(self, offset: int) -> tuple[int, int]:
        """Returns the length of the run of bad records that it is in, and the window of it."""
        index = bisect.bisect_right(self._stretches, offset, key=operator.itemgetter(0)) - 1
        if index < 0:  # of an earlier assignment
            return 1, _ALONE
        stretch = self._stretches[index]
        place = stretch.place + offset - stretch.offset
        start, end = self._bad.add(place, place + 1)
        return end - start, stretch.window

    def _forget_done(self) -> None:
        committable, stretches = self._assigned.committable, self._stretches
        done = bisect.bisect_right(stretches, committable, key=operator.itemgetter(0)) - 1
        del stretches[: max(0, done)]
        # In a gap, the place is that of the record after it.
        end = stretches[1].place if len(stretches) > 1 else self._places
        self._bad.forget(min(stretches[0].place + committable - stretches[0].offset, end))


class OriginBlocks:
    """Counts bad records of a worker with retry topics by their places in the topic they came from.

    A record of a retry topic is read there because it failed, minutes after its neighbours were
    done, perhaps by another instance. So the windows are blocks of ``min_records`` offsets of each
    partition of the topic, whatever was read of them. A record that comes twice counts once.
    """

    def __init__(self, rules: DeadLetterRules) -> None:
        self._rules, self._size = rules, rules.limit.min_records
        self._bad: defaultdict[TopicPartition, Ranges] = defaultdict(Ranges)

    def read(self, assigned: AssignedPartition, offset: int) -> None:
        """Ignores a record that was read: its block is known by its offset."""

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
