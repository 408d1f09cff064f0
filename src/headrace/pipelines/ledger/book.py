"""What was counted of a pipeline, and of what it has reprocessed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

from headrace.ledger.balance import Remark, WindowBook
from headrace.ledger.sums import Hop
from headrace.ledger.windows import WindowBalance, WindowState
from headrace.pipelines.ledger.breaks import Break
from headrace.pipelines.ledger.counting.letters import LetterRecount
from headrace.pipelines.ledger.reprocessed import ReprocessedEntry


@dataclass(frozen=True)
class ReprocessedTimes:
    """What reprocessing one time range has done.

    Attributes:
        start: the first time of its records.
        end: the time before which its records came.
        parts: in how many commits.
        records: that were read again.
        dead: of them that were rejected.
        added: rows that were added to a table of the lake.
        removed: rows that were removed from it.
    """

    start: datetime
    end: datetime
    parts: int
    records: int
    dead: int
    added: int
    removed: int

    def __str__(self) -> str:
        """How many records, and what that has changed."""
        between = f"{self.start.isoformat()} to {self.end.isoformat()}"
        changed = f"{self.added:,} rows added, {self.removed:,} removed"
        return f"{self.records:,} records that came {between}: {changed}"


@dataclass(frozen=True)
class PipelineBook(WindowBook):
    """The windows of one pipeline, and the offsets that it has not read once.

    Attributes:
        pipeline: its name.
        window_seconds: length of the windows; 0: there are no entries.
        breaks: gaps and overlaps of the offsets that were read.
        windows: those asked for, the oldest first.
        letters: how many dead letters are missing in their topics, with a recount.
        not_recounted: sinks that keep no rows which can be counted, with a recount. Their windows
            are judged by the other hops.
        reprocessed: time ranges that were read again, the oldest first.
        uncounted: what batches have read that is not in the ledger, and why, as sentences.
        unknown: why nothing is known, as a sentence; empty: something is.
    """

    section: ClassVar = "pipelines"
    heading: ClassVar = "{0.pipeline}"
    untimed: ClassVar = "no event time"
    tables: ClassVar = {"in table": "rows", "in side table": "side_rows"}

    pipeline: str
    window_seconds: int
    breaks: tuple[Break, ...]
    windows: tuple[WindowBalance, ...]
    unknown: str = ""
    letters: LetterRecount = field(default_factory=LetterRecount)
    reprocessed: tuple[ReprocessedTimes, ...] = ()
    not_recounted: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()

    def columns(self) -> list[str]:
        """Returns those of the windows; none if nothing is known."""
        return [] if self.unknown else super().columns()

    def extras(self) -> Iterator[Remark]:
        """Yields what is beside the windows: offsets, dead letters, sinks, reprocessed times."""
        for fault in self.breaks:
            yield Remark(WindowState.UNBALANCED, str(fault), fault.hop)
        for reason in self.uncounted:
            yield Remark(WindowState.UNKNOWN, reason, Hop.OFFSETS)
        for difference in self.letters.differences:
            yield Remark(WindowState.UNBALANCED, str(difference))
        if self.letters.unknown:
            yield Remark(WindowState.UNKNOWN, self.letters.unknown)
        for sink in self.not_recounted:
            yield Remark("not recounted", f"{sink} keeps no rows that can be counted")
        for times in self.reprocessed:
            yield Remark("reprocessed", str(times))


def by_times(entries: Iterable[ReprocessedEntry]) -> Iterator[ReprocessedTimes]:
    """Yields what the parts of each reprocessing have done together, in the order of entries."""
    by_range: dict[tuple[datetime, datetime], list[ReprocessedEntry]] = {}
    for entry in entries:
        by_range.setdefault((entry.start, entry.end), []).append(entry)
    for (start, end), parts in by_range.items():
        figures = ((part.records, part.dead, part.added, part.removed) for part in parts)
        yield ReprocessedTimes(start, end, len(parts), *map(sum, zip(*figures, strict=True)))
