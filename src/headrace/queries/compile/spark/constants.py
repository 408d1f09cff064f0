"""Stores the constants of rules in one column, for expressions of any shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.queries.compile.arrow.constants import Constant

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_TEXTS, _INTEGERS, _NUMBERS, _BOOLEANS = "texts", "integers", "numbers", "booleans"
_ELEMENTS = {_TEXTS: "string", _INTEGERS: "bigint", _NUMBERS: "double", _BOOLEANS: "boolean"}


class ConstantLayout:
    """The places of the constants of a shape in a struct that all shapes have in common.

    The struct has a member for each type, an array of arrays: each constant of that type is an
    array, of one value for a scalar and of all values for the list of an ``IN``. Times are integers
    in microseconds since 1970.

    Args:
        types: :attr:`CompiledExpression.constant_types` of an expression, or of several expressions
            in sequence.
    """

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._is_list = [pa.types.is_list(kind) for kind in types]
        self._members = [_member(kind) for kind in types]

    @staticmethod
    def struct_type() -> StructType:
        """Returns the type of the struct."""
        from pyspark.sql import types as t

        members = (f"{name}: array<array<{kind}>>" for name, kind in _ELEMENTS.items())
        struct: StructType = t.DataType.fromDDL(f"struct<{', '.join(members)}>")
        return struct

    def values(
        self, constants: Sequence[Constant | tuple[Constant, ...]]
    ) -> dict[str, list[list[Constant]]]:
        """Returns the value of the struct for constants of the types of the layout."""
        members: dict[str, list[list[Constant]]] = {name: [] for name in _ELEMENTS}
        for member, constant in zip(self._members, constants, strict=True):
            listed = constant if isinstance(constant, tuple) else (constant,)
            members[member].append(list(listed))
        return members

    def columns(self, constants: Column) -> list[Column]:
        """Returns a column for each constant, as arguments of :func:`column_of`.

        Args:
            constants: a column of the struct.
        """
        from pyspark.sql import functions as f

        columns: list[Column] = []
        taken: Counter[str] = Counter()
        for member, is_list in zip(self._members, self._is_list, strict=True):
            values = f.get(constants.getField(member), f.lit(taken[member]))
            columns.append(values if is_list else f.get(values, f.lit(0)))
            taken[member] += 1
        return columns


def _member(kind: pa.DataType) -> str:
    element = kind.value_type if pa.types.is_list(kind) else kind
    if pa.types.is_string(element):
        return _TEXTS
    if pa.types.is_boolean(element):
        return _BOOLEANS
    return _NUMBERS if pa.types.is_floating(element) else _INTEGERS
