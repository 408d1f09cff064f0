"""Parses the text of a query into its tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from headrace.queries.language.expressions import NAME, parse_expression, unknown_function
from headrace.queries.language.functions import AGGREGATES
from headrace.queries.language.tree import (
    DEFAULT_WINDOW,
    Aggregate,
    ClosedBy,
    Closing,
    Expression,
    Facet,
    Literal,
    Query,
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
CLAUSES = (
    ("SELECT",),
    ("FROM",),
    ("WHERE",),
    ("FACET",),
    ("LIMIT",),
    ("WINDOW",),
    ("SLIDE", "BY"),
    ("ALLOWED", "LATENESS"),
    ("CLOSE", "BY"),
    ("EMIT",),
    ("EMPTY", "WINDOWS"),
    ("MATCHED", "EVENTS"),
    ("LOSS", "OF", "SIGNAL", "AFTER"),
)
"""The words of the clauses. SELECT comes first, FROM next; others may come in any order."""
_BY_FIRST_WORD = {clause[0]: clause for clause in CLAUSES}
_EMITTED = (("EMPTY", "WINDOWS"), ("MATCHED", "EVENTS"))


def parse_query(text: str) -> Query:
    """Returns the tree of a query.

    Names of fields and topics are not checked; :func:`check_query` checks fields.

    Raises:
        QueryTextError: if the text is no query.
    """
    return _QueryParser(QueryText(text)).query()


@dataclass(frozen=True, slots=True)
class _Clause:
    """A clause of a text.

    Attributes:
        words: words after the clause's name.
        begin: position of the clause's first character.
        end: position after the clause's name.
    """

    words: Words
    begin: int
    end: int


class _QueryParser:
    def __init__(self, text: QueryText) -> None:
        self._text = text

    def query(self) -> Query:
        words = self._text.words()
        if not words or not is_word(words[0], "SELECT"):
            raise self._text.error_at(words, "a query begins with SELECT")
        clauses = self._clauses(words)
        if "FROM" not in clauses:
            raise self._text.error(len(self._text.text), "FROM and the name of a topic are missing")
        makers: Mapping[str, tuple[str, Callable[[_Clause], Any]]] = {
            "WHERE": ("where", self._condition),
            "FACET": ("facets", self._facets),
            "LIMIT": ("max_groups", self._whole_number),
            "WINDOW": ("window", self._duration),
            "SLIDE BY": ("slide", self._duration),
            "ALLOWED LATENESS": ("allowed_lateness", self._duration),
            "CLOSE BY": ("closing", self._closing),
            "EMIT": ("early", self._early),
            "EMPTY WINDOWS": ("emits_empty", partial(self._emits, "EMPTY WINDOWS")),
            "MATCHED EVENTS": ("emits_events", partial(self._emits, "MATCHED EVENTS")),
            "LOSS OF SIGNAL AFTER": ("loss_after", self._windows),
        }
        fields = {
            field: make(clauses[name]) for name, (field, make) in makers.items() if name in clauses
        }
        fields.setdefault("slide", fields.get("window", DEFAULT_WINDOW))
        results = self._results(clauses["SELECT"])
        positions = {name: clause.begin for name, clause in clauses.items()}
        return Query(results, self._topic(clauses["FROM"]), **fields, clauses=positions)

    def _clauses(self, words: Words) -> dict[str, _Clause]:
        begins = [
            (index, name)
            for index, word in at_depth_zero(words)
            if (name := _BY_FIRST_WORD.get(word.text.upper()))
            and starts_with(words[index : index + len(name)], name)
            # EMIT in EMPTY WINDOWS EMIT or MATCHED EVENTS EMIT begins no clause.
            and not any(
                starts_with(words[max(index - 2, 0) : index], emitted) for emitted in _EMITTED
            )
        ]
        clauses: dict[str, _Clause] = {}
        ends = [index for index, _ in begins[1:]] + [len(words)]
        for (begin, name), end in zip(begins, ends, strict=True):
            text = " ".join(name)
            if text in clauses:
                raise self._text.error(words[begin].start, f"{text} stands twice")
            after = words[begin + len(name) - 1].end + 1
            own = words[begin + len(name) : end]
            clauses[text] = _Clause(own, words[begin].start, after)
        return clauses

    def _results(self, clause: _Clause) -> tuple[Result, ...]:
        results = []
        for part in split_at_commas(clause.words):
            words, name = self._named(part)
            aggregate = self._aggregate(words, after=clause.end)
            results.append(Result(aggregate, name, position=aggregate.position))
        return tuple(results)

    def _facets(self, clause: _Clause) -> tuple[Facet, ...]:
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
                return words[:index], self._name(words[index + 1 :], after=word.end + 1)
        return words, ""

    def _name(self, words: Words, *, after: int) -> str:
        is_quoted = len(words) == 1 and words[0].token_type is TokenType.IDENTIFIER
        if not (is_quoted and words[0].text) and not NAME.fullmatch(self._text.of(words)):
            raise self._text.error_at(words, 'AS is followed by a name or a "name"', after=after)
        return words[0].text

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

    def _topic(self, clause: _Clause) -> str:
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

    def _condition(self, clause: _Clause) -> Expression:
        return parse_expression(self._text, clause.words, after=clause.end)

    def _whole_number(self, clause: _Clause) -> int:
        return whole_number(self._text, clause.words, after=clause.end)

    def _duration(self, clause: _Clause) -> timedelta:
        return duration(self._text, clause.words, after=clause.end)

    def _closing(self, clause: _Clause) -> Closing:
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

    def _early(self, clause: _Clause) -> timedelta | None:
        words = clause.words
        if starts_with(words, ["FINAL"]) and len(words) == 1:
            return None
        if starts_with(words, ["EARLY", "EVERY"]):
            return duration(self._text, words[2:], after=words[1].end + 1)
        reason = "EMIT is followed by FINAL or EARLY EVERY 10 seconds"
        raise self._text.error_at(words, reason, after=clause.end)

    def _emits(self, name: str, clause: _Clause) -> bool:
        if len(clause.words) == 1:
            for word, emits in (("EMIT", True), ("SKIP", False)):
                if is_word(clause.words[0], word):
                    return emits
        reason = f"{name} is followed by EMIT or SKIP"
        raise self._text.error_at(clause.words, reason, after=clause.end)

    def _windows(self, clause: _Clause) -> int:
        words = clause.words
        if not words or not is_word(words[-1], "WINDOWS"):
            reason = "LOSS OF SIGNAL AFTER is followed by a number of WINDOWS"
            raise self._text.error_at(words, reason, after=clause.end)
        return whole_number(self._text, words[:-1], after=clause.end)
