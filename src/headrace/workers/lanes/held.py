"""What was sent for records of a partition that are done, until a transaction has written it."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.kafka.write.record import ProducerRecord


class CallSends(NamedTuple):
    """What one call sent, in the order of its sends.

    Attributes:
        records: to write.
        bytes: of them, about.
    """

    records: list[ProducerRecord]
    bytes: int


NOTHING = CallSends([], 0)


class _Waiting(NamedTuple):
    """What was sent in a call of a lane.

    Attributes:
        place: the highest offset of its lane so far: ascending, whatever the lane's order is.
        offset: of the record that is done; -1: it was sent in a call of the task's own.
        sent: at least one record.
    """

    place: int
    offset: int
    sent: CallSends


@dataclass(frozen=True)
class Cut:
    """What a transaction has of what a partition holds.

    Attributes:
        records: to write.
        bytes: of them, about.
        end: with a rest, the first offset that the transaction does not look at; ``None``: there
            is no rest.
        undone: the offsets before ``end`` whose sends are in the rest, ascending.
        rest: what the partition holds on.
        held: how many calls it was cut from.
    """

    records: tuple[ProducerRecord, ...]
    bytes: int
    end: int | None
    undone: tuple[int, ...]
    rest: tuple[_Waiting, ...]
    held: int

    @property
    def leaves_calls(self) -> bool:
        """Whether the rest has what was sent in calls of the task's own, such as of timers."""
        return any(waiting.offset < 0 for waiting in self.rest)


class HeldSends:
    """Sends of one partition, which may be written in parts.

    A part has the lowest offsets, so that little is done beyond the offset that is committed with
    it. Of each lane it has what was done first.

    Attributes:
        bytes: of all that is held, about.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._waiting: list[_Waiting] = []
        self._places: dict[Hashable, int] = {}

    def add(self, lane: Hashable, offset: int, sent: CallSends) -> None:
        """Keeps what was sent for a record of ``lane``; ``offset`` -1: in a call of its own."""
        self._waiting.append(_Waiting(self.note(lane, offset), offset, sent))
        self.bytes += sent.bytes

    def note(self, lane: Hashable, offset: int) -> int:
        """Notes that a record of ``lane`` is done, also one that sent nothing; returns its place.

        What is sent after it has no place before it: a part with that, and without the record,
        would have it come again behind what came after it.
        """
        place = self._places[lane] = max(offset, self._places.get(lane, -1))
        return place

    def cut(self, max_bytes: int) -> Cut:
        """Returns what may be written next: of at least one call, however large that is."""
        if self.bytes <= max_bytes:
            everything = self._waiting
            return Cut(_records(everything), self.bytes, None, (), (), len(everything))
        # By place alone, and stable: the order of each lane stays.
        waiting = sorted(self._waiting, key=operator.itemgetter(0))
        count = size = 0
        for _, _, sent in waiting:
            if count and size + sent.bytes > max_bytes:
                break
            count += 1
            size += sent.bytes
        written, rest = waiting[:count], tuple(waiting[count:])
        end = rest[0].place + 1 if rest else None
        undone = sorted(offset for _, offset, _ in rest if end is not None and 0 <= offset < end)
        return Cut(_records(written), size, end, tuple(undone), rest, len(waiting))

    def release(self, cut: Cut) -> None:
        """Forgets what is in the last ``cut``: it was written."""
        self._waiting[: cut.held] = cut.rest
        self.bytes -= cut.bytes


def _records(waiting: list[_Waiting]) -> tuple[ProducerRecord, ...]:
    return tuple(record for _, _, sent in waiting for record in sent.records)
