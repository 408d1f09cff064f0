"""Where the next field of each Avro record of a block begins, and how NumPy reads it there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.events.wire_format import frame_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int64s: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]

WORD = 8
"""Bytes that are read at a time."""
_MAX_VARINT_BYTES = 10
_CONTINUES = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F)
_PAYLOAD = np.uint64(0x7F7F7F7F7F7F7F7F)
# Joins the seven bits of neighbours, then the pairs, then the halves: lower part, upper, distance.
_JOINS = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(bits))
    for low, high, bits in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
_MIN_LONG = -(2**63)
MAX_ITEMS = 64
"""Of an array or a map: those of a longer one are read faster record by record."""
_RECORDS_FOR_STEP = 4
MAX_BLOCK_BYTES = 2**31 - 1 - _MAX_VARINT_BYTES
"""Of the values of a block: Arrow's offsets of texts have 32 bits."""


@dataclass(slots=True)
class _Steps:
    """How many more items are read: a step costs as much as a few records by themselves."""

    left: int


class Cursors:
    """Keeps where the next field of each record begins.

    Attributes:
        at: by record, never beyond its end.
        ends: by record.
        steps: for items of arrays and maps, of all cursors of a block.
        needs_fallback: which records must be read by themselves. Their cursors are meaningless.
    """

    def __init__(self, block: bytes, at: Int64s, ends: Int64s, steps: _Steps) -> None:
        self._block, self.at, self.ends, self.steps = block, at, ends, steps
        self.needs_fallback = np.zeros(len(at), np.bool_)
        self._bytes = np.frombuffer(block, np.uint8)
        # The eight bytes from each byte on.
        shape = (len(block) - WORD + 1,)
        self._words = np.ndarray(shape, "<u8", block, strides=(1,))

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Cursors:
        """Returns cursors after the ids of the schema of values."""
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        ends = np.cumsum(sizes)
        block = b"".join((*values, bytes(_MAX_VARINT_BYTES + WORD)))
        steps = _Steps(len(values) // _RECORDS_FOR_STEP)
        return cls(block, ends - sizes + frame_size(values[0]), ends, steps)

    def fall_back(self, rows: Bools) -> None:
        """Leaves rows to the reader of single records."""
        self.needs_fallback |= rows

    def skip(self, sizes: Int64s | int) -> None:
        """Moves on; a record that is shorter falls back."""
        self.at = self.at + sizes
        is_beyond = self.at > self.ends
        if is_beyond.any():
            self.fall_back(is_beyond)
            self.at = np.minimum(self.at, self.ends)

    def words(self) -> NDArray[np.uint64]:
        """Returns the next eight bytes, without moving on."""
        return self._words[self.at]

    def next_bytes(self) -> NDArray[np.uint8]:
        """Reads a byte."""
        values = self._bytes[self.at]
        self.skip(1)
        return values

    def longs(self) -> Int64s:
        """Reads integers: seven bits a byte, the lowest first, the sign in the lowest bit."""
        first = self._bytes[self.at]
        if not (first > _LOW_BITS).any():
            self.skip(1)
            joined = first.astype(np.uint64)
        else:
            joined = self._joined()
        return ((joined >> np.uint64(1)) ^ (~(joined & np.uint64(1)) + np.uint64(1))).view(np.int64)

    def _joined(self) -> NDArray[np.uint64]:
        words = self.words()
        ends = ~words & _CONTINUES
        end = ends & (~ends + np.uint64(1))
        below = end - np.uint64(1)  # all bits where no byte of the word is the last one
        joined = words & below & _PAYLOAD
        for low, high, bits in _JOINS:
            joined = (joined & low) | ((joined & high) >> bits)
        sizes = (np.bitwise_count(below).astype(np.int64) + 1) >> 3
        rows = np.nonzero(ends == 0)[0]
        if len(rows):
            ninth, tenth = (
                self._bytes[self.at[rows] + place].astype(np.uint64) for place in (8, 9)
            )
            has_tenth = ninth > _LOW_BITS
            joined[rows] |= (ninth & _LOW_BITS) << np.uint64(56)
            joined[rows] |= np.where(has_tenth, tenth << np.uint64(63), np.uint64(0))
            self.needs_fallback[rows] |= has_tenth & (tenth > 1)
            sizes[rows] = np.where(has_tenth, _MAX_VARINT_BYTES, _MAX_VARINT_BYTES - 1)
        self.skip(sizes)
        return joined

    def lengths(self) -> Int64s:
        """Reads the lengths of what follows; they are zero in records that are shorter."""
        lengths = self.longs()
        is_wrong = (lengths < 0) | (lengths > self.ends - self.at)
        if is_wrong.any():
            self.fall_back(is_wrong)
            lengths = np.where(is_wrong, 0, lengths)
        return lengths

    def binary(self, sizes: Int64s | int) -> pa.Array:
        """Reads so many bytes of each record."""
        count = len(self.at)
        # What lies between the parts of two records is an element, too, which is not taken.
        offsets = np.empty((count, 2), np.int32)
        offsets[:, 0] = self.at
        self.skip(sizes)
        offsets[:, 1] = self.at
        if not count:
            return pa.array([], pa.binary())
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._block)]
        elements = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
        return elements.take(pa.array(np.arange(0, 2 * count, 2)))

    def of_rows(self, rows: Int64s) -> Cursors:
        """Returns cursors of some of the records."""
        return Cursors(self._block, self.at[rows], self.ends[rows], self.steps)

    def follow(self, rows: Int64s, others: Cursors) -> None:
        """Moves on to where the cursors of some of the records are."""
        self.at = self.at.copy()
        self.at[rows] = others.at
        self.needs_fallback[rows] |= others.needs_fallback


def items_of(
    cursors: Cursors, parts: Sequence[Callable[[Cursors], Any]]
) -> Iterator[tuple[Int64s, list[Any]]]:
    """Reads arrays or maps: the next item of every record that has one, until none has.

    They come in blocks: a count, which is zero at the end; a negative one has the size of the block
    after it. Yields the records, and what the parts of their items were read to.
    """
    remaining = np.zeros(len(cursors.at), np.int64)
    rows = np.arange(len(remaining))
    for number in range(MAX_ITEMS + 1):
        ended = rows[remaining[rows] == 0]
        if len(ended):
            remaining[ended] = _counts(cursors, ended)
            rows = rows[remaining[rows] > 0]
        if not len(rows):
            return
        cursors.steps.left -= 1
        if number == MAX_ITEMS or cursors.steps.left < 0:
            break
        items = cursors.of_rows(rows)
        yield rows, [part(items) for part in parts]
        cursors.follow(rows, items)
        remaining[rows] -= 1
        rows = rows[~items.needs_fallback]
    cursors.needs_fallback[rows] = True


def _counts(cursors: Cursors, rows: Int64s) -> Int64s:
    """Reads how many items the next blocks of some records have."""
    blocks = cursors.of_rows(rows)
    counts = blocks.longs()
    sized = np.nonzero(counts < 0)[0]
    if len(sized):
        sizes = blocks.of_rows(sized)
        sizes.longs()
        blocks.follow(sized, sizes)
    blocks.fall_back(counts == _MIN_LONG)
    cursors.follow(rows, blocks)
    return np.where(blocks.needs_fallback, 0, np.abs(counts))
