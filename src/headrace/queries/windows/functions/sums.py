"""``sum``, ``average`` and ``stddev``: exact, whatever the order of rows, and rounded once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from headrace.queries.windows.functions.aggregation import Aggregation, GroupedRows
from headrace.queries.windows.functions.exact_numbers import (
    ExactTerms,
    quotient,
    rate,
    read_exact,
    square_root,
    write_exact,
)
from headrace.queries.windows.functions.partial import (
    Partial,
    PartialError,
    read_integer,
    read_list,
)


@dataclass(frozen=True)
class SumAggregation(Aggregation[int]):
    """The sum. Its partial is an exact number: see ``write_exact``.

    The sum of integers is an integer, and may be longer than 64 bits. The sum of doubles is the
    double nearest to the exact sum. It is null if the exact sum is beyond the range of doubles;
    sums of some of the values may exceed the range. Without a value, the sum is null.

    Attributes:
        unit_bits: the exponent ``n`` of the unit ``2**-n`` of the values; 0 for integers.
        per: the duration of a rate; ``None`` if the value is not a rate.
    """

    unit_bits: int
    per: timedelta | None = None

    def partials_of(self, rows: GroupedRows) -> Iterable[Partial]:
        return map(self.write, ExactTerms.of(rows).sums())

    def read(self, partial: Partial) -> int:
        return read_exact(partial, self.unit_bits)

    def write(self, state: int) -> Partial:
        return write_exact(state, self.unit_bits)

    def merge(self, state: int, added: int) -> int:
        return state + added

    def value(self, state: int | None, window: timedelta) -> Partial:
        if state is None:
            return None
        if self.per is not None:
            return rate(state, self.unit_bits, self.per, window)
        return quotient(state, 1 << self.unit_bits) if self.unit_bits else state


class Average(NamedTuple):
    """The state of an average.

    Attributes:
        rows: the number of values, at least 1.
        total: the sum of the values, in units.
    """

    rows: int
    total: int


@dataclass(frozen=True)
class AverageAggregation(Aggregation[Average]):
    """The arithmetic mean: the double nearest to the exact mean; null without a value.

    Its partial is ``[count, sum]``.

    Attributes:
        unit_bits: the exponent ``n`` of the unit ``2**-n`` of the values; 0 for integers.
    """

    unit_bits: int

    def partials_of(self, rows: GroupedRows) -> Iterable[Partial]:
        sums = ExactTerms.of(rows).sums()
        return map(self.write, map(Average, rows.counts.tolist(), sums))

    def read(self, partial: Partial) -> Average:
        count, total = read_list(partial, 2)
        return Average(read_integer(count, minimum=1), read_exact(total, self.unit_bits))

    def write(self, state: Average) -> Partial:
        return [state.rows, write_exact(state.total, self.unit_bits)]

    def merge(self, state: Average, added: Average) -> Average:
        return Average(state.rows + added.rows, state.total + added.total)

    def value(self, state: Average | None, window: timedelta) -> Partial:  # noqa: ARG002
        return None if state is None else quotient(state.total, state.rows << self.unit_bits)


class Moments(NamedTuple):
    """The state of a standard deviation.

    Attributes:
        rows: the number of values, at least 1.
        total: the sum of the values, in units.
        squares: the sum of the squares of the values, in squares of a unit.
    """

    rows: int
    total: int
    squares: int

    @property
    def deviation(self) -> int:
        """The variance, times the square of the count, in squares of a unit."""
        return self.rows * self.squares - self.total**2


@dataclass(frozen=True)
class StddevAggregation(Aggregation[Moments]):
    """The standard deviation of the population: the double nearest to the exact deviation.

    It is null without a value, and 0 for one value. Squares are exact, too, and neither overflow
    nor underflow: the deviation is correct for any doubles, and never beyond their range.

    Its partial is ``[count, sum, sum of squares]``.

    Attributes:
        unit_bits: the exponent ``n`` of the unit ``2**-n`` of the values; 0 for integers.
    """

    unit_bits: int

    def partials_of(self, rows: GroupedRows) -> Iterable[Partial]:
        terms = ExactTerms.of(rows)
        moments = map(Moments, rows.counts.tolist(), terms.sums(), terms.square_sums())
        return map(self.write, moments)

    def read(self, partial: Partial) -> Moments:
        count, total, squares = read_list(partial, 3)
        moments = Moments(
            read_integer(count, minimum=1),
            read_exact(total, self.unit_bits),
            read_exact(squares, 2 * self.unit_bits),
        )
        if moments.deviation < 0:
            raise PartialError("no numbers have such sums")
        return moments

    def write(self, state: Moments) -> Partial:
        total = write_exact(state.total, self.unit_bits)
        return [state.rows, total, write_exact(state.squares, 2 * self.unit_bits)]

    def merge(self, state: Moments, added: Moments) -> Moments:
        return Moments(*(sum(pair) for pair in zip(state, added, strict=True)))

    def value(self, state: Moments | None, window: timedelta) -> Partial:  # noqa: ARG002
        if state is None:
            return None
        return square_root(state.deviation, state.rows**2 << 2 * self.unit_bits)
