"""The slices of event time in which a join keeps earlier events, and the memory of their index."""

from __future__ import annotations

# A batch asks each slice, and at most one slice more than needed is kept.
SLICES = 8
MIN_SLICE_US = 60_000_000
LAST_SLICE = 2**32 - 1
MAX_RANGES = 16
"""Maximum number of ranges of slices that a batch divides its events into; a backlog spans many."""
CACHE_BYTES = 32 * 1024 * 1024
"""Memory of one index; two or three of them are open at once, one a task."""
FINGERPRINT_BYTES = 4
"""Size of the fingerprint of a key (``Match.ID``)."""


def slice_length_us(within_us: int) -> int:
    """Returns the length of a slice of an index that holds events for ``within_us``."""
    return max(MIN_SLICE_US, within_us // SLICES)


def slice_of(time_us: int, slice_us: int) -> int:
    """Returns the number of a time's slice; those before 1970 are in the first one."""
    return min(max(0, time_us // slice_us), LAST_SLICE)
