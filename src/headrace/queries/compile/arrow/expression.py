"""Compiled expressions, for evaluation on batches of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headrace.queries.compile.arrow.constants import Constant
from headrace.queries.compile.arrow.kernels import Datum, expanded, without_negative_zeros
from headrace.queries.language.functions import ValueType

ARROW_TYPES = {
    ValueType.TEXT: pa.string(),
    ValueType.INTEGER: pa.int64(),
    ValueType.NUMBER: pa.float64(),
    ValueType.BOOLEAN: pa.bool_(),
    ValueType.TIME: pa.timestamp("us", tz="UTC"),
    ValueType.INTEGERS: pa.list_(pa.int64()),
}


@dataclass(frozen=True, slots=True)
class Operands:
    """The values that an expression is evaluated on.

    Attributes:
        columns: columns of the events, by name.
        constants: varying constants, in the order of the expression.
    """

    columns: Mapping[str, pa.Array]
    constants: Sequence[Datum]


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A compiled part of an expression.

    Attributes:
        type: type of its values.
        shape: text of the operation, without varying constants.
        evaluate: returns its values.
    """

    type: ValueType
    shape: str
    evaluate: Callable[[Operands], Datum]


@dataclass(frozen=True, eq=False)
class CompiledExpression:
    """An expression that is evaluated on Arrow columns.

    Expressions of one shape can be evaluated together, by any of these expressions: on rows that
    are pairs of an event and an expression, with the constants of each row's expression.

    Attributes:
        shape: text that is equal, in every process, for expressions on one event class that differ
            only in varying constants.
        constants: varying constants, in the order of the expression; times in microseconds since
            1970, and the list of an ``IN`` as a tuple, of any length.
        constant_types: Arrow types of the constants; part of the shape.
        columns: names of the columns that the expression reads.
        operation: the compiled operation.
    """

    shape: str
    constants: tuple[Constant | tuple[Constant, ...], ...]
    constant_types: tuple[pa.DataType, ...]
    columns: frozenset[str]
    operation: Operation

    @property
    def type(self) -> ValueType:
        """The type of the expression's values."""
        return self.operation.type

    def evaluate(
        self, rows: pa.RecordBatch | pa.Table, constants: Sequence[Datum] | None = None
    ) -> pa.Array:
        """Returns the expression's value in each row, of the Arrow type of :data:`ARROW_TYPES`.

        Numbers are finite, and zero has no sign, so equal numbers have equal bytes.

        Args:
            rows: rows with the ``columns``, of the types that decoders of the event class make.
            constants: for each of the ``constant_types``, an array with a value for each row or a
                scalar for all rows, without nulls; ``None`` for the expression's own constants.
        """
        columns = {name: _contiguous(rows.column(name)) for name in self.columns}
        values = self._scalars if constants is None else constants
        result = self.operation.evaluate(Operands(columns, values))
        return expanded(without_negative_zeros(result), rows.num_rows)

    @cached_property
    def _scalars(self) -> list[pa.Scalar]:
        pairs = zip(self.constants, self.constant_types, strict=True)
        return [pa.scalar(constant, kind) for constant, kind in pairs]


def _contiguous(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
