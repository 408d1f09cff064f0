"""Operands of a WHERE that an index of queries can look up: a value equals a constant."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.event import EventSchema
from headrace.queries.evaluation.compiler import compile_expression
from headrace.queries.evaluation.constants import Constant, equal_constants
from headrace.queries.evaluation.expression import CompiledExpression
from headrace.queries.language.tree import Comparison, Expression, In, Literal


@dataclass(frozen=True, slots=True, eq=False)
class IndexedEquality:
    """A condition that is met where the value of an expression is one of several constants.

    Attributes:
        expression: reads at least one column; its constants are all part of its shape.
        values: the constants, each of them once, as :meth:`CompiledExpression.evaluate` returns
            them; times in microseconds since 1970. None if it can equal no constant, as an integer
            and ``1.5``: then the condition is never met.
    """

    expression: CompiledExpression
    values: tuple[Constant, ...]


def equality_of(operand: Expression, schema: EventSchema) -> IndexedEquality | None:
    """Returns the equality that a condition is; None: it is another condition.

    Args:
        operand: a condition that has been checked: that of a WHERE, or an operand of its ``AND``.
        schema: of the events.
    """
    compared = equated(operand)
    if compared is None:
        return None
    expression, literals = compared
    compiled = compile_expression(expression, schema, constants_vary=False)
    if not compiled.columns:
        return None
    return IndexedEquality(compiled, equal_constants(literals, compiled.type))


def equated(condition: Expression) -> tuple[Expression, tuple[Literal, ...]] | None:
    """Returns what equals one of some constants, and these; None: it is another condition."""
    match condition:
        case Comparison("=", Literal() as literal, expression):
            return expression, (literal,)
        case Comparison("=", expression, Literal() as literal):
            return expression, (literal,)
        case In(expression, literals):
            return expression, literals
        case _:
            return None
