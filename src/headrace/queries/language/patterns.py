"""Splits patterns of ``LIKE`` into pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

Piece: TypeAlias = "list[str | int]"
"""The part of a pattern between two ``%``: texts, and for each run of ``_`` its length."""

_PART = re.compile(r"%+|_+|(?:\\.|[^%_\\])+", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def pieces_of(pattern: str) -> list[Piece]:
    """Returns the pieces before, between and after the ``%`` of a pattern."""
    pieces: list[Piece] = [[]]
    for part in _PART.findall(pattern):
        if part.startswith("%"):
            pieces.append([])
        elif part.startswith("_"):
            pieces[-1].append(len(part))
        else:
            pieces[-1].append(_ESCAPED.sub(r"\1", part))
    return pieces


def texts_of(pieces: Sequence[Piece]) -> list[str]:
    """Returns the texts of pieces; an empty list if a piece has a ``_``."""
    if any(isinstance(part, int) for piece in pieces for part in piece):
        return []
    return ["".join(map(str, piece)) for piece in pieces]
