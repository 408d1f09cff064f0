"""Commits of tables that other writers collide with: how often they are tried again."""

from __future__ import annotations

from headrace.errors import SinkError

# Two seconds in all: far more writers than a table has would be past by then.
CONFLICT_DELAYS = tuple(min(number, 10) / 100 for number in range(1, 20))


def collided(uri: str, error: Exception) -> SinkError:
    """Returns the error of a commit that others have come in between each time."""
    attempts = len(CONFLICT_DELAYS) + 1
    return SinkError(uri, f"{attempts} commits collided with others: {error}")
