"""Splits the text of a query into tokens, and checks and groups tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

import sqlglot
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from headrace.errors import QueryTextError

MAX_CHARACTERS = 20_000
MAX_TOKENS = 4_000
MAX_DEPTH = 30
# sqlglot parses brackets after names of types twice, and logs paths after arrows.
_NOT_OF_THE_LANGUAGE = {
    TokenType.L_BRACKET,
    TokenType.R_BRACKET,
    TokenType.L_BRACE,
    TokenType.R_BRACE,
    TokenType.ARROW,
    TokenType.DARROW,
    TokenType.HASH_ARROW,
    TokenType.DHASH_ARROW,
}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE}
_QUOTED = {TokenType.IDENTIFIER: '"', TokenType.STRING: "'"}
# Clauses of SQL that this language does not have.
_SQL_CLAUSES = {
    TokenType.GROUP_BY: "groups are made by FACET: write FACET in place of GROUP BY",
    TokenType.ORDER_BY: "results come in the order of their windows: leave ORDER BY out",
}
_QUOTED_NAME = re.compile(r'"((?:[^"]|"")*)"')
_DURATION = re.compile(r"(\d{1,9})\s*([a-z]+)", re.ASCII | re.IGNORECASE)
_UNITS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}

Words: TypeAlias = Sequence[Token]


@dataclass(frozen=True, slots=True)
class QueryText:
    """The text of a query."""

    text: str

    def error(self, position: int, reason: str) -> QueryTextError:
        """Returns an error at a position, counted in characters from the beginning."""
        before = self.text[:position]
        line = before.count("\n") + 1
        return QueryTextError(line, position - before.rfind("\n"), reason)

    def position(self, line: int, column: int) -> int:
        """Returns the position of a line and column, both counted from 1."""
        return sum(map(len, self.text.split("\n")[: line - 1])) + line - 1 + column - 1

    def error_at(self, words: Words, reason: str, *, after: int = 0) -> QueryTextError:
        """Returns an error at the first word; if there are no words, at a position."""
        return self.error(words[0].start if words else after, reason)

    def quoted_name(self, line: int, column: int) -> str | None:
        """Returns the name in ``"..."`` that begins at a place; ``None`` if there is none."""
        match = _QUOTED_NAME.match(self.text, self.position(line, column))
        return match[1].replace('""', '"') if match else None

    def of(self, words: Words) -> str:
        """Returns the part of the text from the first word to the last."""
        return self.text[words[0].start : words[-1].end + 1] if words else ""

    def words(self) -> list[Token]:
        """Returns the tokens of the text.

        Raises:
            QueryTextError: if the text is too long, nested too deeply, or has comments, several
                statements or unquoted letters outside ASCII.
        """
        if len(self.text) > MAX_CHARACTERS:
            reason = f"the text has {len(self.text):,} characters, and at most {MAX_CHARACTERS:,}"
            raise self.error(MAX_CHARACTERS, reason + " are possible")
        try:
            self.text.encode()
            words = sqlglot.tokenize(self.text)
        except UnicodeEncodeError as error:
            raise self.error(error.start, "half of a surrogate pair is no character") from error
        except TokenError as error:
            raise self.error(
                len(self.text), "a quotation mark or a comment is not closed"
            ) from error
        if len(words) > MAX_TOKENS:
            raise self.error_at(words[MAX_TOKENS:], f"at most {MAX_TOKENS:,} words are possible")
        self._check(words)
        return words

    def _check(self, words: Words) -> None:
        depth = prefixes = 0
        for word in words:
            prefixes = prefixes + 1 if word.token_type in _PREFIXES else 0
            if word.token_type in _NOT_OF_THE_LANGUAGE:
                raise self.error(word.start, f"{word.text} is not part of the language")
            depth += _step(word)
            if depth > MAX_DEPTH or prefixes > MAX_DEPTH:
                raise self.error(word.start, f"it is nested deeper than {MAX_DEPTH} levels")
            if word.comments or word.token_type is TokenType.HINT:
                raise self.error(word.start, "comments are not part of the language")
            if word.token_type is TokenType.SEMICOLON:
                raise self.error(word.start, "a text has one query, without a semicolon")
            if word.token_type in _SQL_CLAUSES:
                raise self.error(word.start, _SQL_CLAUSES[word.token_type])
            quote = _QUOTED.get(word.token_type)
            # sqlglot makes one token of everything after an SQL command, with a wrong position.
            if quote is not None and self.text[word.start : word.start + 1] != quote:
                reason = "texts are put into '...', and names into \"...\""
                raise self.error(word.start, reason)
            if quote is None and self.text[word.start : word.end + 1] != word.text:
                raise self.error(word.start, "texts are put into '...', without a letter before")
            if quote is None and not word.text.isascii():
                raise self.error(word.start, f'{word.text!r} is not ASCII; put names into "..."')


def quoted_text(text: str) -> str:
    """Returns a text as a constant in single quotes."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def is_word(word: Token, text: str) -> bool:
    """Returns whether a token is a given word, unquoted, in upper or lower case."""
    return word.token_type not in _QUOTED and word.text.upper() == text


