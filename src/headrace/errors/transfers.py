"""Why records can't be moved from topics to others: what mirrors and mergers have in common."""

from __future__ import annotations

from headrace.errors.base import RefusedError


class TransferRecordError(RefusedError):
    """A record can't be written as it is."""
