"""What was sent of the event that a partition goes on with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class SentOfEvent:
    """An event that was sent, at least to some of the queries that it matches.

    Attributes:
        offset: of the event.
        queries: ids of those that have it.
        target_offset: of the first of its records that was sent.
    """

    offset: int
    queries: Collection[str]
    target_offset: int = 0
