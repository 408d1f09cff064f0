"""Parses the clauses of a query into parts of its tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from sqlglot.tokenizer_core import Token, TokenType

from headrace.queries.language.expressions import NAME, parse_expression, unknown_function
from headrace.queries.language.functions import AGGREGATES
from headrace.queries.language.tree import (
    Aggregate,
    ClosedBy,
    Closing,
    Expression,
    Facet,
    Literal,
    Result,
)
from headrace.queries.language.words import (
    QueryText,
    Words,
    at_depth_zero,
    duration,
    in_brackets,
    is_word,
    split_at_commas,
    starts_with,
    whole_number,
)

# Token types of aggregate names, some of which are keywords to sqlglot.
_NAMES = {TokenType.VAR, TokenType.FILTER}
_EXAMPLE_PARAMETERS = {"percentile": ("95",), "histogram": ("0", "10", "20")}
_TOPIC = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ClauseText:
    """A clause of a text.

    Attributes:
        name: words that it begins with.
        words: words after the clause's name.
        begin: position of the clause's first character.
        end: position after the clause's name.
    """

    name: str
    words: Words
    begin: int
    end: int


class ClauseParser:
    """Parses what follows the name of a clause.

    Each method raises a :class:`QueryTextError` if the words after the name are none of its kind.

    Args:
        text: of the query.
    """

    def __init__(self, text: QueryText) -> None:
        self._text = text

    def results(self, clause: ClauseText) -> tuple[Result, ...]:
        """Returns the columns of a result."""
        results = []
        for part in split_at_commas(clause.words):
            words, name = self._named(part)
            aggregate = self._aggregate(words, after=clause.end)
            results.append(Result(aggregate, name, position=aggregate.position))
        return tuple(results)

    def facets(self, clause: ClauseText) -> tuple[Facet, ...]:
        """Returns the expressions that group the events."""
        facets = []
        for part in split_at_commas(clause.words):
            words, name = self._named(part)
            expression = parse_expression(self._text, words, after=clause.end)
            facets.append(Facet(expression, name, position=expression.position))
        return tuple(facets)

    def _named(self, words: Words) -> tuple[Words, str]:
        """Returns the words before AS, and the name after it."""
        for index, word in at_depth_zero(words):
            if word.token_type is TokenType.ALIAS:
                name = words[index + 1 :]
                is_quoted = len(name) == 1 and name[0].token_type is TokenType.IDENTIFIER
                if not (is_quoted and name[0].text) and not NAME.fullmatch(self._text.of(name)):
                    reason = 'AS is followed by a name or a "name"'
                    raise self._text.error_at(name, reason, after=word.end + 1)
                return words[:index], name[0].text
        return words, ""

    def _aggregate(self, words: Words, *, after: int) -> Aggregate:
        arguments = in_brackets(words[1:])
        if arguments is None or words[0].token_type not in _NAMES:
            reason = "an aggregate is expected, such as count(*) or sum(price)"
            raise self._text.error_at(words, reason, after=after)
        name, parts = words[0].text.lower(), split_at_commas(arguments)
        if name == "filter":
            return self._filtered(words[0], parts)
        if name == "rate":
            return self._rate(words[0], parts)
        return self._plain(words[0], parts if arguments else [])

    def _filtered(self, word: Token, parts: list[Words]) -> Aggregate:
        form = "filter is used as in filter(count(*), WHERE price > 3)"
        if len(parts) != 2 or not starts_with(parts[1], ["WHERE"]):  # noqa: PLR2004
            raise self._text.error(word.start, form)
        inner = self._aggregate(parts[0], after=word.end + 1)
        if inner.where is not None:
            raise self._text.error(word.start, "filter holds no other filter; join them with AND")
        where = parse_expression(self._text, parts[1][1:], after=parts[1][0].end + 1)
        return Aggregate(
            inner.function, inner.argument, inner.parameters, where, inner.per, position=word.start
        )

    def _rate(self, word: Token, parts: list[Words]) -> Aggregate:
        if len(parts) != 2:  # noqa: PLR2004
            raise self._text.error(word.start, "rate is used as in rate(count(*), 1 second)")
        inner = self._aggregate(parts[0], after=word.end + 1)
        if inner.per is not None or not AGGREGATES[inner.function].has_rate:
            able = " and ".join(
                name for name, aggregate in AGGREGATES.items() if aggregate.has_rate
            )
            raise self._text.error(word.start, f"only {able} have a rate")
        per = duration(self._text, parts[1], after=word.end + 1)
        if not per:
            raise self._text.error_at(parts[1], "a rate needs a duration above zero")
        return Aggregate(inner.function, inner.argument, (), inner.where, per, position=word.start)

    def _plain(self, word: Token, parts: list[Words]) -> Aggregate:
        names = {name.lower(): name for name in AGGREGATES}
        function = names.get(word.text.lower())
        if function is None:
            known = {**AGGREGATES, "filter": None, "rate": None}
            raise self._text.error(word.start, unknown_function(word.text, known))
        expected = 1 + AGGREGATES[function].parameters
        if len(parts) != expected:
            value = self._text.of(parts[0]) if parts else "price"
            example = ", ".join([value, *_EXAMPLE_PARAMETERS.get(function, ())])
            count = f"{expected} argument{'s' if expected > 1 else ''}"
            reason = f"{function} takes {count}, as in {function}({example})"
            raise self._text.error(word.start, reason)
        parameters = tuple(self._number(part, after=word.end + 1) for part in parts[1:])
        argument = self._argument(word, function, parts[0])
        return Aggregate(function, argument, parameters, position=word.start)

    def _argument(self, word: Token, function: str, words: Words) -> Expression | None:
        if len(words) == 1 and words[0].token_type is TokenType.STAR:
            if function != "count":
                raise self._text.error(words[0].start, f"{function} needs a value, not *")
            return None
        return parse_expression(self._text, words, after=word.end + 1)

    def _number(self, words: Words, *, after: int) -> float:
        expression = parse_expression(self._text, words, after=after)
        if not isinstance(expression, Literal) or isinstance(expression.value, bool | str):
            raise self._text.error_at(words, "a number is expected", after=after)
        return float(expression.value)

    def topic(self, clause: ClauseText) -> str:
        """Returns the name of a topic."""
        words = clause.words
        if len(words) == 1 and words[0].token_type is TokenType.IDENTIFIER:
            return words[0].text
        name = self._text.of(words)
        if not _TOPIC.fullmatch(name):
            name, _, rest = name.partition(" ")
            if rest and _TOPIC.fullmatch(name):
                position = words[0].start + len(name) + 1
                raise self._text.error(position, f"no clause begins with {rest.split(' ')[0]}")
            reason = "FROM is followed by the name of one topic"
            raise self._text.error_at(words, reason, after=clause.end)
        return name

    def condition(self, clause: ClauseText) -> Expression:
        """Returns a condition."""
        return parse_expression(self._text, clause.words, after=clause.end)

    def whole_number(self, clause: ClauseText) -> int:
        """Returns a whole number."""
        return whole_number(self._text, clause.words, after=clause.end)

    def duration(self, clause: ClauseText) -> timedelta:
        """Returns a duration."""
        return duration(self._text, clause.words, after=clause.end)

    def closing(self, clause: ClauseText) -> Closing:
        """Returns the rule by which windows end."""
        for by in ClosedBy:
            words = by.value.split()
            if starts_with(clause.words, words):
                rest = clause.words[len(words) :]
                if by is ClosedBy.EVENT_TIME and not rest:
                    return Closing()
                if by is not ClosedBy.EVENT_TIME:
                    return Closing(by, duration(self._text, rest, after=clause.end))
        reason = "CLOSE BY is followed by EVENT TIME, QUIET TIME 30 seconds or CLOCK 30 seconds"
        raise self._text.error_at(clause.words, reason, after=clause.end)

    def early(self, clause: ClauseText) -> timedelta | None:
        """Returns the interval of early results; ``None`` if there are none."""
        words = clause.words
        if starts_with(words, ["FINAL"]) and len(words) == 1:
            return None
        if starts_with(words, ["EARLY", "EVERY"]):
            return duration(self._text, words[2:], after=words[1].end + 1)
        reason = "EMIT is followed by FINAL or EARLY EVERY 10 seconds"
        raise self._text.error_at(words, reason, after=clause.end)

    def emits(self, clause: ClauseText) -> bool:
        """Returns whether something is sent."""
        if len(clause.words) == 1:
            for word, emits in (("EMIT", True), ("SKIP", False)):
                if is_word(clause.words[0], word):
                    return emits
        reason = f"{clause.name} is followed by EMIT or SKIP"
        raise self._text.error_at(clause.words, reason, after=clause.end)

    def windows(self, clause: ClauseText) -> int:
        """Returns a number of windows."""
        words = clause.words
        if not words or not is_word(words[-1], "WINDOWS"):
            reason = "LOSS OF SIGNAL AFTER is followed by a number of WINDOWS"
            raise self._text.error_at(words, reason, after=clause.end)
        return whole_number(self._text, words[:-1], after=clause.end)
