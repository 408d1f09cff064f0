"""The metrics of services in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.metrics import Metric
from headrace.runtime.prometheus import metric_lines, state_lines
from headrace.service.status import InstanceStatus, ServiceStatus


def exposition(
    kind: type[ServiceStatus], statuses: Sequence[ServiceStatus], own: Iterable[Metric] = ()
) -> str:
    """Returns every metric of services of a kind, of their parts, and their states.

    A figure that is not known has no sample.

    Args:
        kind: the type of the statuses.
        statuses: any number of them.
        own: further metrics, such as those of sinks; of those of one name, the first one counts.
    """
    prefix = f"headrace_{kind.kind}_"
    lines: list[str] = []
    by_name: dict[str, Metric] = {}
    for metric in (*kind.metrics, *own):
        by_name.setdefault(metric.name, metric)
    for metric in by_name.values():
        values = ((status.labels, status.figure(metric.name)) for status in statuses)
        known = [(labels, value) for labels, value in values if value is not None]
        lines += metric_lines(prefix, metric, known)
    for part, metrics in kind.part_metrics.items():
        for metric in metrics:
            samples = (
                ({**status.labels, **labels}, value)
                for status in statuses
                for labels, value in status.samples(part, metric.name)
            )
            lines += metric_lines(f"{prefix}{part}_", metric, samples)
    subject = "instance" if issubclass(kind, InstanceStatus) else kind.kind
    states = [(status.labels, status.state) for status in statuses]
    meaning = f"the state of the {subject}: 1 for it"
    lines += state_lines(f"{prefix}state", meaning, kind.states, states)
    return "\n".join(lines) + "\n"
