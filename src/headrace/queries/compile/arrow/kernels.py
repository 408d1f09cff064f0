"""Kernels on Arrow arrays and scalars that Arrow lacks, or has with another meaning.

Their values are null where an operand is null, unless their docstrings say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.queries.language.functions import ValueType

Datum: TypeAlias = Any
"""An Arrow array with a value for each row, or an Arrow scalar for all rows."""
Kernel: TypeAlias = Callable[..., Datum]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
"""Whether each row meets a condition."""
_Integers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
_COMPARISONS: dict[str, Kernel] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_ZERO = pa.scalar(0.0)


def expanded(values: Datum, length: int) -> pa.Array:
    """Returns values as an array; a scalar is repeated up to a length."""
    return pa.repeat(values, length) if isinstance(values, pa.Scalar) else values


def is_true(values: pa.Array) -> Mask:
    """Returns the mask of booleans that are true; null is not true."""
    return np.asarray(pc.fill_null(values, False), np.bool_)


def without_negative_zeros(values: Datum) -> Datum:
    """Returns values with 0.0 in place of -0.0, because Arrow's hashes distinguish them."""
    return pc.add(values, _ZERO) if pa.types.is_floating(values.type) else values


def doubles(values: Datum) -> Datum:
    """Returns int64 values as the nearest doubles."""
    return pc.cast(values, pa.float64(), safe=False)


def _finite(kernel: Kernel, *operands: Datum) -> Datum:
    numbers = kernel(*operands)
    return pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float64()))


# The operators take doubles; a result that is not finite becomes null.
ARITHMETIC: dict[str, Kernel] = {
    "+": partial(_finite, pc.add),
    "-": partial(_finite, pc.subtract),
    "*": partial(_finite, pc.multiply),
    "/": partial(_finite, pc.divide),
}


def comparison(operator: str, left: ValueType, right: ValueType) -> Kernel:
    """Returns the comparison of values of two types; it is exact for integers with doubles."""
    compare = _COMPARISONS[operator]
    if (left, right) == (ValueType.INTEGER, ValueType.NUMBER):
        return lambda integers, numbers: compare(_difference(integers, numbers), _ZERO)
    if (left, right) == (ValueType.NUMBER, ValueType.INTEGER):
        return lambda numbers, integers: compare(_ZERO, _difference(integers, numbers))
    return compare


def between(lower: Kernel, upper: Kernel) -> Kernel:
    """Returns the conjunction of the comparisons of a value with two ends."""
    return lambda values, low, high: pc.and_kleene(lower(values, low), upper(values, high))


def _difference(integers: Datum, numbers: Datum) -> Datum:
    """Returns int64 minus double, as doubles with the exact sign.

    An integer is the sum of the nearest double and a remainder that is smaller than the distance
    to any other double.
    """
    nearest = doubles(integers)
    high = pc.multiply(doubles(pc.shift_right(integers, 32)), 2.0**32)
    low = doubles(pc.bit_wise_and(integers, 2**32 - 1))
    rest = pc.add(pc.subtract(high, nearest), low)
    return pc.add(pc.subtract(nearest, numbers), rest)


def conjunction(*operands: Datum) -> Datum:
    """Returns the Kleene conjunction of booleans."""
    return reduce(pc.and_kleene, operands)


def disjunction(*operands: Datum) -> Datum:
    """Returns the Kleene disjunction of booleans."""
    return reduce(pc.or_kleene, operands)


def is_in(values: Datum, lists: Datum) -> Datum:
    """Returns whether each value is in its list, whose items have the type of the values."""
    values = without_negative_zeros(values)
    if isinstance(lists, pa.Scalar):
        contained = pc.is_in(values, value_set=lists.values)
    else:
        contained = _is_in_list_of_row(values, lists)
    return pc.if_else(pc.is_valid(values), contained, pa.scalar(None, pa.bool_()))


def _is_in_list_of_row(values: Datum, lists: pa.ListArray) -> pa.Array:
    rows = pc.list_parent_indices(lists)
    of_items = values if isinstance(values, pa.Scalar) else pc.take(values, rows)
    is_equal = pc.equal(of_items, pc.list_flatten(lists))
    contained = np.zeros(len(lists), np.bool_)
    contained[pc.filter(rows, is_equal).to_numpy()] = True
    return pa.array(contained)


def length(texts: Datum) -> Datum:
    """Returns the number of code points of texts, as int64."""
    return pc.cast(pc.utf8_length(texts), pa.int64())


def starts_with(texts: Datum, parts: Datum) -> Datum:
    """Returns whether texts begin with given parts."""
    if isinstance(parts, pa.Scalar):
        return pc.starts_with(texts, pattern=parts.as_py())
    return _has_part(texts, parts, bytes.startswith)


def ends_with(texts: Datum, parts: Datum) -> Datum:
    """Returns whether texts end with given parts."""
    if isinstance(parts, pa.Scalar):
        return pc.ends_with(texts, pattern=parts.as_py())
    return _has_part(texts, parts, bytes.endswith)


def contains(texts: Datum, parts: Datum) -> Datum:
    """Returns whether texts contain given parts."""
    if isinstance(parts, pa.Scalar):
        return pc.match_substring(texts, pattern=parts.as_py())
    return _has_part(texts, parts, bytes.__contains__)


def _has_part(texts: Datum, parts: pa.Array, has: Callable[[bytes, bytes], bool]) -> pa.Array:
    """Searches once for each distinct pair of a text and a part.

    The search in ``bytes`` takes time that is linear in their length (two-way search).
    """
    distinct_texts, text_codes = _encoded(expanded(texts, 1))
    distinct_parts, part_codes = _encoded(parts)
    pairs, places = np.unique(text_codes * len(distinct_parts) + part_codes, return_inverse=True)
    contained: list[bool | None] = []
    for pair in pairs.tolist():
        text_code, part_code = divmod(pair, len(distinct_parts))
        text, part = distinct_texts[text_code], distinct_parts[part_code]
        contained.append(None if text is None or part is None else has(text, part))
    return pa.array(contained, pa.bool_()).take(pa.array(places))


def _encoded(texts: pa.Array) -> tuple[list[bytes | None], _Integers]:
    """Returns the bytes of distinct texts, and for each text its index in that list."""
    encoded = texts.cast(pa.binary()).dictionary_encode(null_encoding="encode")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
