"""Metrics of an instance of a mirror, as Prometheus reads them."""

from __future__ import annotations

from headrace.metrics import MIRROR_METRICS, MIRROR_PARTITION_METRICS
from headrace.mirror.status import MirrorState, MirrorStatus
from headrace.runtime.prometheus import metric_lines, state_lines

_PREFIX, _PARTITION_PREFIX = "headrace_mirror_", "headrace_mirror_partition_"


def exposition(status: MirrorStatus) -> str:
    """Returns every metric of an instance and of its partitions.

    A lag that is not known yet has no sample.
    """
    labels = {"mirror": status.mirror, "instance": status.instance}
    lines: list[str] = []
    for metric in MIRROR_METRICS:
        lines += metric_lines(_PREFIX, metric, [(labels, getattr(status, metric.name))])
    lags = {name: lag for name, lag in status.lags.items() if lag is not None}
    refused = dict.fromkeys(status.lags, 0) | dict.fromkeys(status.refused, 1)
    for metric in MIRROR_PARTITION_METRICS:
        samples = lags if metric.name == "lag_records" else refused
        values = [(labels | _place(name), value) for name, value in sorted(samples.items())]
        lines += metric_lines(_PARTITION_PREFIX, metric, values)
    meaning = "the state of the instance: 1 for it"
    lines += state_lines(f"{_PREFIX}state", meaning, MirrorState, [(labels, status.state)])
    return "\n".join(lines) + "\n"


def _place(partition: str) -> dict[str, str]:
    topic, _, number = partition.rpartition("/")
    return {"topic": topic, "partition": number}
