"""The status of an instance of a link that copies a partition to a partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from headrace.links.status import LinkStatus
from headrace.metrics import Metric
from headrace.service.figures import counter

_PARTITION_METRICS = (
    Metric(
        "lag_records",
        "records",
        "offsets from the next record of the source's partition to its end, as of the last fetch",
        "one far above the others: most records go to that partition",
    ),
    Metric(
        "refused",
        "1 or 0",
        "it can't continue",
        "1: `headrace {kind} list` says why, and what to do",
    ),
)


@dataclass(frozen=True)
class CopyStatus(LinkStatus):
    """The status of an instance of a link that copies. Its partitions are those of the source.

    A kind adds counters of the records that it does not copy, and ``kind`` and ``folder``, which
    are its name, and its name in the plural. ``{kind}`` stands for the name in what metrics say.
    With ``is_exported=False``, it has no metrics.

    Attributes:
        not_copied: what the line of a run says of these counters, by their names.
    """

    records: int = counter(
        "records",
        "records that were copied and committed",
        "standing still with a lag: the log says which site does not respond",
    )
    value_bytes: int = counter(
        "bytes",
        "bytes of their values",
        "close to what the link between the sites carries: the lag grows",
    )
    partitions = LinkStatus.partitions.gauge(
        "partitions",
        "partitions that it copies",
        "0 for long: there are more instances than partitions, or all are refused",
    )
    refused_partitions = LinkStatus.refused_partitions.gauge(
        "partitions",
        "its partitions that can't continue",
        "above 0: `headrace {kind} list` says why, and what to do",
    )
    lag_records = LinkStatus.lag_records.gauge(
        "records",
        "offsets from the next record to the end of the partitions that it copies",
        "rising: more arrives than is copied; more instances, or a faster link",
    )

    not_copied: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, *, is_exported: bool = True) -> None:
        common = cls.metrics
        super().__init_subclass__()
        if not is_exported:
            cls.metrics = ()
            return
        own = tuple(metric for metric in cls.metrics if metric not in common)
        # Records that are not copied come after those that are.
        cls.metrics = _named(cls.kind, common[:2] + own + common[2:])
        cls.part_metrics = {"partition": _named(cls.kind, _PARTITION_METRICS)}


def _named(kind: str, metrics: tuple[Metric, ...]) -> tuple[Metric, ...]:
    return tuple(
        replace(metric, runbook=metric.runbook.replace("{kind}", kind)) for metric in metrics
    )
