"""An entry of the ledger: what one batch, or several that follow one another, did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeVar

import msgspec

from headrace.pipelines.ledger.counting.waiting import WaitingByPartition, all_lines, negative
from headrace.pipelines.ledger.sums import LedgerLine, added, lines_of

_Held = TypeVar("_Held")


@dataclass(frozen=True, slots=True, order=True)
class EntryRange:
    """Offsets of one partition that batches have read, from ``start`` to before ``end``.

    Attributes:
        topic: its name.
        topic_id: Kafka's id of it, another one when it is recreated.
        partition: its number.
        start: the first offset.
        end: the offset after the last one.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int

    @property
    def partition_id(self) -> tuple[str, str, int]:
        """The partition that it is of."""
        return self.topic, self.topic_id, self.partition


@dataclass(frozen=True)
class LedgerEntry:
    """What batches of one checkpoint did.

    Attributes:
        checkpoint: its number.
        first: Spark's id of the first batch.
        last: Spark's id of the last batch.
        level: how often entries were merged into it; 0: it is of one batch.
        window_seconds: length of the windows in ``lines``.
        ranges: the offsets read; what follows one another is one range.
        lines: the sums.
        clocks: by topic and partition, the event clock after the last batch, in microseconds
            since 1970.
        positions: by topic and partition, the next record to read after the last batch; also of
            partitions that had no records.
        unknown_before: windows that begin before it, in seconds since 1970, may hold rows from
            before the ledger began; 0: none do.
        uncounted: why rows after steps are not counted, as a sentence; empty: they are.
        waited: what waited in a join before the first batch of each partition.
        waiting: what waits after the last one.
        counted_by: by which fields events were counted: pairs of that of the event time and that
            of the id.
        side_tables: where late and unmatched events went; empty text: to dead letters.
        changed_elsewhere: lines of what batches without an entry have changed of what waits.
        lacks_batches: whether such batches have read records between those that it is of.
        changed: columns by which rows of the table would be counted again, but for steps that have
            changed or dropped them.
        batches: how many batches have an entry in it. Those that read nothing have none.
        began: where the checkpoint began, as empty ranges; none: an older headrace wrote it. A
            partition that came later began at its first record.
        horizon: no event of it, or of a batch before, is later, in seconds since 1970; 0: an older
            headrace wrote it.
        held: what the table recorded of checkpoints before this one, by application id, as of the
            version that a RESTORE had restored when this one began; None: there was none.
    """

    checkpoint: int
    first: int
    last: int
    window_seconds: int
    ranges: tuple[EntryRange, ...]
    lines: tuple[LedgerLine, ...]
    level: int = 0
    clocks: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    positions: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    unknown_before: int = 0
    uncounted: str = ""
    changed: tuple[str, ...] = ()
    waited: WaitingByPartition = field(default_factory=dict)
    waiting: WaitingByPartition = field(default_factory=dict)
    changed_elsewhere: tuple[LedgerLine, ...] = ()
    lacks_batches: bool = False
    counted_by: tuple[tuple[str | None, str | None], ...] = ()
    side_tables: tuple[str, ...] = ()
    batches: int = 1
    began: tuple[EntryRange, ...] = ()
    horizon: int = 0
    held: Mapping[str, int] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether each of its batches has an entry in it."""
        return self.batches == self.last - self.first + 1

    @property
    def span(self) -> Span:
        """The batches that it is of."""
        return Span(self.checkpoint, self.level, self.first, self.last)

    def to_bytes(self) -> bytes:
        """Returns the content of its file."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> LedgerEntry:
        """Reads what :meth:`to_bytes` wrote. Raises msgspec.DecodeError."""
        return _ENTRY.decode(content)

    def lacks_batches_after(self, earlier: LedgerEntry) -> bool:
        """Whether batches without an entry have read records since an earlier entry."""
        if self.checkpoint != earlier.checkpoint or self.first == earlier.last + 1:
            return False
        first = {(r.topic, r.partition): r.start for r in sorted(self.ranges, reverse=True)}
        return any(
            earlier.positions.get(topic, {}).get(number, end) != first.get((topic, number), end)
            for topic, ends in self.positions.items()
            for number, end in ends.items()
        )

    def __add__(self, other: LedgerEntry) -> LedgerEntry:
        """Returns the entry of both; the result does not depend on their order."""
        later, earlier = sorted((self, other), key=_end, reverse=True)
        length = max(self.window_seconds, other.window_seconds)
        earlier, later = earlier.with_windows(length), later.with_windows(length)
        lines = (*earlier.lines, *later.lines)
        is_gap = later.lacks_batches_after(earlier)
        waited, waiting, changed = _waits(earlier, later, is_gap=is_gap)
        return LedgerEntry(
            checkpoint=later.checkpoint,
            first=min(self.first, other.first),
            last=later.last,
            window_seconds=length,
            ranges=joined((*self.ranges, *other.ranges)),
            lines=tuple(sorted(lines_of(added(lines)), key=_order)),
            level=max(self.level, other.level),
            clocks=_later(earlier.clocks, later.clocks),
            positions=_later(earlier.positions, later.positions),
            unknown_before=max(self.unknown_before, other.unknown_before),
            uncounted=later.uncounted or earlier.uncounted,
            changed=tuple(sorted({*self.changed, *other.changed})),
            waited=waited,
            waiting=waiting,
            changed_elsewhere=changed,
            lacks_batches=is_gap or earlier.lacks_batches or later.lacks_batches,
            counted_by=tuple(dict.fromkeys((*earlier.counted_by, *later.counted_by))),
            side_tables=tuple(dict.fromkeys((*earlier.side_tables, *later.side_tables))),
            batches=self.batches + other.batches,
            began=earlier.began or later.began,
            horizon=max(self.horizon, other.horizon),
            held=later.held,
        )

    def with_windows(self, seconds: int) -> LedgerEntry:
        """Returns the entry with windows of ``seconds``, a multiple of those that it has."""
        if seconds == self.window_seconds:
            return self
        return replace(
            self,
            window_seconds=seconds,
            lines=_with_windows(self.lines, seconds),
            waited=_waiting_with_windows(self.waited, seconds),
            waiting=_waiting_with_windows(self.waiting, seconds),
            changed_elsewhere=_with_windows(self.changed_elsewhere, seconds),
        )


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The batches of an entry, as the name of its file says."""

    checkpoint: int
    level: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """The name of the file; :func:`span_of` reads it."""
        return f"{self.checkpoint}-{self.level}-{self.first}-{self.last}.json"

    @property
    def parts_name(self) -> str:
        """The name of the file with the entries that were merged into it."""
        return self.name.replace(".json", ".parts.json")

    def replaces(self, other: Span) -> bool:
        """Whether ``other`` was merged into it."""
        # A crash may leave a merged entry beside its parts: the one of the higher level counts.
        is_higher = self.checkpoint == other.checkpoint and self.level > other.level
        return is_higher and self.first <= other.first and other.last <= self.last


# Made at import: msgspec crashes where several threads are the first to decode a class.
_ENTRY = msgspec.json.Decoder(LedgerEntry, strict=False)
_ENTRIES = msgspec.json.Decoder(tuple[LedgerEntry, ...], strict=False)


def span_of(name: str) -> Span | None:
    """Returns the span of a file by its name; None: it is no entry."""
    parts = name.removesuffix(".json").split("-")
    is_entry = name.endswith(".json") and len(parts) == 4 and all(map(str.isdigit, parts))  # noqa: PLR2004
    return Span(*map(int, parts)) if is_entry else None


def parts_to_bytes(entries: Iterable[LedgerEntry]) -> bytes:
    """Returns the content of the file with the entries that were merged into one."""
    return msgspec.json.encode(tuple(entries))


def parts_from_bytes(content: bytes) -> tuple[LedgerEntry, ...]:
    """Reads what :func:`parts_to_bytes` wrote. Raises msgspec.DecodeError."""
    return _ENTRIES.decode(content)


def merged(entries: Iterable[LedgerEntry]) -> LedgerEntry:
    """Returns the entry of several, of which there is one at least."""
    return reduce(LedgerEntry.__add__, sorted(entries, key=_end))


def joined(ranges: Iterable[EntryRange]) -> tuple[EntryRange, ...]:
    """Joins ranges that follow one another; gaps stay, and what overlaps is kept as it is."""
    result: list[EntryRange] = []
    # Overlaps stay apart, so that a range that was read twice is seen.
    for range_ in sorted(ranges):
        if (
            result
            and result[-1].partition_id == range_.partition_id
            and result[-1].end == range_.start
        ):
            result[-1] = replace(result[-1], end=range_.end)
        else:
            result.append(range_)
    return tuple(result)


def _end(entry: LedgerEntry) -> tuple[int, int]:
    return entry.checkpoint, entry.last


def _order(line: LedgerLine) -> tuple[str, str, int, str, int]:
    key = line.key
    window = -1 if key.window is None else key.window
    return key.hop, key.fate, window, key.topic, key.partition


def _with_windows(lines: Iterable[LedgerLine], seconds: int) -> tuple[LedgerLine, ...]:
    coarser = []
    for line in lines:
        window = line.key.window
        start = None if window is None else window // seconds * seconds
        coarser.append(replace(line, key=replace(line.key, window=start)))
    return lines_of(added(coarser))


def _waiting_with_windows(waiting: WaitingByPartition, seconds: int) -> WaitingByPartition:
    return {
        topic: {partition: _with_windows(lines, seconds) for partition, lines in held.items()}
        for topic, held in waiting.items()
    }


def _waits(
    earlier: LedgerEntry, later: LedgerEntry, *, is_gap: bool
) -> tuple[WaitingByPartition, WaitingByPartition, tuple[LedgerLine, ...]]:
    """Returns ``waited``, ``waiting`` and ``changed_elsewhere`` of two entries.

    A partition is in ``waited`` where no batches are lacking before its first batch, and in
    ``waiting`` where none are after its last one. At others, what waits is taken as changed.

    Args:
        earlier: batches before those of ``later``.
        later: batches after those of ``earlier``.
        is_gap: whether batches are lacking between them.
    """
    known: WaitingByPartition = {} if is_gap else earlier.waiting
    unseen = _less(earlier.waiting, {} if is_gap else later.waited)
    lost = unseen if is_gap or later.lacks_batches else {}
    new, has_gap = _less(later.waited, known), is_gap or earlier.lacks_batches
    changed = (
        *earlier.changed_elsewhere,
        *later.changed_elsewhere,
        *all_lines(new if has_gap else {}),
        *negative(all_lines(lost)),
    )
    return (
        earlier.waited if has_gap else _later(new, earlier.waited),
        _later(_less(unseen, lost), later.waiting),
        lines_of(added(changed)),
    )


def _less(held: WaitingByPartition, other: WaitingByPartition) -> WaitingByPartition:
    """Returns the partitions that another one does not have."""
    return {
        topic: {p: lines for p, lines in of_topic.items() if p not in other.get(topic, {})}
        for topic, of_topic in held.items()
    }


def _later(
    earlier: Mapping[str, Mapping[int, _Held]], later: Mapping[str, Mapping[int, _Held]]
) -> Mapping[str, Mapping[int, _Held]]:
    """Returns what is known of each partition later, or else earlier."""
    topics = {*earlier, *later}
    return {topic: {**earlier.get(topic, {}), **later.get(topic, {})} for topic in sorted(topics)}
