"""Sums of numbers without rounding errors, as integers that count a unit.

The unit of integers is 1. The unit of doubles is ``2**-DOUBLE_BITS``. Each double is a multiple of
it, so a sum of doubles is a long integer, and is rounded once: when its value is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from headrace.queries.language.functions import ValueType
from headrace.queries.windows.functions.aggregation import GroupedRows, Integers, Numbers
from headrace.queries.windows.functions.partial import (
    Partial,
    PartialError,
    read_integer,
    read_list,
)

# The smallest double is 2**-1074. The number of bits is a multiple of _STEP_BITS.
DOUBLE_BITS = 1080
_MANTISSA_BITS = 53
# Doubles whose exponents are in one step are added as integers of at most 53 + 7 bits.
_STEP_BITS = 8
_MAX_STEPS = 1 << 9
_HALF_BITS, _LOW_HALF = 32, (1 << 32) - 1
# A root is rounded correctly from 55 bits, if the last bit is set for any remainder.
_ROOT_BITS = 55
_MICROSECOND = timedelta(microseconds=1)


def unit_bits(value_type: ValueType) -> int:
    """Returns ``n`` for numbers that are multiples of ``2**-n``."""
    return 0 if value_type is ValueType.INTEGER else DOUBLE_BITS


@dataclass(frozen=True)
class ExactTerms:
    """The numbers of groups, to be added. There may be up to 2**31 numbers.

    Attributes:
        mantissas: the mantissa of each row; its number is the mantissa times ``2**(8 * step)``, in
            units.
        terms: the index in ``keys`` of each row.
        keys: pairs of a group and a step, as ``group * 512 + step``.
        group_count: the number of groups.
    """

    mantissas: Integers
    terms: Integers
    keys: list[int]
    group_count: int

    @classmethod
    def of(cls, rows: GroupedRows) -> ExactTerms:
        """Returns the terms of values that are numbers."""
        mantissas, steps = _mantissas_and_steps(rows.numbers())
        keys, terms = np.unique(rows.groups * _MAX_STEPS + steps, return_inverse=True)
        return cls(mantissas, terms, keys.tolist(), len(rows.counts))

    def sums(self) -> list[int]:
        """Returns the sum of each group, in units."""
        return self._of_groups(self._sums_of_terms(self.mantissas), _STEP_BITS)

    def square_sums(self) -> list[int]:
        """Returns the sum of the squares of each group, in squares of a unit."""
        magnitudes = np.abs(self.mantissas).view(np.uint64)  # correct for -2**63, too
        high, low = magnitudes >> _HALF_BITS, magnitudes & _LOW_HALF
        products = (high * high, high * low, low * low)
        sums = zip(*map(self._sums_of_terms, products), strict=True)
        squares = [
            (of_high << 2 * _HALF_BITS) + (mixed << _HALF_BITS + 1) + of_low
            for of_high, mixed, of_low in sums
        ]
        return self._of_groups(squares, 2 * _STEP_BITS)

    def _sums_of_terms(self, integers: Integers | NDArray[np.uint64]) -> list[int]:
        """Returns the sum of each key; no sum of halves exceeds 63 bits."""
        high, low = np.zeros((2, len(self.keys)), integers.dtype)
        np.add.at(high, self.terms, integers >> _HALF_BITS)
        np.add.at(low, self.terms, integers & _LOW_HALF)
        halves = zip(high.tolist(), low.tolist(), strict=True)
        return [(of_high << _HALF_BITS) + of_low for of_high, of_low in halves]

    def _of_groups(self, sums: list[int], step_bits: int) -> list[int]:
        totals = [0] * self.group_count
        for key, term in zip(self.keys, sums, strict=True):
            group, step = divmod(key, _MAX_STEPS)
            totals[group] += term << step * step_bits
        return totals


def _mantissas_and_steps(numbers: Numbers) -> tuple[Integers, NDArray[np.integer]]:
    if numbers.dtype == np.int64:
        return numbers, np.zeros(len(numbers), np.int64)
    _, exponents = np.frexp(numbers)
    steps = np.maximum(exponents + (DOUBLE_BITS - _MANTISSA_BITS), 0) // _STEP_BITS
    mantissas = np.ldexp(numbers, DOUBLE_BITS - steps * _STEP_BITS)
    return mantissas.astype(np.int64), steps


def write_exact(number: int, bits: int) -> Partial:
    """Returns a number of units of ``2**-bits`` as a partial.

    The partial is an integer if the unit is 1; else it is ``[mantissa, exponent]``, with an odd
    mantissa, and stands for ``mantissa * 2**exponent``.
    """
    if not bits:
        return number
    if not number:
        return [0, 0]
    zeros = (number & -number).bit_length() - 1
    return [number >> zeros, zeros - bits]


def read_exact(partial: Partial, bits: int) -> int:
    """Returns the number that :func:`write_exact` has written, in units of ``2**-bits``.

    Raises:
        PartialError: if the partial is damaged.
    """
    if not bits:
        return read_integer(partial)
    mantissa, exponent = map(read_integer, read_list(partial, 2))
    if not -bits <= exponent <= bits:
        raise PartialError(f"the exponent {exponent} is beyond those of doubles")
    return mantissa << exponent + bits


def quotient(numerator: int, denominator: int) -> float | None:
    """Returns the double nearest to a fraction, or ``None`` if no double is that large."""
    try:
        return numerator / denominator
    except OverflowError:
        return None


def rate(number: int, bits: int, per: timedelta, window: timedelta) -> float | None:
    """Returns a number of units of ``2**-bits`` in a window as a rate per duration ``per``.

    It is rounded once, and ``None`` if no double is that large.
    """
    return quotient(number * (per // _MICROSECOND), (window // _MICROSECOND) << bits)


def square_root(numerator: int, denominator: int) -> float | None:
    """Returns the double nearest to the root of a fraction, or ``None`` if no double is that large.

    The integer root is rounded to odd if it is not exact, so that rounding it again is correct: see
    Boldo and Melquiond, "When double rounding is odd", and the module ``statistics`` of Python.
    """
    missing = 2 * _ROOT_BITS - numerator.bit_length() + denominator.bit_length()
    half_shift = max(0, (missing + 1) // 2)
    square, rest = divmod(numerator << 2 * half_shift, denominator)
    root = math.isqrt(square)
    is_inexact = rest > 0 or root * root != square
    return quotient(root | is_inexact, 1 << half_shift)
