"""Parses expressions with sqlglot, and converts those of its nodes that the language has."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, ClassVar

from sqlglot import Parser, exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import TokenType

from headrace.errors import QueryTextError
from headrace.queries.language.functions import AGGREGATES, FUNCTIONS
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
from headrace.queries.language.words import MAX_DEPTH, QueryText, Words, quoted_text

MAX_LIST_VALUES = 1_000
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_COMPARISONS = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_PARTS: dict[type, set[str]] = {
    exp.Anonymous: {"this", "expressions"},
    exp.Between: {"this", "low", "high"},
    exp.Column: {"this", "table", "db", "catalog"},
    exp.In: {"this", "expressions"},
    exp.Like: {"this", "expression", "negate"},
    exp.Literal: {"this", "is_string"},
}
_OTHER_PARTS = {"this", "expression"}
_MAX_INTEGER = 2**63 - 1
_MAX_DIGITS = 19
_MAX_SHOWN = 40
# Brackets after other names are refused: sqlglot takes some names for types, and tries to parse
# the brackets in many ways.
_OPERATORS = "in and or not between = != <> < <= > >= + - * / ( ,"
_BEFORE_BRACKETS = {*_OPERATORS.split(), *map(str.lower, FUNCTIONS)}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class _CallParser(Parser):
    """A parser without functions of SQL, so that every call becomes an anonymous call."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {}

    def _warn_unsupported(self) -> None:
        """Logs nothing, as unsupported texts are refused."""


def parse_expression(text: QueryText, words: Words, *, after: int) -> Expression:
    """Returns the expression that words spell.

    Args:
        text: text of the query.
        words: words of the expression.
        after: position of the error if there are no words.

    Raises:
        QueryTextError: if the words are no expression of this language.
    """
    if not words:
        raise text.error(after, "an expression is missing")
    for word, following in pairwise(words):
        if following.token_type is TokenType.L_PAREN and word.text.lower() not in _BEFORE_BRACKETS:
            raise text.error(word.start, unknown_function(word.text, FUNCTIONS))
    try:
        parsed = _CallParser().parse(list(words), text.text)
    except ParseError as error:
        raise _syntax_error(text, words, error) from error
    except RecursionError as error:
        raise text.error_at(words, f"it is nested deeper than {MAX_DEPTH} levels") from error
    if len(parsed) != 1 or parsed[0] is None:
        raise text.error_at(words, "this is no expression")
    return _Conversion(text, words[0].start).expression(parsed[0], 0)


def _syntax_error(text: QueryText, words: Words, error: ParseError) -> QueryTextError:
    facts = error.errors[0] if error.errors else {}
    token = str(facts.get("highlight") or "")
    # sqlglot's column is that of the token's last character.
    line, column = facts.get("line"), facts.get("col")
    position = words[0].start
    if token and line is not None and column is not None:
        position = text.position(int(line), int(column)) - len(token) + 1
    if token.upper() == "DISTINCT":
        reason = "different values are counted by uniqueCount: write uniqueCount(x)"
        return text.error(position, reason)
    near = f" near {token!r}" if token else ""
    return text.error(position, f"the expression is not valid{near}")