def starts_with(words: Words, texts: Sequence[str]) -> bool:
    """Returns whether a sequence of tokens begins with given words."""
    return len(words) >= len(texts) and all(map(is_word, words, texts))


def at_depth_zero(words: Words) -> Iterator[tuple[int, Token]]:
    """Yields index and token of each token outside of brackets, without the brackets."""
    depth = 0
    for index, word in enumerate(words):
        depth += word.token_type is TokenType.L_PAREN
        if depth == 0:
            yield index, word
        depth -= word.token_type is TokenType.R_PAREN


def split_at_commas(words: Words) -> list[Words]:
    """Returns the parts between commas that are outside of brackets."""
    commas = [i for i, word in at_depth_zero(words) if word.token_type is TokenType.COMMA]
    begins, ends = [0, *(comma + 1 for comma in commas)], [*commas, len(words)]
    return [words[begin:end] for begin, end in zip(begins, ends, strict=True)]


def in_brackets(words: Words) -> Words | None:
    """Returns the words within enclosing round brackets; ``None`` if no pair encloses all words."""
    if len(words) < 2 or words[0].token_type is not TokenType.L_PAREN:  # noqa: PLR2004
        return None
    if words[-1].token_type is not TokenType.R_PAREN or list(at_depth_zero(words)):
        return None
    depth = 0
    for word in words[:-1]:
        depth += _step(word)
        if depth == 0:  # as in "(a) + (b)"
            return None
    return words[1:-1]


def duration(text: QueryText, words: Words, *, after: int) -> timedelta:
    """Returns a duration such as ``10 seconds``.

    Raises:
        QueryTextError: if the words are no duration.
    """
    if _DURATION.fullmatch(text.of(words[:2])) and len(words) > len(words[:2]):
        raise text.error_at(words[2:], f"no clause begins with {words[2].text}")
    match = _DURATION.fullmatch(text.of(words))
    unit = _UNITS.get(match[2].lower().removesuffix("s")) if match else None
    if match is None or unit is None:
        reason = "a duration is expected, such as 30 seconds, 5 minutes, 1 hour or 1 day"
        raise text.error_at(words, reason, after=after)
    return int(match[1]) * unit


def whole_number(text: QueryText, words: Words, *, after: int) -> int:
    """Returns a whole number.

    Raises:
        QueryTextError: if the words are no whole number.
    """
    if not re.fullmatch(r"\d{1,9}", text.of(words), re.ASCII):
        raise text.error_at(words, "a whole number is expected", after=after)
    return int(words[0].text)


def _step(word: Token) -> int:
    return (word.token_type is TokenType.L_PAREN) - (word.token_type is TokenType.R_PAREN)
