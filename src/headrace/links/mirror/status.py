"""The status of an instance of a mirror."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from headrace.links.status import LinkStatus
from headrace.metrics import Metric
from headrace.service.figures import counter

MirrorCounter = Literal["records", "value_bytes", "loops_skipped"]
"""A counter of :class:`MirrorStatus` that copying increases."""

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
        "1: `headrace mirror list` says why, and what to do",
    ),
)


@dataclass(frozen=True)
class MirrorStatus(LinkStatus):
    """The status of an instance of a mirror. Its partitions are those of the source."""

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
    loops_skipped: int = counter(
        "records",
        "records that have been at one of the two sites before, and were not sent",
        "rising between sites that do not mirror each other: look for a way back through others",
    )
    partitions = LinkStatus.partitions.gauge(
        "partitions",
        "partitions that it copies",
        "0 for long: there are more instances than partitions, or all are refused",
    )
    refused_partitions = LinkStatus.refused_partitions.gauge(
        "partitions",
        "its partitions that can't continue",
        "above 0: `headrace mirror list` says why, and what to do",
    )
    lag_records = LinkStatus.lag_records.gauge(
        "records",
        "offsets from the next record to the end of the partitions that it copies",
        "rising: more arrives than is copied; more instances, or a faster link",
    )

    kind: ClassVar[str] = "mirror"
    folder: ClassVar[str] = "mirrors"
    part_metrics: ClassVar = {"partition": _PARTITION_METRICS}
