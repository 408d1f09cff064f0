"""The figures of a join in its pipeline's status and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headrace.pipelines.source.report import JoinCounts


class JoinFigures:
    """Adds up what the batches of a run report, by the names of :attr:`Join.metrics`."""

    def __init__(self) -> None:
        self._counters: Counter[str] = Counter()
        self._last: dict[int, JoinCounts] = {}

    def add(self, by_partition: Mapping[int, JoinCounts]) -> None:
        """Counts a batch."""
        for counts in by_partition.values():
            self._counters.update(
                join_matched_rows=counts.matched,
                join_unmatched_rows=counts.unmatched,
                join_repeated_events=counts.repeated,
                join_conflicting_events=counts.conflicting,
                join_rebuilt_files=counts.rebuilt_files,
                join_rebuild_ms=counts.rebuild_ms,
            )
        self._last.update(by_partition)

    def values(self) -> dict[str, int]:
        """Returns the figures; empty before the first batch."""
        if not self._last:
            return {}
        return {
            **self._counters,
            "join_waiting_events": sum(counts.waiting for counts in self._last.values()),
            "join_state_bytes": sum(counts.state_bytes for counts in self._last.values()),
        }
