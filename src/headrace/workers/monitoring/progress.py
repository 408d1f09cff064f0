"""How instances are doing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.events.times import TimeMs
from headrace.metrics import WORKER_METRICS
from headrace.runtime.error_text import error_message
from headrace.runtime.instance_name import process_name
from headrace.runtime.json_files import read_json, write_passing
from headrace.workers.monitoring.lag import EndOffsets, seconds_since
from headrace.workers.states import InstanceState, LaneState, is_final

if TYPE_CHECKING:
    from headrace.workers.instance import WorkerInstance
    from headrace.workers.lanes.assigned_partition import AssignedPartition

STALE_AFTER_SECONDS = 30.0

_COUNTS = frozenset(metric.name for metric in WORKER_METRICS if metric.is_counter)
_MAXIMA = frozenset({"processing_seconds", "lane_limit_bytes", "lag_seconds"})


@dataclass(frozen=True)
class WorkerProgress:
    """Counts since the instance began, and how things stand. Names are those of the metrics."""

    worker: str
    instance: str
    state: InstanceState
    reason: str = ""
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
    updated_ms: TimeMs = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def final(self) -> bool:
        """Whether the instance has ended."""
        return is_final(self.state)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> WorkerProgress:
        """Reads what :meth:`to_json` wrote.

        Raises:
            ValueError: if a value has another type than its field.
        """
        return msgspec.convert(values, cls)


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

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PartitionProgress:
        """Reads what ``asdict`` made.

        Raises:
            ValueError: if a value has another type than its field.
        """
        return msgspec.convert(values, cls)


# Made at import: msgspec crashes where several threads are the first to decode a class.
msgspec.json.Decoder(tuple[WorkerProgress, PartitionProgress])

InstanceSnapshot = tuple[WorkerProgress, Sequence[PartitionProgress]]
"""An instance, and each partition that is its own."""

Observe = Callable[[WorkerProgress, Sequence[PartitionProgress]], None]
"""Called with the progress of an instance and its partitions."""


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
        name,
        instance.state,
        "" if failure is None else error_message(failure),
        process=process_name(),
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
    worker: str, name: str, state: InstanceState, instances: Iterable[WorkerProgress]
) -> WorkerProgress:
    """Returns the progress of several instances of ``worker`` together.

    Counts are added up; of durations, the longest counts. ``updated_ms`` is the mean of all that
    run: each reports at a time of its own, and a rate is taken between two of these means.
    """
    all_progress = list(instances)
    updates_ms = [progress.updated_ms for progress in all_progress if not progress.final]
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
    return WorkerProgress(worker, name, state, reason, paused_partitions=paused, **figures)


def _paused(instances: Iterable[WorkerProgress]) -> dict[str, tuple[str, ...]]:
    paused: dict[str, set[str]] = {}
    for progress in instances:
        for partition, reasons in progress.paused_partitions.items():
            paused.setdefault(partition, set()).update(reasons)
    return {partition: tuple(sorted(reasons)) for partition, reasons in sorted(paused.items())}


def with_liveness(progress: WorkerProgress) -> WorkerProgress:
    """Returns ``progress``, as failed where the instance has been silent for too long."""
    if progress.final or time.time() - progress.updated_ms / 1000 < STALE_AFTER_SECONDS:
        return progress
    reason = f"no heartbeat for {STALE_AFTER_SECONDS:.0f} s; the process may have been killed"
    return replace(progress, state=InstanceState.FAILED, reason=reason)


def final_counts_only(progress: WorkerProgress) -> WorkerProgress:
    """Returns the counts of an instance that has ended; its partitions are others' by now."""
    kept = {name: getattr(progress, name) for name in ("process", "updated_ms", *_COUNTS)}
    return WorkerProgress(
        progress.worker, progress.instance, progress.state, progress.reason, **kept
    )


class WorkerStatusFolder:
    """One JSON file an instance under ``.headrace/status/workers``, for ``headrace status``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, progress: WorkerProgress) -> None:
        """Replaces the instance's file whole, if the disk takes it."""
        write_passing(self._folder / _file_name(progress), progress.to_json())

    def read(self) -> list[WorkerProgress]:
        """Returns what every instance on this machine wrote last, by worker and instance.

        A file that can't be read is left out.
        """
        paths = sorted(self._folder.glob("[!.]*.json"))
        written = (read_json(path, WorkerProgress.from_json) for path in paths)
        return [with_liveness(progress) for progress in written if progress is not None]

    def forget(self, worker: str) -> None:
        """Removes what ended instances of ``worker`` left."""
        for progress in self.read():
            if progress.worker == worker and progress.final:
                (self._folder / _file_name(progress)).unlink(missing_ok=True)


def _file_name(progress: WorkerProgress) -> str:
    return f"{progress.worker}.{progress.instance}.json"
