"""The status of an instance of a worker, and of its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec

from headrace.service.figures import Measured, counter, derived_gauge, gauge
from headrace.service.status import InstanceStatus, State
from headrace.workers.states import INSTANCE, PauseReason

if TYPE_CHECKING:
    from headrace.runtime.prometheus import Sample


@dataclass(frozen=True)
class PartitionStatus(Measured):
    """One partition of an instance. Offsets are always the next record.

    Attributes:
        topic: of the partition.
        partition: its number.
        processing_timestamp_ms: about when the first record that is not done is from; -1: unknown.
    """

    topic: str
    partition: int
    paused: tuple[str, ...] = gauge(
        "1 or 0",
        "its records wait in Kafka, by reason: `lane`, `budget`, `requested`, `transaction` or "
        "`restoring`",
        "`requested`: an operator paused it (`headrace workers resume`); the others pass",
        default=(),
    )
    consumed_offset: int = gauge(
        "offset", "the next record to read", "standing still with a lag: it is paused"
    )
    processing_offset: int = gauge(
        "offset",
        "the first record that is not done",
        "standing still while `consumed_offset` rises: that record is stuck",
    )
    committed_offset: int = gauge(
        "offset",
        "what was committed last",
        "far below `processing_offset`: commits fail, see the log",
    )
    processing_timestamp_ms: int = -1

    @derived_gauge(
        "s since 1970",
        "about when the first record that is not done is from",
        "far in the past: a lag, or a stuck record",
    )
    def processing_timestamp_seconds(self) -> float:
        """Returns about when the first record that is not done is from."""
        return self.processing_timestamp_ms / 1000

    queue_bytes: int = gauge(
        "bytes",
        "bytes of its records that wait or are in process",
        "large in one partition alone: its keys are slow",
    )
    uncommitted: int = gauge(
        "records", "its records that are done, after one that is not", "large: a record is stuck"
    )
    lag_records: int = gauge(
        "records",
        "offsets from the first record that is not done to its end",
        "one far above the others: a hot key, or a paused partition",
    )
    lag_seconds: float = gauge(
        "s", "age of its first record that is not done", "as of the instance", default=0.0
    )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> PartitionStatus:
        """Reads what ``asdict`` made.

        Raises:
            ValueError: if a value has another type than its field.
        """
        return msgspec.convert(values, cls)


@dataclass(frozen=True)
class WorkerStatus(InstanceStatus):
    """Counts since the instance began, and its current figures, by the names of the metrics.

    Attributes:
        own: its partitions, one by one; they are not in its JSON.
    """

    state: State = State.CREATED
    processed: int = counter(
        "records",
        "records that are done, the skipped and the dead letters included",
        "standing still with a lag: see `paused_partitions`, `blocked`, `processing_seconds`",
    )
    failed: int = counter(
        "attempts",
        "attempts that failed, time-outs included",
        "rising: the log names the records; what the task calls may be unreachable",
    )
    retried: int = counter(
        "attempts",
        "attempts that will be retried",
        "rising with `failed`: they are retried; without an end: more attempts will not help",
    )
    timed_out: int = counter(
        "attempts",
        "attempts that took longer than `processing_timeout`",
        "above 0: what the task calls hangs, or the limit is too short",
    )
    skipped: int = counter(
        "records",
        "records that failed for good and were left out (`Skip`)",
        "above 0: that many records are lost; the log names them",
    )
    dead_letters: int = counter(
        "records",
        "records that failed for good and went to the dead-letter topic",
        "above 0: `headrace dead-letters list`, then correct the task or the producer",
    )
    tombstones: int = counter(
        "records",
        "records without a value, left out of a topic with `compaction` as the task takes events",
        "rises as keys are deleted; a task that takes the `record` alone is given them",
    )
    replays_skipped: int = counter(
        "records",
        "records left out because they were replayed for other pipelines or workers",
        "rises after a replay that was not for this one; nothing to do",
    )
    commits: int = counter(
        "commits",
        "commits of offsets",
        "standing still while `processed` rises: a record is stuck (`processing_seconds`)",
    )
    rebalances: int = counter(
        "rebalances",
        "times that partitions were assigned to this instance",
        "rising without a deploy: members come and go, see their logs",
    )
    rejected_references: int = counter(
        "records",
        "records of its references that are no events: their keys have no value",
        "above 0: the log names them; correct what writes the topic",
    )
    partitions: int = gauge(
        "partitions",
        "partitions that are assigned to this instance",
        "0 for long: there are more instances than partitions",
    )
    lanes: int = gauge(
        "lanes",
        "subpartitions of these partitions: most records at a time, unless they are observed",
        "below what the rate needs: more subpartitions",
    )
    in_process: int = gauge(
        "records",
        "records that the task was given and that are not done",
        "close to `lanes` with a lag: more subpartitions or instances",
    )
    waiting: int = gauge(
        "records",
        "records that wait in this instance for their turn",
        "a few thousand are normal under load",
    )
    blocked: int = gauge(
        "lanes",
        "lanes whose record was not accepted by its task, or is a retry that is not due",
        "for long: what the task waits for does not come",
    )
    starved: int = gauge(
        "lanes",
        "lanes with nothing to do, in a partition that a full lane beside them has paused",
        "above 0 for long: one key or lane is too slow; more subpartitions, a larger `queue_bytes`",
    )
    queue_bytes: int = gauge(
        "bytes",
        "bytes of records that wait or are in process",
        "at `queue_limit_bytes`: the tasks are slower than the topic, which is what limits are for",
    )
    queue_limit_bytes: int = gauge(
        "bytes",
        "the worker's `queue_bytes`, at which partitions are paused; it may come to twice that",
        "as declared",
    )
    lane_limit_bytes: int = gauge(
        "bytes",
        "most that one lane may hold now, before its partition is paused",
        "falls as the queue fills, never below the lanes' fair share",
    )
    uncommitted: int = gauge(
        "records",
        "records that are done, after one that is not: not covered by the committed offset",
        "large: a record is stuck; a restart repeats only what the commit's metadata can't hold",
    )
    processing_seconds: float = gauge(
        "s",
        "how long the oldest record in process has been with the task",
        "close to `processing_timeout`: what the task calls is slow",
        default=0.0,
    )
    lag_records: int = gauge(
        "records",
        "offsets from the first record that is not done to the end of the partitions",
        "rising: more arrives than is processed",
    )
    lag_seconds: float = gauge(
        "s",
        "age of the oldest record that is not done, to a second; 0 without a lag",
        "close to the topic's retention: act before records are deleted unread",
        default=0.0,
    )
    reference_keys: int = gauge(
        "keys",
        "keys that have a value in its references",
        "falling to 0: the topic was emptied or recreated, and tasks find nothing",
    )
    reference_bytes: int = gauge(
        "bytes",
        "keys and values of its references, as they are in the topics",
        "close to the worker's `reference_bytes`: at that, the instance ends; raise it",
    )
    references_behind: int = gauge(
        "references",
        "references that can't be read now, or are read again: tasks look up what was read before",
        "above 0 for long: the log names the topic, and why",
    )
    state_keys: int = gauge(
        "keys",
        "keys that have a value in the state of its partitions",
        "rising without an end: declare `state_ttl`, or call `state.delete()` for old keys",
    )
    state_bytes: int = gauge(
        "bytes",
        "keys and values of the state of its partitions, as they are in the topic",
        "close to the worker's `state_bytes`: it ends at that; raise it, or add instances",
    )
    state_restoring: int = gauge(
        "partitions",
        "partitions whose state is read: none of their records is processed before",
        "above 0 for long: the log says what it waits for",
    )
    paused_partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    process: str = ""
    own: Sequence[PartitionStatus] = ()

    kind: ClassVar[str] = "worker"
    folder: ClassVar[str] = "workers"
    states: ClassVar = tuple(INSTANCE)
    part_metrics: ClassVar = {"partition": PartitionStatus.metrics}

    def samples(self, part: str, metric: str) -> Iterator[Sample]:  # noqa: ARG002
        """Returns the values of a metric of its partitions."""
        for partition in self.own:
            place = {"topic": partition.topic, "partition": str(partition.partition)}
            if metric == "paused":
                for reason in PauseReason:
                    yield place | {"reason": str(reason)}, reason in partition.paused
            else:
                yield place, getattr(partition, metric)

    def killed(self, reason: str) -> Self:
        """Returns the status with what it has done, and without what it had: others have that."""
        had = [metric.name for metric in self.metrics if not metric.is_counter]
        nothing: dict[str, Any] = {own.name: own.default for own in fields(self) if own.name in had}
        return replace(super().killed(reason), paused_partitions={}, **nothing)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values by name, without partitions."""
        values = super().to_json()
        del values["own"]
        return values


# Made at import: msgspec crashes where several threads are the first to decode a class.
msgspec.json.Decoder(tuple[WorkerStatus, PartitionStatus])
