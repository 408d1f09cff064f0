"""Compiles the tree of an expression into a Spark column of built-in functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial, singledispatchmethod
from typing import TYPE_CHECKING

from headrace.model.event import EventSchema
from headrace.queries.compile.arrow.constants import constant_beside, equal_constants
from headrace.queries.compile.spark import operations
from headrace.queries.compile.spark.case import with_case
from headrace.queries.compile.spark.events import field_of
from headrace.queries.compile.spark.patterns import matches
from headrace.queries.language.checks import ExpressionTypes
from headrace.queries.language.functions import FUNCTIONS, ValueType
from headrace.queries.language.tree import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Expression,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Or,
    Path,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

_BOOLEAN, _NUMBER = ValueType.BOOLEAN, ValueType.NUMBER


def column_of(
    expression: Expression,
    schema: EventSchema,
    event: Column,
    constants: Sequence[Column] | None = None,
) -> Column:
    """Returns the value of an expression in each row, equal to that of the Arrow evaluation.

    Args:
        expression: an expression that has been checked.
        schema: schema of the events.
        event: the column that :func:`~headrace.queries.compile.spark.with_event` makes.
        constants: a column for each of the ``constants`` that
            :func:`~headrace.queries.compile.arrow.compile_expression` finds in the expression, in
            their order: string, bigint, double or boolean; an array of these for an ``IN``; bigint,
            in microseconds since 1970, for a time. ``None`` for the expression's own constants.

    Returns:
        A column of string, bigint, double, boolean or timestamp, by the type of the expression.
    """
    value = _Compiler(schema, event, constants).of(expression)
    if value.type is not _NUMBER:
        return value.column
    return operations.without_negative_zeros(value.column)


@dataclass(frozen=True, slots=True)
class _Value:
    type: ValueType
    column: Column


class _Compiler:
    def __init__(
        self, schema: EventSchema, event: Column, constants: Sequence[Column] | None
    ) -> None:
        self._field = cache(partial(field_of, event, schema))  # each new column is a call of Java
        self._types = ExpressionTypes(schema)
        self._constants = None if constants is None else iter(constants)

    def of(self, expression: Expression) -> _Value:
        """Returns the value of an expression; a number that is not finite is null."""
        value = self._of(expression)
        if value.type is not _NUMBER or isinstance(expression, Path | Literal):
            return value
        return _Value(_NUMBER, operations.finite(value.column))

    @singledispatchmethod
    def _of(self, expression: Expression) -> _Value:
        """Returns the value of an expression; a number that is not finite is NaN."""
        raise TypeError(type(expression))

    @_of.register
    def _(self, path: Path) -> _Value:
        return _Value(self._types.of(path), self._field(path.names))

    @_of.register
    def _(self, literal: Literal) -> _Value:
        kind = self._types.of(literal)
        return _Value(kind, operations.literal(literal.value, kind))

    @_of.register
    def _(self, negative: Negative) -> _Value:
        return _Value(_NUMBER, -self._double(negative.operand))

    @_of.register
    def _(self, arithmetic: Arithmetic) -> _Value:
        left, right = self._double(arithmetic.left), self._double(arithmetic.right)
        return _Value(_NUMBER, operations.ARITHMETIC[arithmetic.operator](left, right))

    @_of.register
    def _(self, comparison: Comparison) -> _Value:
        left = self._beside(comparison.left, self._types.of(comparison.right))
        right = self._beside(comparison.right, self._types.of(comparison.left))
        return _Value(_BOOLEAN, _compared(comparison.operator, left, right))

    @_of.register
    def _(self, between: Between) -> _Value:
        operand, low, high = between.operand, between.low, between.high
        # A constant operand may be converted to another type for each end.
        if isinstance(operand, Literal):
            ends = (Comparison(">=", operand, low), Comparison("<=", operand, high))
            return self.of(And(ends))
        value = self.of(operand)
        lowest, highest = self._beside(low, value.type), self._beside(high, value.type)
        is_between = _compared(">=", value, lowest) & _compared("<=", value, highest)
        return _Value(_BOOLEAN, is_between)

    @_of.register
    def _(self, contained: In) -> _Value:
        value = self._beside(contained.operand, self._types.of(contained.operand))
        if self._constants is not None:
            arrays = next(self._constants)
            return _Value(_BOOLEAN, operations.is_in_array(value.column, value.type, arrays))
        constants = equal_constants(contained.values, value.type)
        return _Value(_BOOLEAN, operations.is_in(value.column, value.type, constants))

    @_of.register
    def _(self, like: Like) -> _Value:
        return _Value(_BOOLEAN, matches(self.of(like.operand).column, like.pattern))

    @_of.register
    def _(self, is_null: IsNull) -> _Value:
        return _Value(_BOOLEAN, self.of(is_null.operand).column.isNull())

    @_of.register
    def _(self, negated: Not) -> _Value:
        return _Value(_BOOLEAN, ~self.of(negated.operand).column)

    @_of.register
    def _(self, conjunction: And) -> _Value:
        return _Value(_BOOLEAN, operations.conjunction(self._columns(conjunction.operands)))

    @_of.register
    def _(self, disjunction: Or) -> _Value:
        return _Value(_BOOLEAN, operations.disjunction(self._columns(disjunction.operands)))

    @_of.register
    def _(self, call: FunctionCall) -> _Value:
        function = FUNCTIONS[call.function]
        if function.returns is ValueType.TEXT:
            functions: list[str] = []
            text: Expression = call
            while isinstance(text, FunctionCall):
                functions.insert(0, text.function)
                [text] = text.arguments
            return _Value(ValueType.TEXT, with_case(self.of(text).column, functions))
        pairs = zip(map(self._of, call.arguments), function.arguments, strict=True)
        arguments = [_double(value) if kind is _NUMBER else value.column for value, kind in pairs]
        return _Value(function.returns, operations.FUNCTIONS[call.function](*arguments))

    def _columns(self, expressions: Sequence[Expression]) -> list[Column]:
        return [self.of(expression).column for expression in expressions]

    def _double(self, expression: Expression) -> Column:
        """Returns an operand of arithmetic, in which NaN means null."""
        if isinstance(expression, Literal):
            return _double(self._beside(expression, _NUMBER))
        return _double(self._of(expression))

    def _beside(self, expression: Expression, kind: ValueType) -> _Value:
        """Compiles an operand; a constant varies, and takes the other operand's type if it fits."""
        if not isinstance(expression, Literal):
            return self.of(expression)
        actual, constant = constant_beside(expression, kind)
        if self._constants is None:
            return _Value(actual, operations.literal(constant, actual))
        return _Value(actual, operations.from_constant(next(self._constants), actual))


def _compared(operator: str, left: _Value, right: _Value) -> Column:
    compare = operations.comparison(operator, left.type, right.type)
    return compare(left.column, right.column)


def _double(value: _Value) -> Column:
    return value.column if value.type is _NUMBER else value.column.cast("double")
