"""How instances are doing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from headrace.metrics import PARTITION_METRICS, WORKER_METRICS
from headrace.runtime.error_text import error_message
from headrace.runtime.instance_name import process_name
from headrace.service.status import InstanceStatus, State
from headrace.workers.lanes.backpressure import PauseReason
from headrace.workers.monitoring.lag import EndOffsets, seconds_since
from headrace.workers.states import INSTANCE, LaneState

if TYPE_CHECKING:
    from headrace.runtime.prometheus import Sample
    from headrace.workers.instance import WorkerInstance
    from headrace.workers.lanes.assigned_partition import AssignedPartition

_COUNTS = frozenset(metric.name for metric in WORKER_METRICS if metric.is_counter)
_MAXIMA = frozenset({"processing_seconds", "lane_limit_bytes", "lag_seconds"})


@dataclass(frozen=True)
class WorkerProgress(InstanceStatus):
    """Counts since the instance began, and how things stand. Names are those of the metrics.

    Attributes:
        own: its partitions, one by one; they are not in its JSON.
    """

    state: State = State.CREATED
    processed: int = 0
    failed: int = 0
    retried: int = 0
    timed_out: int = 0
    skipped: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    replays_skipped: int = 0
    commits: int = 0
    rebalances: int = 0
    partitions: int = 0
    lanes: int = 0
    in_process: int = 0
    waiting: int = 0
    blocked: int = 0
    starved: int = 0
    queue_bytes: int = 0
    queue_limit_bytes: int = 0
    lane_limit_bytes: int = 0
    uncommitted: int = 0
    processing_seconds: float = 0.0
    lag_records: int = 0
    lag_seconds: float = 0.0
    paused_partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    process: str = ""
    own: Sequence[PartitionProgress] = ()

    kind: ClassVar[str] = "worker"
    folder: ClassVar[str] = "workers"
    states: ClassVar = tuple(INSTANCE)
    metrics = WORKER_METRICS
    part_metrics: ClassVar = {"partition": PARTITION_METRICS}

    def samples(self, part: str, metric: str) -> Iterator[Sample]:  # noqa: ARG002
        """Returns the values of a metric of its partitions."""
        for partition in self.own:
            place = {"topic": partition.topic, "partition": str(partition.partition)}
            if metric == "paused":
                for reason in PauseReason:
                    yield place | {"reason": str(reason)}, reason in partition.paused
            else:
                yield place, getattr(partition, metric)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values by name, without partitions."""
        values = super().to_json()
        del values["own"]
        return values


@dataclass(frozen=True)
class PartitionProgress:
    """One partition of an instance. Offsets are always the next record.

    Attributes:
        topic: of the partition.
        partition: its number.
        paused: why its records wait in Kafka; empty: they do not.
        consumed_offset: next to read.
        processing_offset: first that is not done.
        committed_offset: committed last.
        processing_timestamp_ms: about when the first record that is not done is from; -1: unknown.
        queue_bytes: of records that wait or are in process.
        uncommitted: done, beyond the first that is not.
        lag_records: from ``processing_offset`` to the end.
        lag_seconds: age of the first record that is not done; 0 at the end.
    """

    topic: str
    partition: int
    paused: tuple[str, ...]
    consumed_offset: int
    processing_offset: int
    committed_offset: int
    processing_timestamp_ms: int
    queue_bytes: int
    uncommitted: int
    lag_records: int
    lag_seconds: float

    @property
    def processing_timestamp_seconds(self) -> float:
        """Returns about when the first record that is not done is from."""
        return self.processing_timestamp_ms / 1000

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PartitionProgress:
        """Reads what ``asdict`` made.

        Raises:
            ValueError: if a value has another type than its field.
        """
        return msgspec.convert(values, cls)


# Made at import: msgspec crashes where several threads are the first to decode a class.
msgspec.json.Decoder(tuple[WorkerProgress, PartitionProgress])

Observe = Callable[[WorkerProgress], None]
"""Called with the progress of an instance."""