class _Conversion:
    """Converts sqlglot's tree to ours, node by node, and refuses nodes that are not listed."""

    def __init__(self, text: QueryText, position: int) -> None:
        self._text, self._position = text, position
        self._makers: dict[type, Callable[[Any, int], Expression]] = {
            exp.Paren: lambda node, depth: self.expression(node.this, depth),
            exp.Column: self._path,
            exp.Dot: self._path,
            exp.Literal: lambda node, _: self._literal(node, negative=False),
            exp.Boolean: lambda node, _: Literal(bool(node.this), position=self._at(node)),
            exp.Neg: self._negative,
            exp.Not: lambda node, depth: Not(self._of(node, depth), position=self._at(node)),
            exp.And: self._connected,
            exp.Or: self._connected,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Like: self._like,
            exp.Is: self._is,
            exp.Anonymous: self._call,
        }
        self._makers |= dict.fromkeys(_ARITHMETIC, self._arithmetic)
        self._makers |= dict.fromkeys(_COMPARISONS, self._comparison)

    def expression(self, node: exp.Expr, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise self._error(node, f"it is nested deeper than {MAX_DEPTH} levels")
        maker = self._makers.get(type(node))
        parts = {name for name, value in node.args.items() if value}
        if maker is None or parts - _PARTS.get(type(node), _OTHER_PARTS):
            name = _NAMES_IN_MESSAGES.get(type(node), type(node).__name__.upper())
            raise self._error(node, f"{name} is not part of the language")
        return maker(node, depth)

    def _of(self, node: exp.Expr, depth: int) -> Expression:
        return self.expression(node.this, depth + 1)

    def _at(self, node: exp.Expr) -> int:
        starts = [int(part.meta["start"]) for part in node.walk() if "start" in part.meta]
        return min(starts, default=self._position)

    def _error(self, node: exp.Expr, reason: str) -> QueryTextError:
        return self._text.error(self._at(node), reason)

    def _path(self, node: Any, _: int) -> Path:
        names = []
        for part in _path_parts(node):
            if not isinstance(part, exp.Identifier):
                raise self._error(node, "a path has names alone, such as repo.owner")
            name = str(part.this)
            if not part.args.get("quoted") and not NAME.fullmatch(name):
                raise self._error(node, f'{name!r} is no name; put other names into "..."')
            names.append(name)
        return Path(tuple(names), position=self._at(node))

    def _literal(self, node: exp.Literal, *, negative: bool) -> Literal:
        position = self._at(node)
        if node.is_string:
            return Literal(str(node.this), position=position)
        digits = str(node.this)
        if digits.isdecimal():
            significant = digits.lstrip("0") or "0"
            # Python parses no integer of more than 4,300 digits. In 64 bits, there is one more
            # negative integer than positive ones.
            if len(significant) > _MAX_DIGITS or int(significant) > _MAX_INTEGER + negative:
                raise self._error(node, f"{digits[:_MAX_SHOWN]} does not fit into 64 bits")
            whole = int(significant)
            return Literal(-whole if negative else whole, position=position)
        try:
            number = -float(digits) if negative else float(digits)
        except ValueError:
            raise self._error(node, f"{digits[:_MAX_SHOWN]!r} is no number") from None
        if not math.isfinite(number):
            raise self._error(node, f"{digits[:_MAX_SHOWN]} is too large for a number")
        return Literal(number, position=position)

    def _negative(self, node: exp.Neg, depth: int) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self._literal(node.this, negative=True)
        return Negative(self._of(node, depth), position=self._at(node))

    def _arithmetic(self, node: exp.Binary, depth: int) -> Arithmetic:
        left, right = self._both(node, depth)
        return Arithmetic(_ARITHMETIC[type(node)], left, right, position=self._at(node))

    def _comparison(self, node: exp.Binary, depth: int) -> Comparison:
        left, right = self._both(node, depth)
        return Comparison(_COMPARISONS[type(node)], left, right, position=self._at(node))

    def _both(self, node: exp.Binary, depth: int) -> tuple[Expression, Expression]:
        return self.expression(node.left, depth + 1), self.expression(node.right, depth + 1)

    def _connected(self, node: exp.Connector, depth: int) -> Expression:
        connector = type(node)
        operands = tuple(
            self.expression(operand, depth + 1) for operand in _operands(node, connector)
        )
        made = And if connector is exp.And else Or
        return made(operands, position=self._at(node))

    def _in(self, node: exp.In, depth: int) -> In:
        values = node.expressions
        if not values:
            raise self._error(node, "IN is followed by constants in brackets")
        if len(values) > MAX_LIST_VALUES:
            raise self._error(node, f"IN has at most {MAX_LIST_VALUES:,} values")
        for value in values:
            self._refuse_name(value)
        constants = [self.expression(value, depth + 1) for value in values]
        literals = tuple(constant for constant in constants if isinstance(constant, Literal))
        if len(literals) < len(constants):
            raise self._error(node, "IN is followed by constants in brackets")
        return In(self._of(node, depth), literals, position=self._at(node))

    def _refuse_name(self, node: exp.Expr) -> None:
        """Refuses a name in ``"..."`` where a constant is expected; the error shows the text."""
        if isinstance(node, exp.Column) and node.this.args.get("quoted"):
            raise self._error(node, f"texts are put into '...': write {quoted_text(node.name)}")

    def _between(self, node: exp.Between, depth: int) -> Between:
        low, high = (self.expression(node.args[name], depth + 1) for name in ("low", "high"))
        return Between(self._of(node, depth), low, high, position=self._at(node))

    def _like(self, node: exp.Like, depth: int) -> Expression:
        pattern = node.expression
        self._refuse_name(pattern)
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            raise self._error(node, "LIKE is followed by a text in quotation marks")
        position = self._at(node)
        like = Like(self._of(node, depth), str(pattern.this), position=position)
        return Not(like, position=position) if node.args.get("negate") else like

    def _is(self, node: exp.Is, depth: int) -> IsNull:
        if not isinstance(node.expression, exp.Null):
            raise self._error(node, "IS is followed by NULL or NOT NULL")
        return IsNull(self._of(node, depth), position=self._at(node))

    def _call(self, node: exp.Anonymous, depth: int) -> FunctionCall:
        name = _NAMES.get(str(node.this).lower())
        if name is None:
            raise self._error(node, unknown_function(str(node.this), FUNCTIONS))
        arguments = tuple(self.expression(argument, depth + 1) for argument in node.expressions)
        return FunctionCall(name, arguments, position=self._at(node))


_NAMES = {name.lower(): name for name in FUNCTIONS}
_NAMES_IN_MESSAGES: dict[type, str] = {
    exp.Null: "NULL, but in IS NULL,",
    exp.Star: "*, but in count(*),",
    exp.ILike: "ILIKE",
    exp.Subquery: "a subquery",
    exp.Select: "a subquery",
    exp.Alias: "a name after an expression, without AS,",
}


def unknown_function(name: str, known: dict[str, Any]) -> str:
    """Returns the message that a function is unknown, with a close name if there is one."""
    lower = {function.lower(): function for function in known}
    if name.lower() in {function.lower() for function in AGGREGATES}:
        return f"{name!r} is an aggregate; it stands in SELECT, and not within another expression"
    close = get_close_matches(name.lower(), lower, n=1)
    meant = f"; did you mean {lower[close[0]]!r}?" if close else f"; there are {', '.join(known)}"
    return f"there is no function {name!r}{meant}"


def _operands(node: exp.Expr, connector: type) -> Iterator[exp.Expr]:
    """Yields the operands of a chain from left to right, without recursion."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        while isinstance(part, exp.Paren):
            part = part.this
        if type(part) is connector:
            waiting += [part.args["expression"], part.args["this"]]
        else:
            yield part


def _path_parts(node: exp.Expr) -> list[exp.Expr]:
    """Returns the nodes between the dots of a path, of any type."""
    parts: list[exp.Expr] = []
    while isinstance(node, exp.Dot):
        parts.insert(0, node.expression)
        node = node.this
    return [*(node.parts if isinstance(node, exp.Column) else [node]), *parts]
