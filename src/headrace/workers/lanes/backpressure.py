"""Which partitions are paused: those of a full lane, for a full budget, or on request.

While there is room, a lane may hold up to half of what is free, and always its fair share. So a
lane that is slow for a while does not stop its partition, and many slow ones share what there is
(dynamic thresholds, as in the shared buffers of network switches: Choudhury and Hahne, IEEE/ACM
Transactions on Networking 6(2), 1998).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.kafka.group.subscription import Pauses
from headrace.model import TopicPartition
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.lane import Lane
from headrace.workers.states import PauseReason

RESUME_AT = 0.9
"""Share of a limit at which a pause ends: the distance saves fetching records twice."""


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
        """Whether reading may continue after it was full."""
        return self.used <= RESUME_AT * self.total

    def lane_is_full(self, lane_bytes: int) -> bool:
        """Returns whether the partition of that lane must be paused."""
        return lane_bytes > self.lane_limit

    def lane_has_room(self, lane_bytes: int) -> bool:
        """Returns whether the partition of that lane may be resumed."""
        return lane_bytes <= RESUME_AT * self.lane_limit


class Backpressure:
    """Bounds what waits in an instance. All on the event loop.

    A full lane pauses its partition. A full budget pauses every partition that holds its fair
    share: one that holds less is not the reason, and others may be held until its records come.
    """

    def __init__(
        self,
        budget: Budget,
        assignments: Mapping[TopicPartition, AssignedPartition],
        pauses: Pauses,
    ) -> None:
        self._budget, self._assignments, self._pauses = budget, assignments, pauses
        self._requested: set[TopicPartition] = set()
        self._is_full = False

    def assigned(self, assignment: AssignedPartition) -> None:
        """Counts the lanes of a new partition; pauses it where an operator has paused it."""
        self._budget.lanes += len(assignment.lanes)
        if assignment.partition in self._requested:
            self._set_requested(assignment, paused=True)

    def revoked(self, assignment: AssignedPartition) -> None:
        """Forgets a partition and the bytes of its records."""
        self._budget.lanes -= len(assignment.lanes)
        self._budget.used -= assignment.bytes
        self._pauses.remove([assignment.partition])
        self._check_budget()

    def on_enqueued(self, assignment: AssignedPartition, lane: Lane, weight: int) -> None:
        """Counts a record that was put into ``lane``."""
        self._budget.take(weight)
        assignment.bytes += weight
        if lane not in assignment.full_lanes and self._budget.lane_is_full(lane.bytes):
            assignment.full_lanes.add(lane)
            self._pause_for([assignment], PauseReason.LANE)
        if self._budget.is_full:
            self._is_full = True
            # Pausing those that hold less would not free memory: it would delay what others wait
            # for.
            share = self._budget.total / len(self._assignments)
            large = [held for held in self._assignments.values() if held.bytes >= share]
            self._pause_for(large, PauseReason.BUDGET)

    def on_completed(self, assignment: AssignedPartition, lane: Lane, weight: int) -> None:
        """Counts a record of ``lane`` that is done."""
        self._budget.used -= weight
        assignment.bytes -= weight
        if lane in assignment.full_lanes and self._budget.lane_has_room(lane.bytes):
            assignment.full_lanes.discard(lane)
            if not assignment.full_lanes:
                self._resume_from([assignment], PauseReason.LANE)
        if self._is_full:
            self._check_budget()

    def on_held(self, assignment: AssignedPartition, weight: int) -> None:
        """Counts what was sent for a record that is done, and waits for a transaction."""
        self._budget.used += weight
        assignment.bytes += weight

    def on_released(self, assignment: AssignedPartition, weight: int) -> None:
        """Counts what a transaction has written."""
        self._budget.used -= weight
        assignment.bytes -= weight
        if self._is_full:
            self._check_budget()

    def set_uncommittable(self, assignment: AssignedPartition, *, is_now: bool) -> None:
        """Pauses a partition while no commit can say which of its records are done."""
        act = self._pause_for if is_now else self._resume_from
        act([assignment], PauseReason.TRANSACTION)

    def set_restoring(self, assignment: AssignedPartition, *, is_now: bool) -> None:
        """Pauses a partition, and starts none of its records, until its state is restored."""
        act = self._pause_for if is_now else self._resume_from
        act([assignment], PauseReason.RESTORING)
        self._pause_lanes(assignment)

    def set_requested(self, partitions: Iterable[TopicPartition]) -> None:
        """Pauses exactly these partitions on request."""
        self._requested = set(partitions)
        for assigned in self._assignments.values():
            self._set_requested(assigned, paused=assigned.partition in self._requested)

    def _set_requested(self, assignment: AssignedPartition, *, paused: bool) -> None:
        if paused is (PauseReason.REQUESTED in assignment.paused_for):
            return
        (self._pause_for if paused else self._resume_from)([assignment], PauseReason.REQUESTED)
        self._pause_lanes(assignment)

    def _pause_lanes(self, assignment: AssignedPartition) -> None:
        reasons = {PauseReason.REQUESTED, PauseReason.RESTORING}
        for lane in assignment.lanes:
            lane.pause(paused=not reasons.isdisjoint(assignment.paused_for))

    def _check_budget(self) -> None:
        if self._budget.has_room:
            self._is_full = False
            self._resume_from(self._assignments.values(), PauseReason.BUDGET)

    def _pause_for(self, assignments: Sequence[AssignedPartition], reason: PauseReason) -> None:
        new = [assigned.partition for assigned in assignments if not assigned.paused_for]
        for assigned in assignments:
            assigned.paused_for.add(reason)
        if new:
            self._pauses.add(new)

    def _resume_from(self, assignments: Iterable[AssignedPartition], reason: PauseReason) -> None:
        paused = [assigned for assigned in assignments if reason in assigned.paused_for]
        for assigned in paused:
            assigned.paused_for.discard(reason)
        ended = [assigned.partition for assigned in paused if not assigned.paused_for]
        if ended:
            self._pauses.remove(ended)
