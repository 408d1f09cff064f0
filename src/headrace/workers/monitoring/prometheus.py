"""Metrics of instances, as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.metrics import PARTITION_METRICS, WORKER_METRICS, Metric
from headrace.runtime.prometheus import Sample, metric_lines, state_lines
from headrace.workers.lanes.backpressure import PauseReason
from headrace.workers.monitoring.progress import InstanceSnapshot, PartitionProgress, WorkerProgress
from headrace.workers.states import InstanceState

STATE = "headrace_worker_state"
_PREFIX, _PARTITION_PREFIX = "headrace_worker_", "headrace_worker_partition_"


def exposition(instances: Sequence[InstanceSnapshot]) -> str:
    """The text: every metric, each of the instances, and of their partitions with their labels."""
    lines: list[str] = []
    for metric in WORKER_METRICS:
        whole = [(_who(instance), getattr(instance, metric.name)) for instance, _ in instances]
        lines += metric_lines(_PREFIX, metric, whole)
    for metric in PARTITION_METRICS:
        samples = (
            sample
            for instance, partitions in instances
            for partition in partitions
            for sample in _samples(metric, partition, _who(instance))
        )
        lines += metric_lines(_PARTITION_PREFIX, metric, samples)
    states = [(_who(instance), instance.state) for instance, _ in instances]
    lines += state_lines(STATE, "the state of the instance: 1 for it", InstanceState, states)
    return "\n".join(lines) + "\n"


def _who(instance: WorkerProgress) -> dict[str, str]:
    return {"worker": instance.worker, "instance": instance.instance}


def _samples(metric: Metric, part: PartitionProgress, who: Mapping[str, str]) -> Iterator[Sample]:
    labels = {**who, "topic": part.topic, "partition": str(part.partition)}
    if metric.name == "paused":
        for reason in PauseReason:
            yield labels | {"reason": str(reason)}, reason in part.paused
    elif metric.name == "processing_timestamp_seconds":
        yield labels, part.processing_timestamp_ms / 1000
    else:
        yield labels, getattr(part, metric.name)
