"""How many bytes of records may wait in an instance, and in each of its lanes.

A lane may hold what it needs while there is room: half of what is free, but never less than its
fair share. So a lane that is slow for a while does not stop its partition, and many slow ones
share what there is (dynamic thresholds, as in the shared buffers of network switches:
Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998).
"""

from __future__ import annotations

RESUME_AT = 0.9
"""Share of a limit at which a pause ends: the distance saves fetching records again."""


class Budget:
    """Bytes of one instance, of records that wait or are in process."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self.lanes = 0
        self._mean_weight = 1000.0

    @property
    def records(self) -> int:
        """Roughly how many more records have room."""
        return int(self.free / self._mean_weight)

    def take(self, weight: int) -> None:
        """Counts a record of ``weight`` bytes."""
        self.used += weight
        # A moving mean: it says how many records to fetch, before their sizes are known.
        self._mean_weight += (weight - self._mean_weight) / 100

    @property
    def free(self) -> int:
        """The bytes left; below zero after a record that was larger than that."""
        return self.total - self.used

    @property
    def lane_limit(self) -> int:
        """The most bytes that one lane may hold now."""
        return max(self.total // max(self.lanes, 1), self.free // 2)

    @property
    def is_full(self) -> bool:
        """Whether reading must stop."""
        return self.used >= self.total

    @property
    def has_room(self) -> bool:
        """Whether reading may go on after it was full."""
        return self.used <= RESUME_AT * self.total

    def lane_is_full(self, lane_bytes: int) -> bool:
        """Returns whether the partition of that lane must be paused."""
        return lane_bytes > self.lane_limit

    def lane_has_room(self, lane_bytes: int) -> bool:
        """Returns whether the partition of that lane may be resumed."""
        return lane_bytes <= RESUME_AT * self.lane_limit
