"""Leaves out records that were replayed for other pipelines and workers."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.kafka.client.headers import headers_of
from headrace.kafka.dead_letters.replayed import (
    LOOKED_AT_AFTER_MS,
    PartitionId,
    is_for,
    was_replayed_to,
)
from headrace.kafka.read.range_reader import Record

_CLOCKS_DIFFER_BY_MS = 3_600_000


class Addressed:
    """The records of one range, which is in ``place``, that are for ``pipeline``.

    Headers are looked at only where replays can be, since it costs up to a microsecond a record.

    Attributes:
        skipped: records that were for others, or left out.
    """

    def __init__(
        self,
        pipeline: str,
        place: PartitionId,
        planned_ms: int,
        *,
        may_hold_replays: bool,
        leaves_out_replays: bool = False,
    ) -> None:
        self._pipeline, self._place = pipeline, place
        self._leaves_out_replays = leaves_out_replays
        self._may_hold_replays = may_hold_replays
        self._earliest_ms = planned_ms - LOOKED_AT_AFTER_MS
        self._latest_ms = planned_ms + _CLOCKS_DIFFER_BY_MS
        self.skipped = 0

    def of(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records that are not for others, without replays if those are left out."""
        if not records or not (self._may_hold_replays or self._may_be_old(records)):
            return records
        ours = [
            record
            for record in records
            if is_for(self._pipeline, self._place, headers_of(record) or ())
            and not (self._leaves_out_replays and self.is_replayed(record))
        ]
        self.skipped += len(records) - len(ours)
        return ours

    def is_replayed(self, record: Record) -> bool:
        """Returns whether the record was replayed to its partition, not sent by a producer."""
        return was_replayed_to(self._place, headers_of(record) or ())

    def _may_be_old(self, records: Sequence[Record]) -> bool:
        """Kafka may have forgotten by now where replayed records of that time lie.

        A time that is none, or that has not come, says nothing of a record's age.
        """
        # The first and the last record stand for the chunk: times of a partition are nearly in
        # order.
        ends_ms = (record.timestamp()[1] for record in (records[0], records[-1]))
        return not all(self._earliest_ms <= end <= self._latest_ms for end in ends_ms)