def measure_partitions(instance: WorkerInstance, ends: EndOffsets) -> list[PartitionProgress]:
    """Returns the progress of each partition; call it on the event loop."""
    return [_partition(assigned, ends) for assigned in (instance.assignments or {}).values()]


def measure(
    instance: WorkerInstance, name: str, partitions: Sequence[PartitionProgress], now: float
) -> WorkerProgress:
    """How ``instance`` is doing; on the event loop.

    Args:
        instance: to be looked at.
        name: of it.
        partitions: from :func:`measure_partitions`.
        now: the loop's clock.
    """
    failure = instance.failure
    progress = WorkerProgress(
        instance.worker.name,
        instance.state,
        "" if failure is None else error_message(failure),
        instance=name,
        process=process_name(),
        own=partitions,
        **_counted(instance.counts),
    )
    assignments = instance.assignments
    if not assignments:
        return progress
    lanes = assignments.lanes
    begun = [lane.begun for lane in lanes if lane.begun]
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
        processing_seconds=max(0.0, now - min(begun)) if begun else 0.0,
        lag_records=sum(partition.lag_records for partition in partitions),
        lag_seconds=max((partition.lag_seconds for partition in partitions), default=0.0),
        paused_partitions={
            f"{partition.topic}/{partition.partition}": partition.paused
            for partition in partitions
            if partition.paused
        },
    )


def _counted(counts: Mapping[str, int]) -> dict[str, Any]:
    return {name: count for name, count in counts.items() if name in _FIELDS}


_FIELDS = frozenset(field_.name for field_ in fields(WorkerProgress))


def _starved(assignment: AssignedPartition) -> int:
    """Lanes that could work, were it not for a full one beside them."""
    if not assignment.full_lanes:
        return 0
    return sum(not (lane.waiting or lane.in_process) for lane in assignment.lanes)


def _partition(assigned: AssignedPartition, ends: EndOffsets) -> PartitionProgress:
    timestamp = assigned.times.at(assigned.committable)
    if timestamp < 0:
        timestamp = ends.first_ms(assigned.partition)
    # At least what was read and is not done, also before it is known where the partition ends.
    lag = max(
        ends.lag(assigned.partition, assigned.committable), assigned.position - assigned.committable
    )
    return PartitionProgress(
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


def summed(
    worker: str, name: str, state: State, instances: Iterable[WorkerProgress]
) -> WorkerProgress:
    """Returns the progress of several instances of ``worker`` together.

    Counts are added up; of durations, the longest counts. ``updated_ms`` is the mean of all that
    run: each reports at a time of its own, and a rate is taken between two of these means.
    """
    all_progress = list(instances)
    updates_ms = [progress.updated_ms for progress in all_progress if not progress.has_ended]
    figures: dict[str, Any] = {
        metric.name: (max if metric.name in _MAXIMA else sum)(
            [0, *(getattr(progress, metric.name) for progress in all_progress)]
        )
        for metric in WORKER_METRICS
    }
    if updates_ms:
        figures["updated_ms"] = sum(updates_ms) // len(updates_ms)
    reason = "; ".join(
        f"{progress.instance}: {progress.reason}" for progress in all_progress if progress.reason
    )
    paused = _paused(all_progress)
    return WorkerProgress(worker, state, reason, instance=name, paused_partitions=paused, **figures)


def _paused(instances: Iterable[WorkerProgress]) -> dict[str, tuple[str, ...]]:
    paused: dict[str, set[str]] = {}
    for progress in instances:
        for partition, reasons in progress.paused_partitions.items():
            paused.setdefault(partition, set()).update(reasons)
    return {partition: tuple(sorted(reasons)) for partition, reasons in sorted(paused.items())}


def final_counts_only(progress: WorkerProgress) -> WorkerProgress:
    """Returns the counts of an instance that has ended; its partitions are others' by now."""
    kept = {name: getattr(progress, name) for name in ("process", "updated_ms", *_COUNTS)}
    return WorkerProgress(
        progress.name, progress.state, progress.reason, instance=progress.instance, **kept
    )
