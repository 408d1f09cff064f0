"""Measures the progress of instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from headrace.runtime.error_text import error_message
from headrace.runtime.instance_name import process_name
from headrace.service.status import State
from headrace.workers.monitoring.lag import EndOffsets, seconds_since
from headrace.workers.states import LaneState
from headrace.workers.status import PartitionStatus, WorkerStatus

if TYPE_CHECKING:
    from headrace.workers.instance import WorkerInstance
    from headrace.workers.lanes.assigned_partition import AssignedPartition

# References are the same in all instances.
_MAXIMA = frozenset(
    {
        "processing_seconds",
        "lane_limit_bytes",
        "lag_seconds",
        "reference_keys",
        "reference_bytes",
        "references_behind",
    }
)
_COUNTS = frozenset(metric.name for metric in WorkerStatus.metrics if metric.is_counter)
_FIELDS = frozenset(field_.name for field_ in fields(WorkerStatus))


Observe = Callable[[WorkerStatus], None]
"""Called with the progress of an instance."""


def measure_partitions(instance: WorkerInstance, ends: EndOffsets) -> list[PartitionStatus]:
    """Returns the progress of each partition; call it on the event loop."""
    return [_partition(assigned, ends) for assigned in (instance.assignments or {}).values()]


def measure(
    instance: WorkerInstance, name: str, partitions: Sequence[PartitionStatus], now: float
) -> WorkerStatus:
    """Returns the progress of ``instance``; call it on the event loop.

    Args:
        instance: what is measured.
        name: of the instance.
        partitions: from :func:`measure_partitions`.
        now: the loop's clock.
    """
    failure = instance.failure
    counted = {name: count for name, count in instance.counts.items() if name in _FIELDS}
    counts: dict[str, Any] = counted | instance.reference_figures | instance.state_figures
    progress = WorkerStatus(
        instance.worker.name,
        instance.state,
        "" if failure is None else error_message(failure),
        instance=name,
        process=process_name(),
        own=partitions,
        **counts,
    )
    assignments = instance.assignments
    if not assignments:  # not joined yet, or all partitions are with other instances
        return progress
    lanes = assignments.lanes
    starts = [lane.oldest_start for lane in lanes if lane.oldest_start]
    return replace(
        progress,
        partitions=len(assignments),
        lanes=len(lanes),
        in_process=sum(lane.in_process for lane in lanes),
        waiting=sum(lane.waiting for lane in lanes),
        blocked=sum(lane.state is LaneState.BLOCKED for lane in lanes),
        starved=sum(_starved(assigned) for assigned in assignments.values()),
        queue_bytes=assignments.budget.used,
        queue_limit_bytes=assignments.budget.total,
        lane_limit_bytes=assignments.budget.lane_limit,
        uncommitted=sum(partition.uncommitted for partition in partitions),
        processing_seconds=max(0.0, now - min(starts)) if starts else 0.0,
        lag_records=sum(partition.lag_records for partition in partitions),
        lag_seconds=max((partition.lag_seconds for partition in partitions), default=0.0),
        paused_partitions={
            f"{partition.topic}/{partition.partition}": partition.paused
            for partition in partitions
            if partition.paused
        },
    )


def _starved(assignment: AssignedPartition) -> int:
    """Lanes that are idle only because a full lane has paused their partition."""
    if not assignment.full_lanes:
        return 0
    return sum(not (lane.waiting or lane.in_process) for lane in assignment.lanes)


def _partition(assigned: AssignedPartition, ends: EndOffsets) -> PartitionStatus:
    timestamp = assigned.times.at(assigned.committable)
    if timestamp < 0:
        timestamp = ends.first_ms(assigned.partition)
    # At least what was read and is not done, also before it is known where the partition ends.
    lag = max(
        ends.lag(assigned.partition, assigned.committable), assigned.position - assigned.committable
    )
    return PartitionStatus(
        assigned.partition.topic,
        assigned.partition.partition,
        tuple(sorted(map(str, assigned.paused_for))),
        assigned.position,
        assigned.committable,
        assigned.committed,
        timestamp,
        assigned.bytes,
        assigned.uncommitted,
        lag,
        seconds_since(timestamp) if lag else 0.0,
    )


def summed(worker: str, name: str, state: State, instances: Iterable[WorkerStatus]) -> WorkerStatus:
    """Returns the progress of several instances of ``worker`` together.

    Counts are added up; of durations and references, the largest value counts. ``updated_ms`` is
    the mean of all that run: each reports at a time of its own, and a rate is taken between two of
    these means.
    """
    all_progress = list(instances)
    updates_ms = [progress.updated_ms for progress in all_progress if not progress.has_ended]
    figures: dict[str, Any] = {
        metric.name: (max if metric.name in _MAXIMA else sum)(
            [0, *(getattr(progress, metric.name) for progress in all_progress)]
        )
        for metric in WorkerStatus.metrics
    }
    # The mean, as rates are taken between two such times.
    if updates_ms:
        figures["updated_ms"] = sum(updates_ms) // len(updates_ms)
    reason = "; ".join(
        f"{progress.instance}: {progress.reason}" for progress in all_progress if progress.reason
    )
    paused: dict[str, set[str]] = {}
    for progress in all_progress:
        for partition, reasons in progress.paused_partitions.items():
            paused.setdefault(partition, set()).update(reasons)
    figures["paused_partitions"] = {
        partition: tuple(sorted(reasons)) for partition, reasons in sorted(paused.items())
    }
    return WorkerStatus(worker, state, reason, instance=name, **figures)


def final_counts_only(progress: WorkerStatus) -> WorkerStatus:
    """Returns the counts of an instance that has ended; its partitions belong to others by now."""
    kept = {name: getattr(progress, name) for name in ("process", "updated_ms", *_COUNTS)}
    return WorkerStatus(
        progress.name, progress.state, progress.reason, instance=progress.instance, **kept
    )
