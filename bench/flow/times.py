"""The times of a join, the same for all systems."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from bench.flow.events import Traffic


@dataclass(frozen=True)
class Times:
    """How long events of a join are asked for, and waited for.

    Attributes:
        within: before its click an impression may be.
        wait: an impression may come later than its click.
    """

    within: timedelta
    wait: timedelta

    def kept(self, traffic: Traffic) -> int:
        """How many impressions are in these times when the topics end."""
        return round(traffic.count * min(1.0, (self.within + self.wait) / traffic.span))
