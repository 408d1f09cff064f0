"""Keeps windows open until the matched records that came before them are taken."""

from __future__ import annotations

import logging

from headrace.kafka.read.open_transactions import OPEN_TRANSACTION_SECONDS
from headrace.model import TopicPartition

_LOG = logging.getLogger("headrace.queries")


class PartitionCatchUp:
    """The matched records that must be taken before windows end by the wall clock.

    They came while no instance had the partition. Without them, windows would lack events that
    were matched before they closed, and a query would seem to have no events.

    If none has come for a minute and a half, they are not waited for: the log may have been
    truncated, or its leader does not respond.

    Args:
        partition: the partition of the matched topic.
    """

    def __init__(self, partition: TopicPartition) -> None:
        self._partition = partition
        self._end = self._reached = 0
        self._reached_at = 0.0

    def start(self, end: int, now: float) -> None:
        """Starts to wait for the records before ``end``, at a time of the monotonic clock."""
        self._end, self._reached_at = end, now

    def is_behind(self, offset: int, now: float) -> bool:
        """Returns whether records must be taken first, given the next offset and the time."""
        if offset >= self._end:
            return False
        if offset != self._reached:
            self._reached, self._reached_at = offset, now
        if now - self._reached_at < OPEN_TRANSACTION_SECONDS:
            return True
        _LOG.error(
            "%s is not read up to offset %d: nothing has come for %.0f s after offset %d. Windows "
            "end by the clock all the same",
            *(self._partition, self._end, OPEN_TRANSACTION_SECONDS, offset),
        )
        self._end = 0
        return False
