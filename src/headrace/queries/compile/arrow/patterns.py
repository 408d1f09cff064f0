"""Matches patterns of ``LIKE`` on Arrow values, in time linear in the length of the texts.

Regular expressions are not linear: where ``_`` follows ``%``, RE2 goes through a text once for each
character of the pattern, and takes seconds for a long text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.queries.compile.arrow.kernels import Datum, Kernel, Mask, expanded
from headrace.queries.language.patterns import Piece, pieces_of, texts_of

_CodePoints: TypeAlias = np.ndarray[Any, np.dtype[np.uint32 | np.uint8]]


def like(pattern: str, max_bytes: int = 2**18) -> Kernel:
    """Returns a kernel that matches whole texts with a pattern; ``_`` is one code point.

    Args:
        pattern: the pattern.
        max_bytes: the texts that are matched at once; so many fit into the cache of a processor.
    """
    pieces = pieces_of(pattern)
    match texts_of(pieces):
        case [text]:
            return lambda texts: pc.equal(texts, pa.scalar(text))
        case [start, ""]:
            return partial(pc.starts_with, pattern=start)
        case ["", end]:
            return partial(pc.ends_with, pattern=end)
        case ["", part, ""]:
            return partial(pc.match_substring, pattern=part)
    placed = [_PlacedPiece(piece) for piece in pieces]
    return lambda texts: _like(texts, placed, max_bytes)


class _PlacedPiece:
    """A piece of a pattern, with the places of its characters.

    Attributes:
        length: length of the piece in code points.
        code_points: the place and value of each code point that is not ``_``.
    """

    def __init__(self, piece: Piece) -> None:
        self.length = 0
        self.code_points: list[tuple[int, int]] = []
        for part in piece:
            if isinstance(part, str):
                self.code_points += enumerate(map(ord, part), self.length)
            self.length += part if isinstance(part, int) else len(part)

    def begins(self, code_points: _CodePoints) -> Mask:
        """Returns whether the piece matches at each code point, and after the last code point."""
        begins = np.zeros(len(code_points) + 1, np.bool_)
        count = max(0, len(begins) - self.length)
        begins[:count] = True
        for place, code_point in self.code_points:
            begins[:count] &= code_points[place : place + count] == code_point
            if not begins.any():
                break
        return begins


def _like(texts: Datum, pieces: Sequence[_PlacedPiece], max_bytes: int) -> Datum:
    if isinstance(texts, pa.Scalar):
        return _like(expanded(texts, 1), pieces, max_bytes)[0]
    if len(texts) > 1 and texts.nbytes > max_bytes:
        half = len(texts) // 2
        halves = (texts[:half], texts[half:])
        return pa.concat_arrays([_like(part, pieces, max_bytes) for part in halves])
    is_matched = pa.array(_matches(pc.fill_null(texts, ""), pieces))
    return pc.if_else(pc.is_valid(texts), is_matched, pa.scalar(None, pa.bool_()))


def _matches(texts: pa.StringArray, pieces: Sequence[_PlacedPiece]) -> Mask:
    """Searches for one piece after another, in all texts at once.

    A piece has the same length wherever it matches, so the first match is always enough.
    """
    code_points = _code_points("".join(texts.to_pylist()))
    lengths = pc.utf8_length(texts).to_numpy().astype(np.int64)
    ends = np.cumsum(lengths)
    begins = ends - lengths
    first, *others = pieces
    is_matched: Mask = first.begins(code_points)[begins]
    places = begins + first.length
    if not others:
        is_matched &= places == ends
        return is_matched
    *between, last = others
    for piece in between:
        starts = np.append(np.flatnonzero(piece.begins(code_points)), len(code_points) + 1)
        places = starts.take(np.searchsorted(starts, places), mode="clip") + piece.length
    last_places = ends - last.length
    fits = places <= last_places
    is_matched &= fits & last.begins(code_points)[np.where(fits, last_places, 0)]
    return is_matched


def _code_points(text: str) -> _CodePoints:
    if text.isascii():
        return np.frombuffer(text.encode(), np.uint8)
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)
