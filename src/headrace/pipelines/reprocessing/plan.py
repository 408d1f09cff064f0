"""What a reprocessing will do, and how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from headrace.model import OffsetRange
from headrace.pipelines.reprocessing.ranges import PlannedRange, TimeRange, cut_into_parts


@dataclass(frozen=True)
class ReprocessPlan:
    """What will be reprocessed.

    Attributes:
        pipeline: its name.
        times: of the records.
        topic_id: id of the topic, in whose offsets ``ranges`` are.
        checkpoint: number of the checkpoint whose positions bound the ranges; None: the sink
            records none.
        ranges: of each partition that has, or may have had, records of these times; some may be
            empty.
        tasks: about how many read at the same time.
        unread: offsets that neither a batch nor a reprocessing has read, as far as the ledger
            knows: they are in parts of their own.
    """

    pipeline: str
    times: TimeRange
    topic_id: str
    checkpoint: int | None
    ranges: tuple[PlannedRange, ...]
    tasks: int
    unread: tuple[OffsetRange, ...] = ()

    @property
    def offsets(self) -> int:
        """How many offsets there are, at least as many as records."""
        return sum(range_.span for range_ in self.ranges)

    @property
    def parts(self) -> int:
        """How many commits they are written in."""
        return len(cut_into_parts(self.ranges, self.unread))

    def to_json(self) -> dict[str, object]:
        """Returns the members, and how many offsets and parts there are."""
        return asdict(self) | {"offsets": self.offsets, "parts": self.parts}


@dataclass(frozen=True)
class ReprocessProgress:
    """How far a reprocessing is.

    Attributes:
        parts: that are done.
        offsets: that are done.
        records: that were read.
        rows: that they gave.
        dead_letters: records and rows that were rejected, also those that have a dead letter.
        rows_added: to a table of the lake.
        rows_removed: from a table of the lake.
        rows_kept: of the table, as they were right.
        tasks: that have read the largest part.
    """

    event: str = field(default="progress", init=False)
    parts: int = 0
    offsets: int = 0
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    rows_added: int = 0
    rows_removed: int = 0
    rows_kept: int = 0
    tasks: int = 0


Observe = Callable[[ReprocessProgress], None]
"""Called after each part, on the thread of the reprocessing."""
