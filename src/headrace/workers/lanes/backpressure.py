"""Which partitions are paused: those of a full lane, for a full budget, or on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headrace.model import TopicPartition
from headrace.workers.lanes.assigned_partition import AssignedPartition
from headrace.workers.lanes.budget import Budget
from headrace.workers.lanes.lane import Lane
from headrace.workers.states import PauseReason

Switch = Callable[[list[TopicPartition]], None]


class Backpressure:
    """Bounds what waits in an instance. All on the event loop.

    A full lane pauses its partition. A full budget pauses every partition that holds its fair
    share: one that holds less is not the reason, and others may be held until its records come.
    """

    def __init__(
        self,
        budget: Budget,
        assignments: Mapping[TopicPartition, AssignedPartition],
        pause: Switch,
        resume: Switch,
    ) -> None:
        self._budget, self._assignments = budget, assignments
        self._pause, self._resume = pause, resume
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

    def set_requested(self, partitions: Iterable[TopicPartition]) -> None:
        """Pauses exactly these partitions on request."""
        self._requested = set(partitions)
        for assigned in self._assignments.values():
            self._set_requested(assigned, paused=assigned.partition in self._requested)

    def _set_requested(self, assignment: AssignedPartition, *, paused: bool) -> None:
        if paused is (PauseReason.REQUESTED in assignment.paused_for):
            return
        for lane in assignment.lanes:
            lane.pause(paused=paused)
        (self._pause_for if paused else self._resume_from)([assignment], PauseReason.REQUESTED)

    def _check_budget(self) -> None:
        if self._budget.has_room:
            self._is_full = False
            self._resume_from(self._assignments.values(), PauseReason.BUDGET)

    def _pause_for(self, assignments: Iterable[AssignedPartition], reason: PauseReason) -> None:
        begun = []
        for assigned in assignments:
            if not assigned.paused_for:
                begun.append(assigned.partition)
            assigned.paused_for.add(reason)
        if begun:
            self._pause(begun)

    def _resume_from(self, assignments: Iterable[AssignedPartition], reason: PauseReason) -> None:
        ended = []
        for assigned in assignments:
            if reason in assigned.paused_for:
                assigned.paused_for.discard(reason)
                if not assigned.paused_for:
                    ended.append(assigned.partition)
        if ended:
            self._resume(ended)
