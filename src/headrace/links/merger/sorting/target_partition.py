"""One partition of the target with its inputs: which records are written next, and which are late.

It reads and writes nothing itself. Its decisions depend on its input alone, so that an instance
that continues from committed positions decides as the one before would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.kafka.read.log_cuts import Seen
from headrace.links.merger.plan import ClockSource
from headrace.links.merger.positions.position import InputPosition, WrittenTo
from headrace.links.merger.sorting.clock import InputClock
from headrace.links.merger.sorting.order import OrderKey, Pending, SortedOutput
from headrace.model import TopicPartition

LATE, AHEAD = "late", "ahead"
"""Reasons why a record is not put in order."""

MAX_AHEAD_MS = 3_600_000
"""A record that is further ahead of the clock is not waited for."""


class Written(NamedTuple):
    """A record to write.

    Attributes:
        record: what was read.
        reason: why it is not in order; empty: it is, and goes to the target.
    """

    record: Pending
    reason: str = ""


@dataclass(slots=True)
class SourcePartition:
    """A partition of a source.

    Attributes:
        source: the partition.
        clock_source: what moves its time where it sends nothing.
        start: the position that it started from.
        clock: how far its time is.
        next: the next offset to read.
        read_to: the offset after the last record.
        epoch: of the leader that gave that record; -1: not known.
        ahead: records that are too far ahead of the clock, until all before them are written.
        bytes: of the values that wait.
        is_paused: whether it is ahead of the others, and read no further.
        committed: what the last transaction committed.
        end_to_reach: a time, and where it ended then; ``None``: none is awaited.
    """

    source: TopicPartition
    clock_source: ClockSource
    start: InputPosition
    clock: InputClock
    next: int
    read_to: int
    epoch: int
    ahead: list[Pending] = field(default_factory=list)
    bytes: int = 0
    is_paused: bool = False
    committed: InputPosition | None = None
    end_to_reach: tuple[int, int] | None = None

    @classmethod
    def at(
        cls,
        source: TopicPartition,
        clock_source: ClockSource,
        start: InputPosition,
        clock: InputClock,
    ) -> SourcePartition:
        """Returns an input that continues from its position."""
        return cls(source, clock_source, start, clock, start.offset, start.read_to, start.epoch)

    @property
    def seen(self) -> Seen:
        """The next offset to read, and the epoch of the record before it, where that is known."""
        if self.next < self.read_to:
            return Seen(self.next)
        return Seen(self.read_to, self.epoch)

    @property
    def is_read_again(self) -> bool:
        """Whether what waited at the start has been read again; until then nothing is known."""
        return self.next >= self.start.read_to

    def watermark(self, now_ms: int) -> OrderKey:
        """Returns the time before which nothing more will come, with its place."""
        place = self.clock.place
        return self.clock.watermark(now_ms) if self.is_read_again else OrderKey(-1, place)

    def note_blocking(self, idle_seconds: float, now: float) -> bool:
        """Notes that records wait for it; returns whether it has just become idle."""
        return self.is_read_again and self.clock.note_blocking(idle_seconds, now)

    def was_written(self, record: Pending) -> bool:
        """Whether the transaction that committed the start, or one before it, had a record."""
        return record[2] < self.start.read_to and self.start.written.holds(record)


class TargetPartition:
    """Decides for one partition of the target.

    Args:
        target: the partition.
        inputs: in the order of ties.
    """

    def __init__(self, target: TopicPartition, inputs: Sequence[SourcePartition]) -> None:
        self.target, self.inputs = target, inputs
        self._sorted = SortedOutput(
            len(inputs), _reached([input_.start.written for input_ in inputs])
        )

    @property
    def reached(self) -> OrderKey:
        """How far it is."""
        return self._sorted.reached

    def put(self, place: int, records: Sequence[Pending], now_ms: int) -> list[Written]:
        """Takes records of an input, in the order of its offsets; returns those to write now.

        These are late, or of the time up to which the input was written at the start. Records that
        wait are after that time: this is how a later start distinguishes them from written ones.

        Args:
            place: of the input.
            records: that follow those it was given before.
            now_ms: the wall clock, in milliseconds since 1970.
        """
        input_, reached = self.inputs[place], self._sorted.reached
        at_once: list[Written] = []
        in_order: list[Pending] = []
        for record in records:
            if input_.was_written(record):
                continue
            if record[:2] < reached:
                at_once.append(Written(record, LATE))
                continue
            if input_.start.written.holds(record):
                at_once.append(Written(record))
                continue
            (input_.ahead if record[0] > now_ms + MAX_AHEAD_MS else in_order).append(record)
            input_.bytes += value_bytes(record)
        if in_order:
            self._sorted.put(place, in_order)
        input_.next = records[-1][2] + 1
        input_.read_to = max(input_.read_to, input_.next)
        input_.clock.note_records(newest(records, now_ms + input_.clock.allowed_lateness_ms))
        return at_once

    def take(self, now_ms: int, limit: int) -> list[Written]:
        """Returns the first records whose turn has come, in order; then those too far ahead.

        Args:
            now_ms: the wall clock: no record is written before its time.
            limit: about how many. What is left is returned by further calls.
        """
        for input_ in self.inputs:  # the time of some has come since they were read
            newest_ms = self._sorted.newest(input_.clock.place, now_ms)
            if newest_ms > input_.clock.time_ms:
                input_.clock.note_records(newest_ms)
        watermarks = (input_.watermark(now_ms) for input_ in self._awaited)
        upto = min(watermarks, default=OrderKey(now_ms, len(self.inputs)))
        written = [Written(record) for record in self._sorted.take(upto, limit)]
        for input_ in self.inputs:
            if input_.ahead:
                written += [Written(record, AHEAD) for record in self._take_ahead(input_)]
        for record, _ in written:
            self.inputs[record[1]].bytes -= value_bytes(record)
        return written

    @property
    def _awaited(self) -> list[SourcePartition]:
        return [input_ for input_ in self.inputs if not input_.clock.is_idle]

    @property
    def idle(self) -> list[SourcePartition]:
        """The inputs that are not waited for."""
        return [input_ for input_ in self.inputs if input_.clock.is_idle]

    @property
    def first(self) -> OrderKey | None:
        """The place of the first record that waits; ``None``: none does."""
        return self._sorted.first

    def blocking(self, now_ms: int) -> list[SourcePartition]:
        """Returns the inputs that the first waiting record waits for."""
        first = self._sorted.first
        if first is None or first.time_ms > now_ms:
            return []
        return [input_ for input_ in self._awaited if input_.watermark(now_ms) < first]

    def waiting(self, input_: SourcePartition) -> int:
        """Returns how many records of an input wait."""
        return self._sorted.waiting(input_.clock.place) + len(input_.ahead)

    def future(self, input_: SourcePartition, now_ms: int) -> list[Pending]:
        """Returns an input's records that wait for their time, by the clock."""
        return self._sorted.after(input_.clock.place, now_ms)

    def note_end(self, input_: SourcePartition, time_ms: int, end: int, now_ms: int) -> None:
        """Notes where an input ended at a time, up to which its site had sent all before that.

        One that sends records ahead of the clock may never be read to its end when it is asked
        for: it is as far as the time at which it ended where it is read to now.
        """
        waiting = self._sorted.waiting(input_.clock.place)
        if input_.next >= end:
            input_.clock.note_complete(time_ms)
            input_.end_to_reach = None
        elif not waiting or len(self.future(input_, now_ms)) < waiting:
            input_.end_to_reach = None  # its own records move its time
        elif input_.end_to_reach is None:
            input_.end_to_reach = (time_ms, end)
        elif input_.next >= input_.end_to_reach[1]:
            input_.clock.note_complete(input_.end_to_reach[0])
            input_.end_to_reach = (time_ms, end)

    def is_ahead(self, input_: SourcePartition, now_ms: int) -> bool:
        """Whether another input holds up an input's records."""
        watermark = input_.watermark(now_ms)
        return any(other.watermark(now_ms) < watermark for other in self._awaited)

    def position(self, input_: SourcePartition) -> InputPosition:
        """Returns the position to commit for an input."""
        reached = self._sorted.reached
        written = WrittenTo(reached.time_ms, int(input_.clock.place <= reached.place))
        first = self._sorted.first_offset(input_.clock.place)
        waiting = [record[2] for record in input_.ahead[:1]]
        return InputPosition(
            min(waiting if first is None else [first, *waiting], default=input_.next),
            input_.read_to,
            input_.epoch,
            input_.clock.time_ms,
            # As at the start: the order of the topics may be another one since.
            max(written, input_.start.written),
            input_.start.topics,
        )

    def _take_ahead(self, input_: SourcePartition) -> list[Pending]:
        """Returns those that the committed offset passes, and those that the output has passed.

        The others would be read again after a crash, and may not be ahead of the clock by then.
        """
        first = self._sorted.first_offset(input_.clock.place)
        reached = self._sorted.reached
        taken: list[Pending] = []
        kept: list[Pending] = []
        for record in input_.ahead:
            is_first = first is None or record[2] < first
            (taken if is_first or record[:2] <= reached else kept).append(record)
        input_.ahead = kept
        return taken


def _reached(written: Sequence[WrittenTo]) -> OrderKey:
    """Returns how far an output is, by what was written of its inputs in their order.

    Of the last time, inputs that were added, or come in another order, may have more to be written.
    """
    last_ms = max(written_to.time_ms for written_to in written)
    is_whole = [written_to == WrittenTo(last_ms, 1) for written_to in written]
    return OrderKey(last_ms, [*is_whole, False].index(False) - 1)


def value_bytes(record: Pending) -> int:
    """Returns the size of a record's value."""
    return len(record[3].value() or b"")


def newest(records: Iterable[Pending], latest_ms: int) -> int:
    """Returns the newest time of records that is not after ``latest_ms``; -1: there is none."""
    return max((time_ms for time_ms, *_ in records if time_ms <= latest_ms), default=-1)
