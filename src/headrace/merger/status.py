"""How instances of mergers are doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.transfer.status import TransferStatus


@dataclass(frozen=True)
class MergerStatus(TransferStatus):
    """The status of an instance of a merger. Its lags are those of the sources.

    Attributes:
        late: records that could not be put in order, and are in the topic for those.
        sorted_to_ms: by partition of the target, the time up to which it is written, in
            milliseconds since 1970; -1: not known yet.
        waits_for: by partition of the target, the partitions that its records wait for.
        idle: partitions of sources that are silent, and not waited for.
    """

    late: int = 0
    sorted_to_ms: Mapping[str, int] = field(default_factory=dict)
    waits_for: Mapping[str, Sequence[str]] = field(default_factory=dict)
    idle: Sequence[str] = ()

    kind: ClassVar[str] = "merger"
    figures: ClassVar[tuple[str, ...]] = (
        *TransferStatus.figures,
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
    def sorted_to_age_seconds(self) -> float:
        """Returns how long ago that is up to which the hindmost waiting partition is written."""
        waiting = [self.sorted_to_ms[name] for name, sources in self.waits_for.items() if sources]
        known = [time_ms for time_ms in waiting if time_ms >= 0]
        return max(self.updated_ms - min(known), 0) / 1000 if known else 0.0
