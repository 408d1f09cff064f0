"""``count`` and ``histogram``: numbers of rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import cast

import numpy as np

from headrace.queries.windows.functions.aggregation import Aggregation, GroupedRows
from headrace.queries.windows.functions.exact_numbers import rate
from headrace.queries.windows.functions.partial import Partial, read_integer, read_list


@dataclass(frozen=True)
class CountAggregation(Aggregation[int]):
    """The number of rows that count, or 0. Its partial is this number.

    Attributes:
        per: the duration of a rate; ``None`` if the value is not a rate.
    """

    per: timedelta | None = None

    def partials_of(self, rows: GroupedRows) -> Iterable[Partial]:
        return cast("list[Partial]", rows.counts.tolist())

    def read(self, partial: Partial) -> int:
        return read_integer(partial, minimum=0)

    def write(self, state: int) -> Partial:
        return state

    def merge(self, state: int, added: int) -> int:
        return state + added

    def value(self, state: int | None, window: timedelta) -> Partial:
        return (state or 0) if self.per is None else rate(state or 0, 0, self.per, window)


@dataclass(frozen=True)
class HistogramAggregation(Aggregation[list[int]]):
    """The number of values in each bucket; its partial is the list of these numbers.

    A value on the edge of two buckets is in the upper bucket. Values outside all buckets do not
    count. An edge is the double nearest to ``start + number * width``, computed with the decimals
    of the query: 0.3 is the lower edge of the fourth bucket of width 0.1. Integers are compared as
    doubles.

    Attributes:
        edges: the edges of the buckets, in order; one edge more than there are buckets.
    """

    edges: tuple[float, ...]

    @classmethod
    def of(cls, start: float, width: float, buckets: float) -> HistogramAggregation:
        """Returns the aggregation with the parameters of a query."""
        # Fractions are made of texts, since the exact value of the double 0.1 is not 0.1.
        first, step = Fraction(repr(start)), Fraction(repr(width))
        return cls(tuple(_nearest(first + step * edge) for edge in range(int(buckets) + 1)))

    def partials_of(self, rows: GroupedRows) -> Iterable[Partial]:
        count = len(self.edges) - 1
        numbers = rows.numbers().astype(np.float64)
        buckets = np.searchsorted(self.edges, numbers, side="right") - 1
        is_inside = (buckets >= 0) & (buckets < count)
        cells = rows.groups[is_inside] * count + buckets[is_inside]
        table = np.bincount(cells, minlength=len(rows.counts) * count)
        return cast("list[Partial]", table.reshape(-1, count).tolist())

    def read(self, partial: Partial) -> list[int]:
        counts = read_list(partial, len(self.edges) - 1)
        return [read_integer(count, minimum=0) for count in counts]

    def write(self, state: list[int]) -> Partial:
        return [*state]

    def merge(self, state: list[int], added: list[int]) -> list[int]:
        return [sum(pair) for pair in zip(state, added, strict=True)]

    def value(self, state: list[int] | None, window: timedelta) -> Partial:  # noqa: ARG002
        return [0] * (len(self.edges) - 1) if state is None else [*state]


def _nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf
