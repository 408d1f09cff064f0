"""Prints parts of the tree of a query as texts that parse to equal parts."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import timedelta
from functools import singledispatchmethod

import sqlglot
from sqlglot.tokenizer_core import TokenType

from headrace.queries.language.tree import (
    Aggregate,
    And,
    Arithmetic,
    Between,
    ClosedBy,
    Closing,
    Comparison,
    Expression,
    Facet,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Negative,
    Not,
    Or,
    Path,
    Result,
)
from headrace.queries.language.words import quoted_text

_UNITS = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
)
_MAX_PLAIN = 1e15
_ATOMS = (Path, Literal, FunctionCall)


class Printer:
    """Prints what follows the name of a clause, and what that is made of.

    Args:
        reserved: the words of clauses, in upper case: as names they are put in quotation marks.
    """

    def __init__(self, reserved: Container[str]) -> None:
        self._reserved = reserved

    def results(self, results: Sequence[Result]) -> str:
        """Returns the text of the columns of a result."""
        return ", ".join(
            self.aggregate(result.aggregate) + self._alias(result.name) for result in results
        )

    def facets(self, facets: Sequence[Facet]) -> str:
        """Returns the text of facets."""
        return ", ".join(
            self.expression(facet.expression) + self._alias(facet.name) for facet in facets
        )

    def condition(self, condition: Expression) -> str:
        """Returns the text of a condition."""
        return self.expression(condition)

    def whole_number(self, number: int) -> str:
        """Returns the text of a whole number."""
        return str(number)

    def duration(self, duration: timedelta) -> str:
        """Returns the text of a duration of whole seconds."""
        return print_duration(duration)

    def closing(self, closing: Closing) -> str:
        """Returns the text of a rule by which windows end."""
        after = "" if closing.by is ClosedBy.EVENT_TIME else f" {print_duration(closing.after)}"
        return f"{closing.by.value}{after}"

    def early(self, interval: timedelta) -> str:
        """Returns the text of the interval of early results."""
        return f"EARLY EVERY {print_duration(interval)}"

    def emits(self, emits: bool) -> str:
        """Returns the text of whether something is sent."""
        return "EMIT" if emits else "SKIP"

    def windows(self, count: int) -> str:
        """Returns the text of a number of windows."""
        return f"{count} WINDOWS"

    def name(self, name: str) -> str:
        """Returns a name, in quotation marks if the parser would not read it as a name."""
        if name.isascii() and name.isidentifier() and name.upper() not in self._reserved:
            words = sqlglot.tokenize(name)
            if len(words) == 1 and words[0].token_type is TokenType.VAR:
                return name
        return '"' + name.replace('"', '""') + '"'

    def aggregate(self, aggregate: Aggregate) -> str:
        """Returns the text of an aggregate."""
        argument = "*" if aggregate.argument is None else self.expression(aggregate.argument)
        parameters = [
            f"{number:.0f}" if number.is_integer() and abs(number) < _MAX_PLAIN else repr(number)
            for number in aggregate.parameters
        ]
        text = f"{aggregate.function}({', '.join([argument, *parameters])})"
        if aggregate.where is not None:
            text = f"filter({text}, WHERE {self.expression(aggregate.where)})"
        if aggregate.per is not None:
            text = f"rate({text}, {print_duration(aggregate.per)})"
        return text

    @singledispatchmethod
    def expression(self, expression: Expression) -> str:
        """Returns the text of an expression."""
        raise TypeError(type(expression))

    @expression.register
    def _(self, path: Path) -> str:
        return ".".join(map(self.name, path.names))

    @expression.register
    def _(self, literal: Literal) -> str:
        if isinstance(literal.value, bool):
            return str(literal.value).upper()
        return quoted_text(literal.value) if isinstance(literal.value, str) else repr(literal.value)

    @expression.register
    def _(self, negative: Negative) -> str:
        # Without brackets, -3 would parse as a constant, not as the negative of 3.
        operand = self.expression(negative.operand)
        is_call_or_path = isinstance(negative.operand, Path | FunctionCall)
        return f"-{operand}" if is_call_or_path else f"-({operand})"

    @expression.register
    def _(self, binary: Arithmetic | Comparison) -> str:
        return f"{self._operand(binary.left)} {binary.operator} {self._operand(binary.right)}"

    @expression.register
    def _(self, between: Between) -> str:
        low, high = self._operand(between.low), self._operand(between.high)
        return f"{self._operand(between.operand)} BETWEEN {low} AND {high}"

    @expression.register
    def _(self, contained: In) -> str:
        values = ", ".join(map(self.expression, contained.values))
        return f"{self._operand(contained.operand)} IN ({values})"

    @expression.register
    def _(self, like: Like) -> str:
        return f"{self._operand(like.operand)} LIKE {quoted_text(like.pattern)}"

    @expression.register
    def _(self, is_null: IsNull) -> str:
        return f"{self._operand(is_null.operand)} IS NULL"

    @expression.register
    def _(self, negated: Not) -> str:
        return f"NOT {self._operand(negated.operand)}"

    @expression.register
    def _(self, conjunction: And) -> str:
        return " AND ".join(map(self._operand, conjunction.operands))

    @expression.register
    def _(self, disjunction: Or) -> str:
        return " OR ".join(map(self._operand, disjunction.operands))

    @expression.register
    def _(self, call: FunctionCall) -> str:
        return f"{call.function}({', '.join(map(self.expression, call.arguments))})"

    def _operand(self, expression: Expression) -> str:
        text = self.expression(expression)
        return text if isinstance(expression, _ATOMS) else f"({text})"

    def _alias(self, name: str) -> str:
        return f" AS {self.name(name)}" if name else ""


def print_duration(duration: timedelta) -> str:
    """Returns the text of a duration of whole seconds, in the largest unit without a remainder."""
    for name, unit in _UNITS if duration else _UNITS[-1:]:
        if duration % unit == timedelta(0):
            count = duration // unit
            return f"{count} {name}{'' if count == 1 else 's'}"
    raise ValueError(duration)
