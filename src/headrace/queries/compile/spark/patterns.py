"""Converts patterns of ``LIKE`` into conditions of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.queries.language.patterns import Piece, pieces_of, texts_of

if TYPE_CHECKING:
    from pyspark.sql import Column

# Java's matcher recurses for each part of a group, and the stack has room for some thousand calls.
_PARTS_OF_GROUP = 50


def matches(texts: Column, pattern: str) -> Column:
    """Returns whether whole texts match a pattern; ``_`` is one code point.

    Spark's own ``LIKE`` backtracks over all combinations of places for the ``%`` of a pattern.

    Args:
        texts: the texts to match.
        pattern: a pattern that has been checked.
    """
    pieces = pieces_of(pattern)
    match texts_of(pieces):
        case [text]:
            return texts == text
        case [start, ""]:
            return texts.startswith(start)
        case ["", end]:
            return texts.endswith(end)
        case ["", part, ""]:
            return texts.contains(part)
    return texts.rlike(regular_expression(pieces))


def regular_expression(pieces: Sequence[Piece]) -> str:
    """Returns a Java regular expression that goes through a text once.

    A piece has the same length wherever it matches, so the first match is always enough.
    """
    first, *others = ["".join(_groups(piece)) for piece in pieces]
    if not others:
        return rf"(?s)\A{first}\z"
    *between, last = others
    middle = "".join(f"(?>.*?{piece})" for piece in between)
    return rf"(?s)\A{first}{middle}" + (rf".*{last}\z" if last else "")


def _groups(piece: Piece) -> Iterator[str]:
    parts = [re.escape(part) if isinstance(part, str) else f".{{{part}}}" for part in piece]
    for begin in range(0, len(parts), _PARTS_OF_GROUP):
        yield f"(?>{''.join(parts[begin : begin + _PARTS_OF_GROUP])})"
