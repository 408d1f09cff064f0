"""What an instance counts."""

from __future__ import annotations

from collections import Counter


class Counts(Counter[str]):
    """Counts by the names of the metrics."""

    def increment(self, name: str) -> None:
        """Add one."""
        self[name] += 1
