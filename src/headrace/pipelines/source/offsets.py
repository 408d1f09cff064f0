"""Where a source stands, what a batch may take, and how its ranges are cut. Pure functions.

An offset of the source is one JSON object in Spark's checkpoint::

    {"topic": "impressions", "topic_id": "iI2m…", "partitions": {"0": 120, "1": 98},
     "epochs": {"0": 4, "1": 4}, "planned_ms": 1764000000000, "heartbeat_us": 0,
     "event_us": {"0": 1763999990000000, "1": 1763999980000000},
     "references": {"campaigns": {"topic_id": "x7Qz…", "partitions": {"0": 40}}},
     "caught_up_ms": 1764000000000}

Each position is the next record to read. ``epochs`` are those of the leaders that reported the
positions, which show whether a log was truncated since. ``planned_ms`` is the clock that event
times of the batch are checked against, and ``event_us`` the event clocks by which its events are
late (:mod:`headrace.pipelines.late_data`): they are in the checkpoint, so a replayed batch decides
as it did before. ``references`` are the positions at which the batch looks values up
(:mod:`headrace.pipelines.references`), for the same reason. ``caught_up_ms`` is when a batch last
took all that there was, or the first one was planned: tombstones that are not read yet were in the
topic then, or came later. Where no tombstone deletes, it is 0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from headrace.kafka.read.log_cuts import Seen
from headrace.kafka.table.topic_table import TopicPosition
from headrace.model import OffsetRange, TopicPartition

NOTHING_READ = -1
"""For ``caught_up_ms``: no tombstone that is not read yet can be missed, as no row is there."""


@dataclass(frozen=True)
class SourceOffset:
    """Position in every partition of one topic."""

    topic: str
    topic_id: str
    partitions: Mapping[int, int]
    planned_ms: int
    heartbeat_us: int = 0
    epochs: Mapping[int, int] = field(default_factory=dict)
    event_us: Mapping[int, int] = field(default_factory=dict)
    references: Mapping[str, TopicPosition] = field(default_factory=dict)
    caught_up_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """Returns the offset as Spark keeps it in the checkpoint."""
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "partitions": {str(p): offset for p, offset in sorted(self.partitions.items())},
            "epochs": {str(p): epoch for p, epoch in sorted(self.epochs.items())},
            "planned_ms": self.planned_ms,
            "heartbeat_us": self.heartbeat_us,
            "event_us": {str(p): us for p, us in sorted(self.event_us.items())},
            "references": {name: at.to_json() for name, at in sorted(self.references.items())},
            "caught_up_ms": self.caught_up_ms,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> SourceOffset:
        """Reads what :meth:`to_json` wrote."""
        return cls(
            stored["topic"],
            stored["topic_id"],
            {int(p): int(offset) for p, offset in stored["partitions"].items()},
            int(stored["planned_ms"]),
            int(stored["heartbeat_us"]),
            {int(p): int(epoch) for p, epoch in stored["epochs"].items()},
            {int(p): int(us) for p, us in stored["event_us"].items()},
            {
                name: TopicPosition.from_json(at)
                for name, at in stored.get("references", {}).items()
            },
            int(stored.get("caught_up_ms", 0)),
        )

    def advanced(
        self,
        ends: Mapping[int, int],
        epochs: Mapping[int, int],
        *,
        planned_ms: int,
        event_us: Mapping[int, int] | None = None,
        references: Mapping[str, TopicPosition] | None = None,
        caught_up_ms: int = 0,
    ) -> SourceOffset:
        """Returns the source further on, as leaders of these epochs reported it.

        Event clocks never go back: what the offset has is kept where ``event_us`` knows less.
        """
        newer = event_us or {}
        clocks = {
            p: max(us for us in (self.event_us.get(p), newer.get(p)) if us is not None)
            for p in {*self.event_us, *newer}
        }
        return replace(
            self,
            partitions=dict(ends),
            epochs=dict(epochs),
            planned_ms=planned_ms,
            event_us=clocks,
            references=references or {},
            caught_up_ms=caught_up_ms,
        )

    @property
    def seen(self) -> dict[int, Seen]:
        """Each position with the epoch of the leader that reported it."""
        return {p: Seen(at, self.epochs.get(p, -1)) for p, at in self.partitions.items()}

    def with_heartbeat(self, heartbeat_us: int, *, planned_ms: int) -> SourceOffset:
        """Returns the same position, which says that no event comes before ``heartbeat_us``."""
        return replace(self, heartbeat_us=heartbeat_us, planned_ms=planned_ms)


def allocate_batch(
    start: Mapping[int, int],
    latest: Mapping[int, int],
    *,
    max_records: int,
    max_bytes: float,
    mean_bytes: Mapping[int, float],
    paused: Collection[int] = (),
) -> dict[int, int]:
    """Ends of the next batch: the same share of each partition's backlog, within both limits.

    A partition with a backlog gets at least one record, so that a large neighbour can't starve it.

    Args:
        start: where the batch begins.
        latest: where the partitions end.
        max_records: of the batch.
        max_bytes: of the values of its records.
        mean_bytes: of a record's value, by partition; an estimate.
        paused: partitions that stay where they are.
    """
    backlog = {
        p: max(0, latest[p] - start[p]) if p in latest and p not in paused else 0 for p in start
    }
    records = sum(backlog.values())
    bytes_ = sum(count * mean_bytes[p] for p, count in backlog.items() if count)
    if records <= max_records and bytes_ <= max_bytes:
        return {p: start[p] + backlog[p] for p in start}
    # One share for all: they catch up at the same time, so event time advances evenly in all of
    # them. Rounding down keeps to both limits, but for the one record of each partition.
    share = min(max_records / records, max_bytes / bytes_ if bytes_ else 1.0)
    return {p: start[p] + (max(1, int(backlog[p] * share)) if backlog[p] else 0) for p in start}


def ranges_between(start: SourceOffset, end: SourceOffset) -> list[OffsetRange]:
    """Non-empty ranges from ``start`` to ``end``.

    A partition that is new in ``end`` has no range yet: where ``end`` puts it is where it begins.
    """
    return [
        OffsetRange(TopicPartition(end.topic, p), start.partitions[p], upto)
        for p, upto in sorted(end.partitions.items())
        if upto > start.partitions.get(p, upto)
    ]


def split(ranges: Sequence[OffsetRange], min_tasks: int) -> list[OffsetRange]:
    """Cuts ranges in proportion to their span until there are about ``min_tasks``.

    Deterministic, so that a replayed batch is cut as it was. Order holds inside each piece.
    """
    total = sum(range_.span for range_ in ranges)
    if len(ranges) >= min_tasks or not total:
        return list(ranges)
    pieces: list[OffsetRange] = []
    for range_ in ranges:
        count = max(1, min(range_.span, round(min_tasks * range_.span / total)))
        edges = [range_.start + range_.span * i // count for i in range(count + 1)]
        pieces += [OffsetRange(range_.partition, low, high) for low, high in pairwise(edges)]
    return pieces
