"""The status of an instance of a merger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from headrace.events.times import TimeMs
from headrace.links.status import LinkStatus
from headrace.metrics import Metric
from headrace.service.figures import counter, derived_gauge

MergerCounter = Literal["records", "value_bytes", "late"]
"""A counter of :class:`MergerStatus` that merging increases."""

_PARTITION_METRICS = (
    Metric(
        "lag_records",
        "records",
        "offsets of a source's partition from the first that is not written to its end",
        "one far above the others: its records wait for another source",
    ),
    Metric(
        "refused",
        "1 or 0",
        "the partition of the target can't continue",
        "1: `headrace merger list` says why, and what to do",
    ),
)


@dataclass(frozen=True)
class MergerStatus(LinkStatus):
    """The status of an instance of a merger. Its lags are those of the sources.

    Attributes:
        sorted_to_ms: by partition of the target, the time up to which it is written, in
            milliseconds since 1970; ``None``: nothing is written yet.
        waits_for: by partition of the target, the partitions that its records wait for.
        idle: partitions of sources that are silent, and not waited for.
    """

    records: int = counter(
        "records",
        "records that were merged into the target and committed",
        "standing still with a lag: `waits_for` in `headrace status --json` says for which source",
    )
    value_bytes: int = counter(
        "bytes",
        "bytes of the values of all records that were written, late ones included",
        "rising faster than records: records have become larger",
    )
    late: int = counter(
        "records",
        "records in the topic `late`: they could not be put in order",
        "rising: the header `headrace-late` of those records says why",
    )
    partitions = LinkStatus.partitions.gauge(
        "partitions",
        "partitions of sources that it reads",
        "0 for long: there are more instances than partitions, or all are refused",
    )
    refused_partitions = LinkStatus.refused_partitions.gauge(
        "partitions",
        "partitions of the target that can't continue",
        "above 0: `headrace merger list` says why, and what to do",
    )
    lag_records = LinkStatus.lag_records.gauge(
        "records",
        "offsets from the first record that is not written to the end of the sources",
        "rising: more arrives than is merged, or a source is waited for",
    )
    sorted_to_ms: Mapping[str, TimeMs | None] = field(default_factory=dict)
    waits_for: Mapping[str, Sequence[str]] = field(default_factory=dict)
    idle: Sequence[str] = ()

    kind: ClassVar[str] = "merger"
    folder: ClassVar[str] = "mergers"
    part_metrics: ClassVar = {"partition": _PARTITION_METRICS}

    @derived_gauge(
        "partitions",
        "partitions of the target whose records wait for a source",
        "above 0 for long: a site is cut off or silent; `waits_for` names the source",
    )
    def waiting_partitions(self) -> int:
        """Returns how many partitions of the target have records that wait for a source."""
        return sum(1 for sources in self.waits_for.values() if sources)

    @derived_gauge(
        "partitions",
        "partitions of sources that are silent, and not waited for",
        "above 0: what they send later may be late",
    )
    def idle_partitions(self) -> int:
        """Returns how many partitions of sources are not waited for."""
        return len(self.idle)

    @derived_gauge(
        "s",
        "age of the time up to which the most delayed waiting partition is written; 0: none waits",
        "rising: a source is waited for",
    )
    def sorted_to_age_seconds(self) -> float | None:
        """Returns the age of the time up to which the most delayed waiting partition is written.

        ``None``: nothing of a waiting partition is written yet.
        """
        ages = []
        for name, sources in self.waits_for.items():
            time_ms = self.sorted_to_ms.get(name)
            if sources and time_ms is None:
                return None
            if sources and time_ms is not None:
                ages.append(max(self.updated_ms - time_ms, 0) / 1000)
        return max(ages, default=0.0)

    def partition_figures(self) -> dict[str, Mapping[str, int | None]]:
        """Lags are of partitions of the sources, and refused are those of the target."""
        refused = dict.fromkeys(self.sorted_to_ms, 0) | dict.fromkeys(self.refused, 1)
        return {"lag_records": self.lags, "refused": refused}
