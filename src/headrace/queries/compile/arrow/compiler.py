"""Compiles the tree of an expression into operations on Arrow columns."""

from __future__ import annotations

from functools import partial, singledispatchmethod

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.event import EventSchema
from headrace.queries.compile.arrow import kernels, patterns
from headrace.queries.compile.arrow.constants import Constant, constant_beside, equal_constants
from headrace.queries.compile.arrow.expression import (
    ARROW_TYPES,
    CompiledExpression,
    Operands,
    Operation,
)
from headrace.queries.compile.arrow.kernels import Datum, Kernel
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

_BOOLEAN, _NUMBER = ValueType.BOOLEAN, ValueType.NUMBER
_FUNCTIONS: dict[str, Kernel] = {
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
    "length": kernels.length,
    "startsWith": kernels.starts_with,
    "endsWith": kernels.ends_with,
    "contains": kernels.contains,
    "abs": pc.abs,
    "floor": pc.floor,
    "ceil": pc.ceil,
}


def compile_expression(
    expression: Expression, schema: EventSchema, *, constants_vary: bool = True
) -> CompiledExpression:
    """Returns a compiled expression that can be evaluated on columns of events.

    Varying constants are operands of comparisons, of ``BETWEEN`` and ``IN``, and of arithmetic.
    Other constants are part of the shape: arguments of functions, patterns, and conditions such as
    ``TRUE``. Case is converted character by character: each character becomes exactly one.

    Args:
        expression: an expression that has been checked.
        schema: schema of the events.
        constants_vary: whether constants may vary; if ``False``, all are part of the shape.
    """
    compiler = _Compiler(schema, constants_vary=constants_vary)
    operation = compiler.of(expression)
    return CompiledExpression(
        operation.shape,
        tuple(compiler.constants),
        tuple(compiler.constant_types),
        frozenset(compiler.columns),
        operation,
    )


