"""Prints the tree of a query as a text that parses to an equal tree."""

from __future__ import annotations

from datetime import timedelta
from functools import singledispatch

import sqlglot
from sqlglot.tokenizer_core import TokenType

from headrace.queries.language.parser import CLAUSES
from headrace.queries.language.tree import (
    DEFAULT_MAX_GROUPS,
    Aggregate,
    And,
    Arithmetic,
    Between,
    ClosedBy,
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
    Query,
)
from headrace.queries.language.words import quoted_text

_UNITS = (
    ("day", timedelta(days=1)),
    ("hour", timedelta(hours=1)),
    ("minute", timedelta(minutes=1)),
    ("second", timedelta(seconds=1)),
)
_CLAUSE_WORDS = {word for clause in CLAUSES for word in clause.words}
_MAX_PLAIN = 1e15
_ATOMS = (Path, Literal, FunctionCall)


def print_query(query: Query) -> str:
    """Returns the text of a query, one clause per line, without most clauses of default values.

    Registered texts are compared with texts of this form, and shapes are named by them
    (:func:`~headrace.queries.match.shape.compile_query`). If a default that was left out before
    were printed, every registered query would have another text and another shape: a renewal would
    count as a change, which drops open windows, and instances would parse each text.
    """
    texts = {
        "SELECT": ", ".join(
            print_aggregate(result.aggregate) + _alias(result.name) for result in query.results
        ),
        "FROM": _name(query.topic),
        "WHERE": "" if query.where is None else print_expression(query.where),
        "FACET": ", ".join(
            print_expression(facet.expression) + _alias(facet.name) for facet in query.facets
        ),
        "LIMIT": "" if query.max_groups == DEFAULT_MAX_GROUPS else str(query.max_groups),
        "WINDOW": print_duration(query.window),
        "SLIDE BY": "" if query.slide == query.window else print_duration(query.slide),
        "ALLOWED LATENESS": "",
        "CLOSE BY": "",
        "EMIT": "" if query.early is None else f"EARLY EVERY {print_duration(query.early)}",
        "EMPTY WINDOWS": "EMIT" if query.emits_empty else "",
        "MATCHED EVENTS": "EMIT" if query.emits_events else "",
        "LOSS OF SIGNAL AFTER": f"{query.loss_after} WINDOWS" if query.loss_after else "",
    }
    if query.allowed_lateness:
        texts["ALLOWED LATENESS"] = print_duration(query.allowed_lateness)
    if query.closing.by is not ClosedBy.EVENT_TIME:
        texts["CLOSE BY"] = f"{query.closing.by.value} {print_duration(query.closing.after)}"
    return "\n".join(f"{name} {text}" for name, text in texts.items() if text)


def print_aggregate(aggregate: Aggregate) -> str:
    """Returns the text of an aggregate."""
    argument = "*" if aggregate.argument is None else print_expression(aggregate.argument)
    parameters = [
        f"{number:.0f}" if number.is_integer() and abs(number) < _MAX_PLAIN else repr(number)
        for number in aggregate.parameters
    ]
    text = f"{aggregate.function}({', '.join([argument, *parameters])})"
    if aggregate.where is not None:
        text = f"filter({text}, WHERE {print_expression(aggregate.where)})"
    if aggregate.per is not None:
        text = f"rate({text}, {print_duration(aggregate.per)})"
    return text


def print_duration(duration: timedelta) -> str:
    """Returns the text of a duration of whole seconds, in the largest unit without a remainder."""
    for name, unit in _UNITS if duration else _UNITS[-1:]:
        if duration % unit == timedelta(0):
            count = duration // unit
            return f"{count} {name}{'' if count == 1 else 's'}"
    raise ValueError(duration)


@singledispatch
def print_expression(expression: Expression) -> str:
    """Returns the text of an expression."""
    raise TypeError(type(expression))


@print_expression.register
def _(path: Path) -> str:
    return ".".join(map(_name, path.names))


@print_expression.register
def _(literal: Literal) -> str:
    if isinstance(literal.value, bool):
        return str(literal.value).upper()
    return quoted_text(literal.value) if isinstance(literal.value, str) else repr(literal.value)


@print_expression.register
def _(negative: Negative) -> str:
    # Without brackets, -3 would parse as a constant, not as the negative of 3.
    operand = print_expression(negative.operand)
    is_call_or_path = isinstance(negative.operand, Path | FunctionCall)
    return f"-{operand}" if is_call_or_path else f"-({operand})"


@print_expression.register
def _(binary: Arithmetic | Comparison) -> str:
    return f"{_operand(binary.left)} {binary.operator} {_operand(binary.right)}"


@print_expression.register
def _(between: Between) -> str:
    low, high = _operand(between.low), _operand(between.high)
    return f"{_operand(between.operand)} BETWEEN {low} AND {high}"


@print_expression.register
def _(contained: In) -> str:
    return (
        f"{_operand(contained.operand)} IN ({', '.join(map(print_expression, contained.values))})"
    )


@print_expression.register
def _(like: Like) -> str:
    return f"{_operand(like.operand)} LIKE {quoted_text(like.pattern)}"


@print_expression.register
def _(is_null: IsNull) -> str:
    return f"{_operand(is_null.operand)} IS NULL"


@print_expression.register
def _(negated: Not) -> str:
    return f"NOT {_operand(negated.operand)}"


@print_expression.register
def _(conjunction: And) -> str:
    return " AND ".join(map(_operand, conjunction.operands))


@print_expression.register
def _(disjunction: Or) -> str:
    return " OR ".join(map(_operand, disjunction.operands))


@print_expression.register
def _(call: FunctionCall) -> str:
    return f"{call.function}({', '.join(map(print_expression, call.arguments))})"


def _operand(expression: Expression) -> str:
    text = print_expression(expression)
    return text if isinstance(expression, _ATOMS) else f"({text})"


def _alias(name: str) -> str:
    return f" AS {_name(name)}" if name else ""


def _name(name: str) -> str:
    """Returns a name, in quotation marks if the parser would not read it as a name."""
    if name.isascii() and name.isidentifier() and name.upper() not in _CLAUSE_WORDS:
        words = sqlglot.tokenize(name)
        if len(words) == 1 and words[0].token_type is TokenType.VAR:
            return name
    return '"' + name.replace('"', '""') + '"'
