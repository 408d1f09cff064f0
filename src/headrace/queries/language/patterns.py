"""What patterns of ``LIKE`` are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeAlias

Piece: TypeAlias = "list[str | int]"
"""What stands between ``%``: texts, and numbers of any characters."""

_PART = re.compile(r"%+|_+|(?:\\.|[^%_\\])+", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def pieces_of(pattern: str) -> list[Piece]:
    """Returns what stands between the ``%`` of a pattern, and before and behind them."""
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
    """Returns the texts that pieces are; none if one of them has any characters."""
    if any(isinstance(part, int) for piece in pieces for part in piece):
        return []
    return ["".join(map(str, piece)) for piece in pieces]
