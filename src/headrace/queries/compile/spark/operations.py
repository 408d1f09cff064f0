"""Operations on columns that Spark lacks, or has with another meaning.

Their values are null where an operand is null, unless their docstrings say otherwise. Operations
that can be nested read an operand only once: otherwise the column doubles with each level.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from headrace.queries.compile.arrow.constants import Constant
from headrace.queries.language.functions import ValueType

if TYPE_CHECKING:
    from pyspark.sql import Column

Operation: TypeAlias = "Callable[..., Column]"
_COMPARISONS: dict[str, Operation] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LOW_BITS = 32
_END_OF_INTEGERS = 2.0**63


def literal(constant: Constant, kind: ValueType) -> Column:
    """Returns a column of a constant's value."""
    return from_constant(_as_column(constant, kind), kind)


def _as_column(constant: Constant, kind: ValueType) -> Column:
    """Returns a column of string, bigint, double or boolean, by the type of a constant."""
    from pyspark.sql import functions as f

    column = f.lit(constant)
    # Spark gives an integer the smallest type that holds it.
    if isinstance(constant, int) and kind is not ValueType.BOOLEAN:
        return column.cast("double" if kind is ValueType.NUMBER else "bigint")
    return column


def from_constant(column: Column, kind: ValueType) -> Column:
    """Returns the values of a column of constants, whose times are microseconds since 1970."""
    from pyspark.sql import functions as f

    return f.timestamp_micros(column) if kind is ValueType.TIME else column


def without_negative_zeros(numbers: Column) -> Column:
    """Returns numbers with 0.0 in place of -0.0."""
    from pyspark.sql import functions as f

    return numbers + f.lit(0.0)


def finite(numbers: Column) -> Column:
    """Returns numbers with null in place of NaN."""
    from pyspark.sql import functions as f

    return f.nanvl(numbers, f.lit(None).cast("double"))


def _nan_beyond_finite(numbers: Column) -> Column:
    from pyspark.sql import functions as f

    # The remainder of a division by infinity is the number itself, or NaN if it is infinite.
    return numbers % f.lit(math.inf)


def _quotient(left: Column, right: Column) -> Column:
    from pyspark.sql import functions as f

    return f.try_divide(left, right)


# The operators take doubles, and a result that is not finite becomes NaN: null would need nested
# conditions, which Spark compiles in exponential time. Division by zero gives null.
ARITHMETIC: dict[str, Operation] = {
    "+": lambda left, right: _nan_beyond_finite(left + right),
    "-": lambda left, right: _nan_beyond_finite(left - right),
    "*": lambda left, right: _nan_beyond_finite(left * right),
    "/": lambda left, right: _nan_beyond_finite(_quotient(left, right)),
}


def comparison(operator: str, left: ValueType, right: ValueType) -> Operation:
    """Returns the comparison of values of two types; it is exact for integers with doubles."""
    from pyspark.sql import functions as f

    compare = _COMPARISONS[operator]
    if (left, right) == (ValueType.INTEGER, ValueType.NUMBER):
        return lambda integers, numbers: compare(_difference(integers, numbers), f.lit(0.0))
    if (left, right) == (ValueType.NUMBER, ValueType.INTEGER):
        return lambda numbers, integers: compare(f.lit(0.0), _difference(integers, numbers))
    return compare


def _difference(integers: Column, numbers: Column) -> Column:
    """Returns bigint minus double, as doubles with the exact sign.

    An integer is the sum of the nearest double and a remainder that is smaller than the distance
    to any other double.
    """
    from pyspark.sql import functions as f

    nearest = integers.cast("double")
    high = f.shiftright(integers, _LOW_BITS).cast("double") * f.lit(2.0**_LOW_BITS)
    low = integers.bitwiseAND(f.lit(2**_LOW_BITS - 1)).cast("double")
    return (nearest - numbers) + ((high - nearest) + low)


def conjunction(operands: Sequence[Column]) -> Column:
    """Returns the three-valued conjunction of booleans, as a balanced tree."""
    return _balanced(operator.and_, operands)


def disjunction(operands: Sequence[Column]) -> Column:
    """Returns the three-valued disjunction of booleans, as a balanced tree."""
    return _balanced(operator.or_, operands)


def _balanced(connect: Operation, operands: Sequence[Column]) -> Column:
    if len(operands) == 1:
        return operands[0]
    half = len(operands) // 2
    return connect(_balanced(connect, operands[:half]), _balanced(connect, operands[half:]))


def is_in(values: Column, kind: ValueType, constants: Sequence[Constant]) -> Column:
    """Returns whether each value is one of the constants of its type."""
    from pyspark.sql import functions as f

    if not constants:
        return f.when(values.isNotNull(), f.lit(False))
    return _as_constant(values, kind).isin([_as_column(constant, kind) for constant in constants])


def is_in_array(values: Column, kind: ValueType, arrays: Column) -> Column:
    """Returns whether each value is in its row's array of constants."""
    from pyspark.sql import functions as f

    return f.array_contains(arrays, _as_constant(values, kind))


def _as_constant(values: Column, kind: ValueType) -> Column:
    from pyspark.sql import functions as f

    return f.unix_micros(values) if kind is ValueType.TIME else values


def _length(texts: Column) -> Column:
    from pyspark.sql import functions as f

    return f.char_length(texts).cast("bigint")


def _absolute(numbers: Column) -> Column:
    from pyspark.sql import functions as f

    return f.abs(numbers)


def _floor(numbers: Column) -> Column:
    from pyspark.sql import functions as f

    return _whole(numbers, f.floor)


def _ceil(numbers: Column) -> Column:
    from pyspark.sql import functions as f

    return _whole(numbers, f.ceil)


def _whole(numbers: Column, rounded: Operation) -> Column:
    from pyspark.sql import functions as f

    def whole(number: Column) -> Column:
        # Spark's functions return bigint; doubles beyond its range are whole already.
        is_small = f.abs(number) < f.lit(_END_OF_INTEGERS)
        return f.when(is_small, rounded(number).cast("double")).otherwise(number)

    return f.get(f.transform(f.array(numbers), whole), f.lit(0))


FUNCTIONS: dict[str, Operation] = {
    "length": _length,
    "startsWith": lambda texts, parts: texts.startswith(parts),
    "endsWith": lambda texts, parts: texts.endswith(parts),
    "contains": lambda texts, parts: texts.contains(parts),
    "abs": _absolute,
    "floor": _floor,
    "ceil": _ceil,
}
