"""How instances of mergers are doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.events.times import TimeMs
from headrace.links.status import TransferStatus
from headrace.metrics import MERGER_METRICS, MERGER_PARTITION_METRICS


@dataclass(frozen=True)
class MergerStatus(TransferStatus):
    """The status of an instance of a merger. Its lags are those of the sources.

    Attributes:
        late: records that could not be put in order, and are in the topic for those.
        sorted_to_ms: by partition of the target, the time up to which it is written, in
            milliseconds since 1970; ``None``: nothing is written yet.
        waits_for: by partition of the target, the partitions that its records wait for.
        idle: partitions of sources that are silent, and not waited for.
    """

    late: int = 0
    sorted_to_ms: Mapping[str, TimeMs | None] = field(default_factory=dict)
    waits_for: Mapping[str, Sequence[str]] = field(default_factory=dict)
    idle: Sequence[str] = ()

    kind: ClassVar[str] = "merger"
    folder: ClassVar[str] = "mergers"
    metrics = MERGER_METRICS
    part_metrics: ClassVar = {"partition": MERGER_PARTITION_METRICS}
    derived: ClassVar[tuple[str, ...]] = (
        *TransferStatus.derived,
        "waiting_partitions",
        "idle_partitions",
        "sorted_to_age_seconds",
    )

    @property
    def waiting_partitions(self) -> int:
        """Returns how many partitions of the target have records that wait for a source."""
        return sum(1 for sources in self.waits_for.values() if sources)

    @property
    def idle_partitions(self) -> int:
        """Returns how many partitions of sources are not waited for."""
        return len(self.idle)

    @property
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

    def partition_values(self, metric: str) -> Mapping[str, int | None]:
        """Lags are of partitions of the sources, and refused are those of the target."""
        if metric == "refused":
            return dict.fromkeys(self.sorted_to_ms, 0) | dict.fromkeys(self.refused, 1)
        return self.lags
