"""The status of what reads topics and writes records for what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.service.figures import Derived
from headrace.service.status import InstanceStatus, State


@dataclass(frozen=True)
class ReaderStatus(InstanceStatus):
    """The figures of an instance that reads partitions. Names are those of the metrics.

    Attributes:
        reason: why it waits or has failed.
        records: that were written and committed since the start of the instance.
        value_bytes: of their values, where these are counted.
        lags: offsets to the end of each partition that it reads, as ``topic/partition``; ``None``:
            not known yet.
        refused: why partitions can't continue, as ``topic/partition``.
    """

    records: int = 0
    value_bytes: int = 0
    lags: Mapping[str, int | None] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    states: ClassVar = (State.RUNNING, State.WAITING, State.STOPPED, State.FAILED)

    @Derived
    def partitions(self) -> int:
        """Returns how many partitions it reads."""
        return len(self.lags)

    @Derived
    def refused_partitions(self) -> int:
        """Returns how many of its partitions can't continue."""
        return len(self.refused)

    @Derived
    def lag_records(self) -> int:
        """Returns the offsets from its positions to the ends of all its partitions."""
        return sum(lag or 0 for lag in self.lags.values())
