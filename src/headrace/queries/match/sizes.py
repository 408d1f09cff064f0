"""How many bytes rows and constants have: what is looked at together has to fit into memory.

An array of Arrow has room for two gigabytes of texts, and a row is repeated for each rule that it
is compared with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.queries.match.index import NumberArray, rows_with

MAX_BYTES = 256 * 2**20
"""Of values that are looked at together."""
_VALUE_BYTES = 32
"""Of a value and what is made of it, beside its characters."""
_CHARACTER_BYTES = 4


class MeasuredRows:
    """Events, and how large they are.

    Args:
        table: the events.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._longest: dict[str, int] = {}

    def take(self, columns: Collection[str], numbers: NumberArray) -> pa.Table:
        """Returns some rows, by number, with some of their columns; with one at least."""
        return rows_with(self.table, columns, numbers)

    def longest(self, columns: Collection[str]) -> int:
        """Returns at most how many bytes a row has in some columns."""
        for name in columns:
            if name not in self._longest:
                chunks = self.table.column(name).chunks
                self._longest[name] = max(map(_longest_value, chunks), default=0)
        return sum(self._longest[name] for name in columns)


class Heaviest:
    """The largest of some numbers that come and go, rounded up to a power of two."""

    def __init__(self) -> None:
        self._bits: Counter[int] = Counter()

    @property
    def number(self) -> int:
        """Returns it; 1, if there are no numbers."""
        return 1 << max(self._bits, default=0)

    def put(self, number: int) -> None:
        """Adds a number."""
        self._bits[number.bit_length()] += 1

    def remove(self, number: int) -> None:
        """Removes one that was added."""
        bits = number.bit_length()
        self._bits[bits] -= 1
        if not self._bits[bits]:
            del self._bits[bits]


def list_length(constants: Sequence[Sequence[Any]]) -> int:
    """Returns the length of the longest list among the constants of a rule."""
    lists = (each for operand in constants for each in operand if isinstance(each, tuple))
    return max(map(len, lists), default=0)


def constant_bytes(constants: Sequence[Sequence[Any]]) -> int:
    """Returns at most how many bytes the constants of a rule have."""
    return sum(_constant_bytes(each) for operand in constants for each in operand)


def _constant_bytes(constant: Any) -> int:
    if isinstance(constant, tuple):
        return sum(map(_constant_bytes, constant))
    return _VALUE_BYTES + (_CHARACTER_BYTES * len(constant) if isinstance(constant, str) else 0)


def pair_bytes(row: int, longest_list: int, constants: int) -> int:
    """Returns at most how many bytes a pair of a row and a rule takes.

    Args:
        row: bytes of the longest row.
        longest_list: of the constants: the row is compared with each of its values.
        constants: bytes of the constants.
    """
    return (row + _VALUE_BYTES) * max(1, longest_list) + constants


def _longest_value(values: pa.Array) -> int:
    """Returns at most how many bytes a value has."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return int(pc.max(pc.binary_length(values)).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(_longest_value(values.field(number)) for number in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        items = int(np.diff(values.offsets.to_numpy()).max(initial=0))
        return min(items * _longest_value(values.values), int(values.values.nbytes))
    return _VALUE_BYTES
