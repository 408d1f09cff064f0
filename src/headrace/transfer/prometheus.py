"""Metrics of an instance that sends records on, such as a mirror, as Prometheus reads them."""

from __future__ import annotations

from headrace.metrics import (
    DISPATCHER_METRICS,
    DISPATCHER_PARTITION_METRICS,
    DISPATCHER_SITE_METRICS,
    MATCHED_EVENTS_METRICS,
    MERGER_METRICS,
    MERGER_PARTITION_METRICS,
    MIRROR_METRICS,
    MIRROR_PARTITION_METRICS,
)
from headrace.runtime.prometheus import metric_lines, state_lines
from headrace.transfer.status import TransferState, TransferStatus

_METRICS = {
    "mirror": (MIRROR_METRICS, MIRROR_PARTITION_METRICS),
    "merger": (MERGER_METRICS, MERGER_PARTITION_METRICS),
    "dispatcher": (DISPATCHER_METRICS, DISPATCHER_PARTITION_METRICS),
    "matched_events": (MATCHED_EVENTS_METRICS, ()),
}


def exposition(status: TransferStatus) -> str:
    """Returns every metric of an instance, of its partitions, and of its targets.

    What is not known yet has no sample.
    """
    metrics, partition_metrics = _METRICS[status.kind]
    prefix = f"headrace_{status.kind}_"
    labels = {status.kind: status.name, "instance": status.instance}
    lines: list[str] = []
    for metric in metrics:
        value = getattr(status, metric.name)
        lines += metric_lines(prefix, metric, [] if value is None else [(labels, value)])
    samples = status.partition_samples
    for metric in partition_metrics:
        values = [(labels | _place(name), n) for name, n in sorted(samples[metric.name].items())]
        lines += metric_lines(f"{prefix}partition_", metric, values)
    by_site = status.site_samples
    for metric in DISPATCHER_SITE_METRICS if by_site else ():
        known = sorted((site, n) for site, n in by_site[metric.name].items() if n is not None)
        lines += metric_lines(
            f"{prefix}site_", metric, [(labels | {"site": s}, n) for s, n in known]
        )
    meaning = "the state of the instance: 1 for it"
    lines += state_lines(f"{prefix}state", meaning, TransferState, [(labels, status.state)])
    return "\n".join(lines) + "\n"


def _place(partition: str) -> dict[str, str]:
    *site, topic, number = partition.split("/")
    place = {"topic": topic, "partition": number}
    return place | {"site": site[0]} if site else place
