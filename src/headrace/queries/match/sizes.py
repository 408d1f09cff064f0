"""Sizes of rows in bytes, so that rows can be evaluated in parts that fit into memory.

An Arrow array holds at most two gigabytes of texts, and a row is repeated for each rule that it is
compared with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.queries.match.index import NumberArray, rows_with

MAX_BYTES = 256 * 2**20
"""Bytes of the values that are evaluated at once."""
VALUE_BYTES = 32
"""Bytes of a value and of the values computed from it, without its characters."""
_CHARACTER_BYTES = 4


class MeasuredRows:
    """Events, and their sizes.

    Args:
        table: the events.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._sizes: dict[frozenset[str], NumberArray] = {}

    def take(self, columns: Collection[str], numbers: NumberArray) -> pa.Table:
        """Returns the rows with these numbers, as :func:`rows_with`."""
        return rows_with(self.table, columns, numbers)

    def sizes(self, columns: frozenset[str]) -> NumberArray:
        """Returns the bytes of each row in these columns."""
        sizes = self._sizes.get(columns)
        if sizes is None:
            sizes = np.zeros(self.table.num_rows, np.int64)
            for name in columns:
                sizes += np.concatenate(list(map(value_bytes, self.table.column(name).chunks)))
            self._sizes[columns] = sizes
        return sizes


def divided(sizes: NumberArray) -> Iterator[slice]:
    """Yields consecutive parts of values that fit into memory; a part has at least one value.

    Args:
        sizes: bytes of each value.
    """
    begin = 0
    ends = np.cumsum(sizes)
    while begin < len(sizes):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + MAX_BYTES, "right")))
        yield slice(begin, end)
        begin = end


def value_bytes(values: pa.Array) -> NumberArray:
    """Returns the bytes of each value."""
    kind = values.type
    sizes = np.full(len(values), VALUE_BYTES, np.int64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        sizes += pc.fill_null(pc.binary_length(values), 0).to_numpy()
    elif pa.types.is_struct(kind):
        for part in values.flatten():
            sizes += value_bytes(part)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        items = np.concatenate([[0], np.cumsum(value_bytes(values.values))])
        offsets = values.offsets.to_numpy()
        sizes += items[offsets[1:]] - items[offsets[:-1]]
    return sizes


def constant_bytes(constant: Any) -> int:
    """Returns an upper bound of the bytes of a rule's constant."""
    if isinstance(constant, tuple):
        return sum(map(constant_bytes, constant))
    return VALUE_BYTES + (_CHARACTER_BYTES * len(constant) if isinstance(constant, str) else 0)
