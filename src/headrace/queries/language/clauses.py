"""The clauses of the language: how each begins, is parsed, ends and prints.

A text is parsed, and a tree is printed, by the table :data:`CLAUSES`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

from headrace.queries.language.parser import ClauseParser, ClauseText
from headrace.queries.language.printer import Printer
from headrace.queries.language.tree import DEFAULT_WINDOW, Aggregate, Expression, Query
from headrace.queries.language.words import QueryText, Words, at_depth_zero, is_word, starts_with


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause of the language.

    Attributes:
        words: the words that it begins with, its name. If several clauses begin with the words of a
            text, the longest name counts.
        field: name of the field of the query that it sets.
        parse: returns the value of the field.
        print: returns the text after the name that is parsed into a value of the field.
        last: words that end the clause right after its name. There, they begin no other clause.
        is_always_printed: whether it is printed also where the field has its default.
        is_for_silence: whether windows without events may have results by it.
    """

    words: tuple[str, ...]
    field: str
    parse: Callable[[ClauseParser, ClauseText], Any]
    print: Callable[[Printer, Any], str]
    last: tuple[str, ...] = ()
    is_always_printed: bool = False
    is_for_silence: bool = False

    @property
    def name(self) -> str:
        """The words of the name, with spaces."""
        return " ".join(self.words)


# A new clause: see "A clause of queries" in ARCHITECTURE.md. A new word in a name is read as the
# clause also in texts that are registered, where a field or a topic has that name unquoted.
CLAUSES = (
    Clause(("SELECT",), "results", ClauseParser.results, Printer.results),
    Clause(("FROM",), "topic", ClauseParser.topic, Printer.name),
    Clause(("WHERE",), "where", ClauseParser.condition, Printer.condition),
    Clause(("FACET",), "facets", ClauseParser.facets, Printer.facets),
    Clause(("LIMIT",), "max_groups", ClauseParser.whole_number, Printer.whole_number),
    Clause(("WINDOW",), "window", ClauseParser.duration, Printer.duration, is_always_printed=True),
    Clause(("SLIDE", "BY"), "slide", ClauseParser.duration, Printer.duration),
    Clause(("ALLOWED", "LATENESS"), "allowed_lateness", ClauseParser.duration, Printer.duration),
    Clause(("CLOSE", "BY"), "closing", ClauseParser.closing, Printer.closing),
    Clause(("EMIT",), "early", ClauseParser.early, Printer.early),
    Clause(
        ("EMPTY", "WINDOWS"),
        "emits_empty",
        ClauseParser.emits,
        Printer.emits,
        last=("EMIT", "SKIP"),
        is_for_silence=True,
    ),
    Clause(
        ("MATCHED", "EVENTS"),
        "emits_events",
        ClauseParser.emits,
        Printer.emits,
        last=("EMIT", "SKIP"),
    ),
    Clause(
        ("LOSS", "OF", "SIGNAL", "AFTER"),
        "loss_after",
        ClauseParser.windows,
        Printer.windows,
        is_for_silence=True,
    ),
)
"""The clauses, in the order in which they are printed.

In a text SELECT comes first, and FROM is needed; others may come in any order.
"""

_DEFAULTS = {field.name: field.default for field in fields(Query)}
_PRINTER = Printer({word for clause in CLAUSES for word in clause.words})


def parse_query(text: str) -> Query:
    """Returns the tree of a query.

    Names of fields and topics are not checked; :func:`check_query` checks fields.

    Raises:
        QueryTextError: if the text is no query.
    """
    query = QueryText(text)
    words = query.words()
    if not words or not is_word(words[0], "SELECT"):
        raise query.error_at(words, "a query begins with SELECT")
    parts: dict[str, tuple[Clause, ClauseText]] = {}
    for clause, part in clause_texts(words, CLAUSES):
        if clause.name in parts:
            raise query.error(part.begin, f"{clause.name} stands twice")
        parts[clause.name] = clause, part
    if "FROM" not in parts:
        raise query.error(len(text), "FROM and the name of a topic are missing")
    parser = ClauseParser(query)
    values = {clause.field: clause.parse(parser, part) for clause, part in parts.values()}
    values.setdefault("slide", values.get("window", DEFAULT_WINDOW))
    return Query(**values, clauses={name: part.begin for name, (_, part) in parts.items()})


def clause_texts(words: Words, clauses: Iterable[Clause]) -> list[tuple[Clause, ClauseText]]:
    """Returns the clauses of a text, of which the first word begins a clause."""
    by_first_word: dict[str, list[Clause]] = defaultdict(list)
    for clause in sorted(clauses, key=lambda clause: len(clause.words), reverse=True):
        by_first_word[clause.words[0]].append(clause)
    starts: list[tuple[Clause, int, int]] = []
    free = 0
    for index, word in at_depth_zero(words):
        for clause in by_first_word.get(word.text.upper(), ()):
            after = index + len(clause.words)
            if index >= free and starts_with(words[index:after], clause.words):
                starts.append((clause, index, after))
                free = after + any(starts_with(words[after:], [last]) for last in clause.last)
    ends = [index for _, index, _ in starts[1:]] + [len(words)]
    return [
        (
            clause,
            ClauseText(clause.name, words[after:end], words[index].start, words[after - 1].end + 1),
        )
        for (clause, index, after), end in zip(starts, ends, strict=True)
    ]


def print_query(query: Query) -> str:
    """Returns the text of a query, one clause per line, without most clauses of default values.

    Registered texts are compared with texts of this form, and shapes are named by them
    (:func:`~headrace.queries.match.shape.compile_query`). If a default that was left out before
    were printed, every registered query would have another text and another shape: a renewal would
    count as a change, which drops open windows, and instances would parse each text.
    """
    defaults = _DEFAULTS | {"slide": query.window}
    lines = []
    for clause in CLAUSES:
        value = getattr(query, clause.field)
        if clause.is_always_printed or value != defaults[clause.field]:
            lines.append(f"{clause.name} {clause.print(_PRINTER, value)}")
    return "\n".join(lines)


def print_expression(expression: Expression) -> str:
    """Returns the text of an expression."""
    return _PRINTER.expression(expression)


def print_aggregate(aggregate: Aggregate) -> str:
    """Returns the text of an aggregate."""
    return _PRINTER.aggregate(aggregate)
