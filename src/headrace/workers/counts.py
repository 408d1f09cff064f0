"""The counters of an instance."""

from __future__ import annotations

from collections import Counter


class Counts(Counter[str]):
    """Counts by the names of the metrics."""

    def increment(self, name: str) -> None:
        """Adds 1 to a counter."""
        self[name] += 1
