"""How far event time has passed the windows of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.ledger.windows import WindowState
from headrace.model import TopicPartition
from headrace.pipelines.ledger.entry import LedgerEntry

_MICROSECONDS = 1_000_000


@dataclass(frozen=True)
class CompletenessBounds:
    """What decides, beside the entries of a ledger, whether event time has passed a window.

    Attributes:
        allowed_us: the pipeline's allowed lateness, in microseconds.
        ends: by partition, the offset after its last record; None: the brokers do not respond.
    """

    allowed_us: int
    ends: Mapping[TopicPartition, int] | None = None


class Completeness:
    """Says of each window whether events of it may still come."""

    def __init__(self, entry: LedgerEntry, bounds: CompletenessBounds) -> None:
        """Takes the event clocks and the positions of ``entry``."""
        self._entry, self._bounds = entry, bounds
        clocks = [us for topic in entry.clocks.values() for us in topic.values()]
        self._newest_us = max(clocks, default=0)

    def state(self, start: int | None) -> WindowState:
        """Returns OPEN, CLOSING or, where a window is over, BALANCED.

        Args:
            start: of the window, in seconds since 1970; None: events without an event time.
        """
        if start is None:
            return WindowState.BALANCED
        end_us = (start + self._entry.window_seconds) * _MICROSECONDS
        if self._newest_us < end_us:
            return WindowState.OPEN
        over_us = end_us + self._bounds.allowed_us
        if self._newest_us < over_us or self._is_behind(over_us):
            return WindowState.CLOSING
        return WindowState.BALANCED

    def silent_partition(self) -> str:
        """Returns a partition that holds records and that no batch has planned; empty: none."""
        for partition, end in sorted((self._bounds.ends or {}).items()):
            known = self._entry.positions.get(partition.topic, {})
            if end > 0 and partition.partition not in known:
                return f"{partition.topic}/{partition.partition}"
        return ""

    def _is_behind(self, over_us: int) -> bool:
        """Whether a partition that is not read to its end may have events of a window in time."""
        ends = self._bounds.ends
        return any(
            self._entry.clocks.get(topic, {}).get(p, 0) < over_us
            and (ends is None or ends.get(TopicPartition(topic, p), 0) > position)
            for topic, positions in self._entry.positions.items()
            for p, position in positions.items()
        )
