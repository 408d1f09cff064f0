"""Reads a segment from start to end, in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headrace.ingest.spool.frames import Damage, Frame, scan
from headrace.ingest.spool.record import SpoolRecord, decode
from headrace.ingest.spool.segment import HEADER_BYTES, Segment, created_ms, read
from headrace.ingest.spool.store import ReadableSegment

WINDOW_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """A record that Kafka will never take."""

    counter: int
    record: SpoolRecord
    reason: str


@dataclass
class SpoolBatch:
    """Records to send together.

    Attributes:
        records: those that wait, in order.
        counters: their counters.
        end: counter after the last of all.
        taken: how many of them Kafka has.
        rejected: those that Kafka will never take.
        path: the segment that they are in.
    """

    path: Path = Path()
    records: list[SpoolRecord] = field(default_factory=list)
    counters: list[int] = field(default_factory=list)
    end: int = 0
    taken: int = 0
    rejected: list[RejectedRecord] = field(default_factory=list)

    def add(self, counter: int, record: SpoolRecord) -> None:
        """Adds a record at the end."""
        self.records.append(record)
        self.counters.append(counter)
        self.end = counter + 1

    def settle(self, rejected: Mapping[int, str], waiting: Sequence[int]) -> None:
        """Takes the result of sending, by places in ``records``, which keeps those that wait."""
        self.taken += len(self.records) - len(rejected) - len(waiting)
        self.rejected += [
            RejectedRecord(self.counters[place], self.records[place], reason)
            for place, reason in rejected.items()
        ]
        self.records = [self.records[place] for place in waiting]
        self.counters = [self.counters[place] for place in waiting]


class SegmentReader:
    """Goes through one segment once; ``damages`` are the ranges that hold no record.

    Raises:
        UnknownVersionError: if another version of headrace wrote it.
    """

    def __init__(self, path: Path, segment: Segment) -> None:
        self.path, self.segment = path, segment
        self.damages: list[Damage] = []
        self._offset = HEADER_BYTES
        begin = read(path, 0, HEADER_BYTES)
        if len(begin) == HEADER_BYTES and created_ms(begin) is None:
            self.damages.append(Damage(0, HEADER_BYTES))

    def batch(self, readable: ReadableSegment, position: int, most_records: int) -> SpoolBatch:
        """Returns the next records from counter ``position``; none once all of them were read."""
        batch, window = SpoolBatch(self.path), WINDOW_BYTES
        end = min(readable.end, self.path.stat().st_size)
        counters = range(position, readable.limit)
        while not batch.records and self._offset < end:
            before = self._offset
            content = read(self.path, before, min(window, end - before))
            for item in scan(content, self.segment.marker):
                cut = item.end == len(content) and before + item.end < end
                if len(batch.records) == most_records or (cut and isinstance(item, Damage)):
                    break
                self._take(item, before, counters, batch)
            window *= 2  # matters only where there was nothing: a frame is longer than the window
        return batch

    def _take(self, item: Frame | Damage, base: int, counters: range, batch: SpoolBatch) -> None:
        item_range = Damage(base + item.start, base + item.end)
        if isinstance(item, Damage):
            self.damages.append(item_range)
        elif item.counter in counters:
            try:
                batch.add(item.counter, decode(item.payload))
            except msgspec.MsgspecError:
                self.damages.append(item_range)
        self._offset = item_range.end
