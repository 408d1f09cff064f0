"""Leaves out records that were replayed for other pipelines and workers."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.kafka.headers import headers_of
from headrace.kafka.range_reader import Record
from headrace.kafka.replayed import LOOKED_AT_AFTER_MS, is_for


class Addressed:
    """The records of one range that are for ``pipeline``.

    Headers are looked at only where replays can be, since it costs up to a microsecond a record.

    Attributes:
        skipped: records that were for others.
    """

    def __init__(self, pipeline: str, planned_ms: int, *, may_hold_replays: bool) -> None:
        self._pipeline = pipeline
        self._may_hold_replays = may_hold_replays
        self._old_before_ms = planned_ms - LOOKED_AT_AFTER_MS
        self.skipped = 0

    def of(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records that are not for others."""
        if not records or not (self._may_hold_replays or self._is_old(records)):
            return records
        ours = [one for one in records if is_for(self._pipeline, headers_of(one) or ())]
        self.skipped += len(records) - len(ours)
        return ours

    def _is_old(self, records: Sequence[Record]) -> bool:
        """Kafka may have forgotten by now where replayed records of that time lie."""
        return min(one.timestamp()[1] for one in (records[0], records[-1])) < self._old_before_ms
