"""What a read range held: counts, and the records that could not be processed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.kafka.dead_letters.limiter import BadRuns
from headrace.model import DeadLetter, OffsetRange, TopicPartition
from headrace.pipelines.ledger.counting.waiting import Waiting
from headrace.pipelines.ledger.sums import LedgerLine


@dataclass(frozen=True, slots=True)
class LateCounts:
    """How many events of a range were late.

    Attributes:
        events: all of them, wherever they went.
        written: those that the side table takes.
        dead: those that are dead letters because they are late.
    """

    events: int = 0
    written: int = 0
    dead: int = 0


@dataclass(frozen=True, slots=True)
class JoinCounts:
    """What a batch of a partition of a join did.

    Attributes:
        matched: later events that found their earlier one.
        unmatched: later events that found none.
        conflicting: earlier events whose key was there with other values.
        repeated: earlier events that were there before.
        waiting: later events that still wait.
        oldest_waiting_us: the oldest event time of those; None: none waits.
        state_bytes: size of the files of what is kept.
        rebuilt_files: how many of them the machine's index lacked.
        rebuild_ms: how long it took to give it these.
    """

    matched: int = 0
    unmatched: int = 0
    conflicting: int = 0
    repeated: int = 0
    waiting: int = 0
    oldest_waiting_us: int | None = None
    state_bytes: int = 0
    rebuilt_files: int = 0
    rebuild_ms: int = 0


@dataclass(frozen=True, slots=True)
class RangeReport:
    """One range after it was read.

    Attributes:
        range: the offsets planned.
        position: the next offset to read; the end of the range once it was read whole.
        records: records in it, good and bad; of a topic with envelopes, events, and envelopes that
            can't be divided.
        tombstones: records beside these that are left out because they have no value.
        envelopes: how many envelopes these came in; 0: the topic has none.
        bytes: of their values.
        last_timestamp_ms: Kafka's timestamp of the last record; -1 if there was none.
        event_times: samples of the event times, microseconds since 1970, each with the
            number of events that it stands for; empty: no event has one.
        bad_runs: runs of bad records.
        dead: the dead letters; all of them unless some are ``omitted``.
        replays_skipped: records beside these that were replayed for others.
        omitted: records beyond those in ``dead``, which can't be carried to the driver.
        late: how many events were late.
        side_pieces: of the side table's writer, for its commit.
        ledger: what the ledger counts of it; empty: it counts nothing.
        join: what the join did with the partition; None without one, and for its earlier topic.
        waiting: what the ledger counts of events that wait in it; None where ``join`` is, or it
            counts nothing.
    """

    range: OffsetRange
    position: int
    records: int
    bytes: int
    last_timestamp_ms: int
    event_times: tuple[tuple[int, int], ...]
    bad_runs: BadRuns = field(default_factory=BadRuns)
    dead: tuple[DeadLetter, ...] = ()
    replays_skipped: int = 0
    omitted: int = 0
    late: LateCounts = field(default_factory=LateCounts)
    side_pieces: tuple[str, ...] = ()
    ledger: tuple[LedgerLine, ...] = ()
    join: JoinCounts | None = None
    waiting: Waiting | None = None
    envelopes: int = 0
    tombstones: int = 0

    @property
    def bad(self) -> int:
        """How many bad records it has; those that are only late are not bad."""
        return len(self.dead) + self.omitted - self.late.dead


def missing_ranges(
    planned: Iterable[OffsetRange], reports: Iterable[RangeReport]
) -> list[OffsetRange]:
    """What of the ``planned`` ranges no report covers to its end; empty when they tile it exactly.

    A stretch that two reports cover counts as missing: it is unknown which of them is true.
    """
    by_partition: dict[TopicPartition, list[RangeReport]] = {}
    for report in sorted(reports, key=lambda report: report.range.start):
        by_partition.setdefault(report.range.partition, []).append(report)
    return [
        gap for range_ in planned for gap in _gaps(range_, by_partition.get(range_.partition, []))
    ]


def _gaps(planned: OffsetRange, reports: Sequence[RangeReport]) -> list[OffsetRange]:
    gaps, position = [], planned.start
    for report in reports:
        whole = report.position == report.range.end <= planned.end
        if not whole or report.range.start < position:
            return [planned]
        if report.range.start > position:
            gaps.append(OffsetRange(planned.partition, position, report.range.start))
        position = report.range.end
    if position < planned.end:
        gaps.append(OffsetRange(planned.partition, position, planned.end))
    return gaps
