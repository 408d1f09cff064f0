"""Kernels on Arrow arrays and scalars, where Arrow has none or one with another meaning.

They are null where an operand is, if their docstrings do not say otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.queries.language.functions import ValueType

Datum: TypeAlias = Any
"""An Arrow array with a value for each row, or an Arrow scalar, which stands for all rows."""
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
# Each byte may be a place to compare at, which takes some 40 bytes.
_MAX_BYTES_AT_ONCE = 2**20
_ZERO = pa.scalar(0.0)
_PART_OF_PATTERN = re.compile(r"%+|_|\\(.)|(.)", re.DOTALL)


def expanded(values: Datum, length: int) -> pa.Array:
    """Returns an array of a length, for a scalar one that repeats it."""
    return pa.repeat(values, length) if isinstance(values, pa.Scalar) else values


def is_true(values: pa.Array) -> Mask:
    """Returns where booleans are true; null is not."""
    return np.asarray(pc.fill_null(values, False), np.bool_)


def without_negative_zeros(values: Datum) -> Datum:
    """Returns values in which -0.0 is 0.0: Arrow hashes them as two."""
    return pc.add(values, _ZERO) if pa.types.is_floating(values.type) else values


def doubles(values: Datum) -> Datum:
    """Returns int64 as double, rounded to the nearest."""
    return pc.cast(values, pa.float64(), safe=False)


def _finite(kernel: Kernel, *operands: Datum) -> Datum:
    numbers = kernel(*operands)
    return pc.if_else(pc.is_finite(numbers), numbers, pa.scalar(None, pa.float64()))


# Each of them takes doubles, and is null where the result is not finite.
ARITHMETIC: dict[str, Kernel] = {
    "+": partial(_finite, pc.add),
    "-": partial(_finite, pc.subtract),
    "*": partial(_finite, pc.multiply),
    "/": partial(_finite, pc.divide),
}


def comparison(operator: str, left: ValueType, right: ValueType) -> Kernel:
    """Returns the comparison of values of two types: exact, for integers beside doubles, too."""
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

    An integer is the nearest double and a rest that is smaller than the way to any other double.
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
        values = expanded(values, len(lists))
        contained = _is_in_list_of_row(values, lists)
    return pc.if_else(pc.is_valid(values), contained, pa.scalar(None, pa.bool_()))


def _is_in_list_of_row(values: pa.Array, lists: pa.ListArray) -> pa.Array:
    rows = pc.list_parent_indices(lists)
    is_equal = pc.equal(pc.take(values, rows), pc.list_flatten(lists))
    contained = np.zeros(len(lists), np.bool_)
    contained[pc.filter(rows, is_equal).to_numpy()] = True
    return pa.array(contained)


def like(pattern: str) -> Kernel:
    """Returns the match of whole texts with a pattern; ``_`` is a code point.

    Arrow's own ``match_like`` takes some backslashes of a pattern that begins with ``%`` twice.
    """
    expression = "".join(map(_regular_expression, _PART_OF_PATTERN.finditer(pattern)))
    return partial(pc.match_substring_regex, pattern=f"(?s)^{expression}$")


def _regular_expression(part: re.Match[str]) -> str:
    if part[0] == "_":
        return "."
    return ".*" if part[0].startswith("%") else re.escape(part[1] or part[2])


def length(texts: Datum) -> Datum:
    """Returns the number of code points of texts, as int64."""
    return pc.cast(pc.utf8_length(texts), pa.int64())


def starts_with(texts: Datum, parts: Datum) -> Datum:
    """Returns whether texts begin with others."""
    if isinstance(parts, pa.Scalar):
        return pc.starts_with(texts, pattern=parts.as_py())
    return _has_part(texts, parts, lambda excess: (np.zeros_like(excess), excess >= 0))


def ends_with(texts: Datum, parts: Datum) -> Datum:
    """Returns whether texts end with others."""
    if isinstance(parts, pa.Scalar):
        return pc.ends_with(texts, pattern=parts.as_py())
    return _has_part(texts, parts, lambda excess: (excess, excess >= 0))


def contains(texts: Datum, parts: Datum) -> Datum:
    """Returns whether texts have others in them."""
    if isinstance(parts, pa.Scalar):
        return pc.match_substring(texts, pattern=parts.as_py())
    return _has_part(texts, parts, lambda excess: (np.zeros_like(excess), excess + 1))


def _has_part(
    texts: Datum, parts: pa.Array, places: Callable[[_Integers], tuple[_Integers, Any]]
) -> pa.Array:
    """Compares byte by byte, at all places of many rows at once.

    Args:
        texts: to look into.
        parts: to look for.
        places: returns, by how many bytes texts are longer than their parts, the first byte at
            which a part may be, and how many bytes in a row are such places.
    """
    texts = expanded(texts, len(parts))
    if len(texts) > 1 and texts.nbytes > _MAX_BYTES_AT_ONCE:
        half = len(texts) // 2
        halves = (texts[:half], parts[:half]), (texts[half:], parts[half:])
        return pa.concat_arrays([_has_part(*pair, places) for pair in halves])
    text_bytes, text_starts, text_sizes = _bytes(texts)
    part_bytes, part_starts, part_sizes = _bytes(parts)
    first, count = places(text_sizes - part_sizes)
    count = np.maximum(count, 0).astype(np.int64)
    rows = np.repeat(np.arange(len(parts)), count)
    in_turn = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    starts = (text_starts + first)[rows] + in_turn
    contained = np.zeros(len(parts), np.bool_)
    equal_bytes = 0
    while len(rows):
        is_whole = part_sizes[rows] == equal_bytes
        contained[rows[is_whole]] = True
        rows, starts = rows[~is_whole], starts[~is_whole]
        is_equal = text_bytes[starts + equal_bytes] == part_bytes[part_starts[rows] + equal_bytes]
        rows, starts = rows[is_equal], starts[is_equal]
        equal_bytes += 1
    both_valid = pc.and_(pc.is_valid(texts), pc.is_valid(parts))
    return pc.if_else(both_valid, pa.array(contained), pa.scalar(None, pa.bool_()))


def _bytes(texts: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], _Integers, _Integers]:
    """Returns the bytes of all texts, where each text begins in them, and how long it is."""
    if not len(texts):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, offsets, characters = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    bounds = ends.astype(np.int64)
    return np.frombuffer(characters or b"", np.uint8), bounds[:-1], np.diff(bounds)