class _Compiler:
    def __init__(self, schema: EventSchema, *, constants_vary: bool) -> None:
        self._types, self._constants_vary = ExpressionTypes(schema), constants_vary
        self.constants: list[Constant | tuple[Constant, ...]] = []
        self.constant_types: list[pa.DataType] = []
        self.columns: set[str] = set()

    @singledispatchmethod
    def of(self, expression: Expression) -> Operation:
        raise TypeError(type(expression))

    @of.register
    def _(self, path: Path) -> Operation:
        self.columns.add(path.names[0])
        kind = self._types.of(path)
        read = partial(_column, path.names, ARROW_TYPES[kind])
        return Operation(kind, f"field{path.names!r}", read)

    @of.register
    def _(self, literal: Literal) -> Operation:
        kind = self._types.of(literal)
        return _fixed(kind, literal.value, ARROW_TYPES[kind])

    @of.register
    def _(self, negative: Negative) -> Operation:
        return _applied("-", pc.negate, _NUMBER, self._double(negative.operand))

    @of.register
    def _(self, arithmetic: Arithmetic) -> Operation:
        left, right = self._double(arithmetic.left), self._double(arithmetic.right)
        operator = arithmetic.operator
        return _applied(operator, kernels.ARITHMETIC[operator], _NUMBER, left, right)

    @of.register
    def _(self, comparison: Comparison) -> Operation:
        left = self._beside(comparison.left, self._types.of(comparison.right))
        right = self._beside(comparison.right, self._types.of(comparison.left))
        operator = comparison.operator
        compare = kernels.comparison(operator, left.type, right.type)
        return _applied(operator, compare, _BOOLEAN, left, right)

    @of.register
    def _(self, between: Between) -> Operation:
        operand, low, high = between.operand, between.low, between.high
        # A constant operand may be converted to another type for each end.
        if isinstance(operand, Literal):
            ends = (Comparison(">=", operand, low), Comparison("<=", operand, high))
            return self.of(And(ends))
        values = self.of(operand)
        lowest, highest = self._beside(low, values.type), self._beside(high, values.type)
        is_between = kernels.between(
            kernels.comparison(">=", values.type, lowest.type),
            kernels.comparison("<=", values.type, highest.type),
        )
        return _applied("BETWEEN", is_between, _BOOLEAN, values, lowest, highest)

    @of.register
    def _(self, contained: In) -> Operation:
        values = self._beside(contained.operand, self._types.of(contained.operand))
        constants = equal_constants(contained.values, values.type)
        listed = self._constant(values.type, constants, pa.list_(ARROW_TYPES[values.type]))
        return _applied("IN", kernels.is_in, _BOOLEAN, values, listed)

    @of.register
    def _(self, like: Like) -> Operation:
        name, matches = f"LIKE {like.pattern!r} ", patterns.like(like.pattern)
        return _applied(name, matches, _BOOLEAN, self.of(like.operand))

    @of.register
    def _(self, is_null: IsNull) -> Operation:
        return _applied("IS NULL", pc.is_null, _BOOLEAN, self.of(is_null.operand))

    @of.register
    def _(self, negated: Not) -> Operation:
        return _applied("NOT", pc.invert, _BOOLEAN, self.of(negated.operand))

    @of.register
    def _(self, conjunction: And) -> Operation:
        operands = map(self.of, conjunction.operands)
        return _applied("AND", kernels.conjunction, _BOOLEAN, *operands)

    @of.register
    def _(self, disjunction: Or) -> Operation:
        operands = map(self.of, disjunction.operands)
        return _applied("OR", kernels.disjunction, _BOOLEAN, *operands)

    @of.register
    def _(self, call: FunctionCall) -> Operation:
        function = FUNCTIONS[call.function]
        pairs = zip(map(self.of, call.arguments), function.arguments, strict=True)
        arguments = (
            _as_double(argument) if kind is _NUMBER else argument for argument, kind in pairs
        )
        return _applied(call.function, _FUNCTIONS[call.function], function.returns, *arguments)

    def _double(self, expression: Expression) -> Operation:
        return _as_double(self._beside(expression, _NUMBER))

    def _beside(self, expression: Expression, kind: ValueType) -> Operation:
        """Compiles an operand; a constant varies, and takes the other operand's type if it fits."""
        if not isinstance(expression, Literal):
            return self.of(expression)
        actual, constant = constant_beside(expression, kind)
        return self._constant(actual, constant, ARROW_TYPES[actual])

    def _constant(
        self, kind: ValueType, constant: Constant | tuple[Constant, ...], arrow_type: pa.DataType
    ) -> Operation:
        if not self._constants_vary:
            return _fixed(kind, constant, arrow_type)
        index = len(self.constants)
        self.constants.append(constant)
        self.constant_types.append(arrow_type)
        return Operation(kind, f"?{arrow_type}", lambda operands: operands.constants[index])


def _applied(name: str, kernel: Kernel, returns: ValueType, *operands: Operation) -> Operation:
    def evaluate(rows: Operands) -> Datum:
        return kernel(*(operand.evaluate(rows) for operand in operands))

    shapes = ", ".join(operand.shape for operand in operands)
    return Operation(returns, f"{name}({shapes})", evaluate)


def _as_double(operand: Operation) -> Operation:
    if operand.type is _NUMBER:
        return operand
    return _applied("double", kernels.doubles, _NUMBER, operand)


def _fixed(
    kind: ValueType, constant: Constant | tuple[Constant, ...], arrow_type: pa.DataType
) -> Operation:
    scalar = pa.scalar(constant, arrow_type)
    return Operation(kind, repr(constant), lambda _: scalar)


def _column(names: tuple[str, ...], arrow_type: pa.DataType, operands: Operands) -> pa.Array:
    name, *members = names
    column = operands.columns[name]
    if members:
        column = pc.struct_field(column, members)
    if pa.types.is_decimal(column.type):
        # Arrow does not always cast a decimal to the nearest double, but it parses texts to it.
        column = column.cast(pa.string())
    return column if column.type == arrow_type else column.cast(arrow_type)
