"""Which offsets are reprocessed: those of a time range that the sink has taken already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from headrace.errors import RangeExpiredError
from headrace.events.times import iso_milliseconds, milliseconds_since_1970, time_of
from headrace.kafka.client.clients import ClientConfig
from headrace.kafka.client.offsets import offsets_since
from headrace.kafka.group.groups import first_timestamps
from headrace.kafka.read.cluster import LivePositions
from headrace.model import OffsetRange, TopicPartition
from headrace.pipelines.source.offsets import allocate_batch

PART_OFFSETS = 1_000_000
"""Offsets of one commit at most: the driver keeps an index of the rows of a part in memory."""


@dataclass(frozen=True)
class TimeRange:
    """Times of records, from ``start`` to before ``end``."""

    start: datetime
    end: datetime


@dataclass(frozen=True)
class PlannedRange:
    """Offsets of one partition.

    Attributes:
        partition: ``topic/number``.
        start: the first offset.
        end: the offset after the last one.
        expired: offsets before ``start`` that retention has removed and that may have been in the
            time range; only where that was accepted.
        live: offsets of the time range after ``end``, which the live pipeline has not taken yet.
    """

    partition: str
    start: int
    end: int
    expired: int = 0
    live: int = 0

    @property
    def span(self) -> int:
        """How many offsets it has, at least as many as records."""
        return self.end - self.start

    @property
    def offsets(self) -> OffsetRange:
        """The range as the source reads it."""
        topic, _, number = self.partition.rpartition("/")
        return OffsetRange(TopicPartition(topic, int(number)), self.start, self.end)


def planned_ranges(
    client: ClientConfig,
    topic: str,
    live: LivePositions,
    times: TimeRange,
    taken: Mapping[int, int],
    *,
    accept_loss: bool,
) -> list[PlannedRange]:
    """Returns a range for each partition that has, or may have had, records of ``times``.

    The range is empty where all of them were removed by retention or are left to the live pipeline.

    Args:
        client: settings of the cluster.
        topic: its name.
        live: the topic as it is now.
        times: of the records.
        taken: by partition, the next record that the sink takes.
        accept_loss: leave out what retention has removed.

    Raises:
        RangeExpiredError: if records of ``times`` may have been removed, and that is not accepted.
        BrokerUnreachableError: if the brokers do not respond.
    """
    partitions = {p: TopicPartition(topic, p) for p in sorted(taken) if p in live.latest}
    starts, ends = (_offsets(client, partitions, live, at) for at in (times.start, times.end))
    # The first record that is left lies in the range, or behind it: of those before, which
    # retention has removed, some may have been in the range.
    expired = [p for p in partitions if 0 < live.earliest[p] >= starts[p]]
    if expired and not accept_loss:
        raise _expired(client, topic, live, expired)
    ranges = []
    for p, partition in partitions.items():
        start, end = starts[p], min(ends[p], taken[p])
        removed = live.earliest[p] if p in expired else 0
        live_offsets = max(ends[p] - max(end, start), 0)
        if end > start or removed or live_offsets:
            name = f"{partition.topic}/{p}"
            ranges.append(PlannedRange(name, start, max(start, end), removed, live_offsets))
    return ranges


def cut_into_parts(
    ranges: Sequence[PlannedRange], unread: Sequence[OffsetRange] = ()
) -> list[list[OffsetRange]]:
    """Cuts ranges into parts of at most :data:`PART_OFFSETS`, each with a share of every range.

    Args:
        ranges: one of each partition.
        unread: offsets of which no part has others, too.
    """
    together: dict[tuple[bool, int], list[OffsetRange]] = {}
    for range_ in ranges:
        numbers: Counter[bool] = Counter()
        for piece in _pieces(range_.offsets, unread):
            is_unread = any(piece.within(offsets) for offsets in unread)
            together.setdefault((is_unread, numbers[is_unread]), []).append(piece)
            numbers[is_unread] += 1
    return [part for key in sorted(together) for part in _parts(together[key])]


def _pieces(range_: OffsetRange, unread: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
    """Divides a range where unread offsets begin and end."""
    own = [offsets for offsets in unread if offsets.partition == range_.partition]
    cuts = {at for offsets in own for at in (offsets.start, offsets.end)}
    within = sorted(at for at in cuts if range_.start < at < range_.end)
    for start, end in pairwise([range_.start, *within, range_.end]):
        if end > start:
            yield OffsetRange(range_.partition, start, end)


def _parts(ranges: Sequence[OffsetRange]) -> Iterator[list[OffsetRange]]:
    """Yields parts of ranges of different partitions."""
    partitions = [range_.partition for range_ in ranges]
    starts = {number: range_.start for number, range_ in enumerate(ranges)}
    ends = {number: range_.end for number, range_ in enumerate(ranges)}
    while starts != ends:
        upto = allocate_batch(
            starts,
            ends,
            max_records=PART_OFFSETS,
            max_bytes=1,
            mean_bytes=dict.fromkeys(starts, 0.0),
        )
        yield [
            OffsetRange(partition, starts[n], upto[n])
            for n, partition in enumerate(partitions)
            if upto[n] > starts[n]
        ]
        starts = upto


def _offsets(
    client: ClientConfig,
    partitions: Mapping[int, TopicPartition],
    live: LivePositions,
    at: datetime,
) -> dict[int, int]:
    """The first record of a time or later; the end of the partition where there is none."""
    known = offsets_since(client, partitions.values(), milliseconds_since_1970(at))
    return {p: known.get(partition, live.latest[p]) for p, partition in partitions.items()}


def _expired(
    client: ClientConfig, topic: str, live: LivePositions, expired: Sequence[int]
) -> RangeExpiredError:
    firsts = {TopicPartition(topic, p): live.earliest[p] for p in expired}
    times = first_timestamps(
        client, {at: n for at, n in firsts.items() if n < live.latest[at.partition]}
    )
    latest = max(firsts, key=lambda partition: times.get(partition, 1 << 62))
    text = _text(times[latest]) if latest in times else ""
    # The first record that is left has exactly this time, and one before it may have had it too.
    begin = _text(times[latest] + 1) if latest in times else ""
    return RangeExpiredError(f"{topic}/{latest.partition}", firsts[latest], text, begin)


def _text(milliseconds: int) -> str:
    return iso_milliseconds(time_of(milliseconds * 1000))
