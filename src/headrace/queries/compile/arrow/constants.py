"""Converts constants of expressions to the type of the operand beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from headrace.events.times import microseconds_since_1970
from headrace.queries.language.checks import time_literal
from headrace.queries.language.functions import ValueType
from headrace.queries.language.tree import Literal

Constant: TypeAlias = str | int | float | bool
_END_OF_INTEGERS = 2**63


def constant_beside(literal: Literal, beside: ValueType) -> tuple[ValueType, Constant]:
    """Returns a constant in another type if that type has its exact value, or else in its own.

    Args:
        literal: the constant.
        beside: the type of the other operand. A text beside a time becomes a time, in microseconds
            since 1970.
    """
    match literal.value, beside:
        case str(text), ValueType.TIME:
            moment = time_literal(text)
            if moment is None:
                raise ValueError(f"{text!r} is no time with a time zone")
            return ValueType.TIME, microseconds_since_1970(moment)
        case str(text), _:
            return ValueType.TEXT, text
        case bool(boolean), _:
            return ValueType.BOOLEAN, boolean
        case number, _:
            return _number_beside(number, beside)


def equal_constants(literals: Iterable[Literal], kind: ValueType) -> tuple[Constant, ...]:
    """Returns the distinct constants that a value of a type can equal, in that type."""
    typed = (constant_beside(literal, kind) for literal in literals)
    return tuple(dict.fromkeys(constant for actual, constant in typed if actual is kind))


def _number_beside(number: float, beside: ValueType) -> tuple[ValueType, Constant]:
    match number, beside:
        case int(integer), ValueType.NUMBER if int(float(integer)) == integer:
            return ValueType.NUMBER, float(integer)
        case int(integer), _:
            return ValueType.INTEGER, integer
        case _, ValueType.INTEGER if number.is_integer():
            if -_END_OF_INTEGERS <= number < _END_OF_INTEGERS:
                return ValueType.INTEGER, int(number)
    # Adding 0.0 turns -0.0 into 0.0: Arrow's hashes distinguish them.
    return ValueType.NUMBER, number + 0.0
