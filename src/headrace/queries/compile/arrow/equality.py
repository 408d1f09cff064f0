"""Finds operands of a WHERE by which an index can look queries up: a value equals a constant."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.event import EventSchema
from headrace.queries.compile.arrow.compiler import compile_expression
from headrace.queries.compile.arrow.constants import Constant, equal_constants
from headrace.queries.compile.arrow.expression import CompiledExpression
from headrace.queries.language.tree import Comparison, Expression, In, Literal


@dataclass(frozen=True, slots=True, eq=False)
class IndexedEquality:
    """A condition that is met if the value of an expression is one of several constants.

    Attributes:
        expression: an expression that reads at least one column; all its constants are part of its
            shape.
        values: the distinct constants, as :meth:`CompiledExpression.evaluate` returns values, with
            times in microseconds since 1970; empty if the condition is never met, as where an
            integer is compared with ``1.5``.
    """

    expression: CompiledExpression
    values: tuple[Constant, ...]


def equality_of(operand: Expression, schema: EventSchema) -> IndexedEquality | None:
    """Returns a condition as an equality; ``None`` if it is none, or reads no column.

    Args:
        operand: a condition that has been checked: of a WHERE, or an operand of its ``AND``.
        schema: schema of the events.
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
    """Returns the expression and the constants of an equality or an ``IN``; otherwise ``None``."""
    match condition:
        case Comparison("=", Literal() as literal, expression):
            return expression, (literal,)
        case Comparison("=", expression, Literal() as literal):
            return expression, (literal,)
        case In(expression, literals):
            return expression, literals
        case _:
            return None
