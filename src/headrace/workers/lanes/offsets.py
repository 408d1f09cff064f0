"""Which records of a partition are done, which offset can be committed, and how old it is."""

from __future__ import annotations

import base64
import binascii
import bisect
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.errors import WrongOffsetError

METADATA_BYTES = 4096  # offset.metadata.max.bytes of a broker, by default
_VERSION = "headrace1:"
_SEVEN_BITS = 0x7F
_MORE = 0x80
_GRAIN_MS = 1000  # the lag is shown in seconds
_MAX_SAMPLES = 10_000  # bounds memory while the first record is stuck

Range = tuple[int, int]
"""Offsets from the first (included) to the second (excluded)."""


class Ranges:
    """A set of offsets, kept as ranges that neither overlap nor touch."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def __iter__(self) -> Iterator[Range]:
        return zip(self._starts, self._ends, strict=True)

    def __contains__(self, offset: int) -> bool:
        at = bisect.bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int) -> Range:
        """Adds the offsets from ``start`` to before ``end``; returns the range they are now in."""
        # The ranges that overlap or touch the new one become one with it.
        first = bisect.bisect_left(self._ends, start)
        last = bisect.bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
        return start, end

    def count(self, start: int, end: int) -> int:
        """Returns how many offsets from ``start`` to before ``end`` are in it."""
        first = bisect.bisect_right(self._ends, start)
        last = bisect.bisect_left(self._starts, end)
        pairs = zip(self._starts[first:last], self._ends[first:last], strict=True)
        return sum(min(end, until) - max(start, since) for since, until in pairs)

    def forget(self, before: int) -> None:
        """Drops the ranges that end before ``before``, and do not touch it."""
        count = bisect.bisect_left(self._ends, before)
        del self._starts[:count], self._ends[:count]

    def pop_from(self, offset: int, limit: int) -> int:
        """Removes a range that begins at or before ``offset``, as far as it is before ``limit``.

        Returns:
            the offset after what was removed.
        """
        if not self._starts or self._starts[0] > offset:
            return offset
        if self._ends[0] > limit:
            self._starts[0] = max(offset, limit)
            return self._starts[0]
        del self._starts[0]
        return max(offset, self._ends.pop(0))


class PartitionOffsets:
    """The consumed and the done offsets of one assigned partition.

    An offset that was skipped over while consuming (compaction, a transaction's marker) counts as
    done: it will never come. So gaps delay no commit, and memory grows with the number of records
    that are done out of order, not with that of all records.

    No offset is committed beyond what was read: of records that were done before a restart, only
    those that come again say how far their timestamps have brought the stream time of a state.

    Args:
        position: the committed offset: the next record to read.
        done: offsets beyond it that were done before, from the commit's metadata.
        read_to: the next record to read, if some were read.
    """

    def __init__(self, position: int, done: Iterable[Range] = (), read_to: int = 0) -> None:
        self._done, self._next = Ranges(done), max(position, read_to)
        self._committable = self._done.pop_from(position, self._next)

    @property
    def position(self) -> int:
        """The next record to read."""
        return self._next

    @property
    def committable(self) -> int:
        """The offset that may be committed: every record before it is read, and done."""
        return self._committable

    def consume(self, offset: int) -> bool:
        """Notes that a record was read; returns whether it is new: neither done nor read before.

        librdkafka may give a record twice that it gave while a rebalance paused its partition.
        """
        if offset < self._next:
            return False
        start, self._next = self._next, offset + 1
        if offset > start:
            self._add(start, offset)
        is_new = not self._is_done(offset)
        if not is_new:
            self._advance()
        return is_new

    def reach(self, offset: int) -> bool:
        """Notes that no record is before ``offset``; returns whether that moves the position."""
        if offset <= self._next:
            return False
        start, self._next = self._next, offset
        self._add(start, offset)
        return True

    def finish(self, offset: int) -> None:
        """A record is done.

        Raises:
            WrongOffsetError: if it was never consumed, or is done already.
        """
        if offset >= self._next:
            raise WrongOffsetError(f"offset {offset} was not consumed")
        if self._is_done(offset):
            raise WrongOffsetError(f"offset {offset} was done already")
        self._add(offset, offset + 1)

    @property
    def done_beyond(self) -> int:
        """The number of records that are done beyond the committable offset."""
        return sum(end - start for start, end in self._done)

    def metadata(self, topic_id: str, max_bytes: int = METADATA_BYTES) -> str:
        """Returns what is done beyond the committable offset, for :func:`read_metadata`.

        Ranges that do not fit are left out, the highest first: a restart repeats their records.
        Empty when not even the topic's id fits.
        """
        head = f"{_VERSION}{topic_id}:"
        if len(head) > max_bytes:
            return ""
        return head + _written(self._committable, self._done, max_bytes - len(head))

    def is_whole(self, metadata: str) -> bool:
        """Whether metadata of this offset says all that is done beyond it."""
        return not len(self._done) or (
            read_metadata(self._committable, metadata).done == tuple(self._done)
        )

    def cut(self, end: int, undone: Sequence[int], written: Iterable[Range]) -> PartitionOffsets:
        """Returns which records before ``end`` are done, but for ``undone``, as if no more were.

        Args:
            end: the first offset that is not looked at.
            undone: ascending offsets before it.
            written: what is done wherever it is.
        """
        committable = min((self._committable, end, *undone[:1]))
        done = [(committable, self._committable), *self._done]
        before = ((start, min(until, end)) for start, until in done)
        ranges = [part for start, until in before for part in _without(start, until, undone)]
        ranges += [
            (max(start, committable), until) for start, until in written if until > committable
        ]
        return PartitionOffsets(committable, ranges, self._next)

    def _is_done(self, offset: int) -> bool:
        return offset < self._committable or offset in self._done

    def _add(self, start: int, end: int) -> None:
        self._done.add(max(start, self._committable), end)
        self._advance()

    def _advance(self) -> None:
        self._committable = self._done.pop_from(self._committable, self._next)


def _without(start: int, end: int, undone: Sequence[int]) -> Iterator[Range]:
    """Yields the offsets from ``start`` to before ``end`` that are not in ``undone``."""
    for offset in undone[bisect.bisect_left(undone, start) : bisect.bisect_left(undone, end)]:
        if start < offset:
            yield start, offset
        start = offset + 1
    if start < end:
        yield start, end


class TimestampIndex:
    """Approximate timestamps by offset, to a second.

    Holds one entry a second of timestamps, from the first record that is not done on, and every
    second one of them whenever they are too many.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()

    def read(self, offset: int, timestamp_ms: int) -> None:
        """A record was read, after those before it."""
        if not self._samples or abs(timestamp_ms - self._samples[-1][1]) >= _GRAIN_MS:
            self._samples.append((offset, timestamp_ms))
            if len(self._samples) > _MAX_SAMPLES:
                # Every second sample is dropped: the lag of a stuck record needs no more precision.
                self._samples = deque(list(self._samples)[::2])

    def forget(self, offset: int) -> None:
        """Drops what is not needed for ``offset`` and those after it."""
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= offset:
            samples.popleft()

    def at(self, offset: int) -> int:
        """Returns the timestamp at ``offset``, or of the last record before it; -1: none was read.

        What is before ``offset`` is forgotten.
        """
        self.forget(offset)
        return self._samples[0][1] if self._samples else -1


class CommitMetadata(NamedTuple):
    """The metadata of a committed offset.

    Attributes:
        topic_id: of the topic then; empty where others committed.
        done: offsets beyond the committed one that were done.
    """

    topic_id: str = ""
    done: tuple[Range, ...] = ()


def read_metadata(position: int, metadata: str) -> CommitMetadata:
    """Returns the metadata of the committed offset ``position``; empty where others wrote it."""
    if not metadata.startswith(_VERSION):
        return CommitMetadata()
    topic_id, _, written = metadata[len(_VERSION) :].partition(":")
    try:
        numbers = list(_numbers(base64.b64decode(written, validate=True)))
    except (binascii.Error, ValueError):
        return CommitMetadata(topic_id)
    ranges, at = [], position
    for gap, length in zip(numbers[::2], numbers[1::2], strict=False):
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    return CommitMetadata(topic_id, tuple(ranges))


def _written(position: int, ranges: Iterable[Range], max_bytes: int) -> str:
    room = max_bytes // 4 * 3  # base64 makes four characters of three bytes
    written, at = bytearray(), position
    for start, end in ranges:
        piece = _variable(start - at) + _variable(end - start)
        if len(written) + len(piece) > room:
            break
        written += piece
        at = end
    return base64.b64encode(written).decode()


def _variable(number: int) -> bytes:
    """LEB128, as Protocol Buffers write integers."""
    written = bytearray()
    while number > _SEVEN_BITS:
        written.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    written.append(number)
    return bytes(written)


def _numbers(text: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in text:
        number |= (byte & _SEVEN_BITS) << shift
        shift += 7
        if not byte & _MORE:
            yield number
            number = shift = 0
