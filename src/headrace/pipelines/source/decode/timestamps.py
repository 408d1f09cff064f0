"""RFC 3339 texts to timestamps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events import EARLIEST_US, LATEST_US, readable_microseconds

_MICROS = pa.timestamp("us", tz="UTC")
_NANOS = pa.timestamp("ns", tz="UTC")
_MIN_LENGTH = len("2000-01-01T00:00:00Z")
_BEFORE_SECONDS = len("2000-01-01T00:00")
_WITH_MICROS = len("2000-01-01T00:00:00.000000")
# Texts: reading them one by one is slow, so one bad text costs no more than this many.
_PIECE = 250


def timestamps(texts: list[str | None]) -> tuple[pa.Array, list[int]]:
    """Returns RFC 3339 texts as timestamp[us, UTC], and the rows of those that are none.

    A space may stand for the T, and the colon of the zone may be left out. Digits beyond
    microseconds are cut off. Leap seconds can't be read: no column type can hold them. The value
    of a row that can't be read is null.
    """
    times = _all_at_once(texts)
    return (times, []) if times is not None else _in_pieces(texts)


def _in_pieces(texts: list[str | None]) -> tuple[pa.Array, list[int]]:
    """Reads pieces of the texts, so that a few bad ones slow down only the pieces they are in."""
    pieces: list[pa.Array] = []
    unreadable: list[int] = []
    for start in range(0, len(texts), _PIECE):
        piece = texts[start : start + _PIECE]
        times = _all_at_once(piece)
        if times is None:
            times, rows = _text_by_text(piece)
            unreadable += [start + row for row in rows]
        pieces.append(times)
    return pa.concat_arrays(pieces), unreadable


def _all_at_once(texts: list[str | None]) -> pa.Array | None:
    """Returns what Arrow reads; ``None`` if a text is not certainly RFC 3339."""
    column = pa.array(texts, pa.string())
    unit = _unit(column.drop_null())
    if unit is None:
        return None
    try:
        times = column.cast(unit).cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    micros = times if unit is _MICROS else _to_micros(times)
    extremes = pc.min_max(micros)
    oldest, newest = extremes["min"].as_py(), extremes["max"].as_py()
    if oldest is not None and (oldest < EARLIEST_US or newest > LATEST_US):
        return None
    return micros.cast(_MICROS)


def _unit(texts: pa.Array) -> pa.DataType | None:
    """The unit Arrow needs for them: it refuses more digits than the unit has, slowly.

    None if one lacks the seconds or the minutes of its zone, which Arrow does not ask for.
    """
    if not len(texts):
        return _MICROS
    _, offsets, characters = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    starts, ends = bounds[:-1], bounds[1:]
    lengths = ends - starts
    if int(lengths.min()) < _MIN_LENGTH:
        return None
    text = np.frombuffer(characters, np.uint8)
    zone = text[ends - 3]
    if not (text[starts + _BEFORE_SECONDS] == ord(":")).all() or np.isin(zone, (43, 45)).any():
        return None
    seventh_digit = text[starts[lengths > _WITH_MICROS] + _WITH_MICROS]
    longer = (seventh_digit >= ord("0")) & (seventh_digit <= ord("9"))
    return _NANOS if longer.any() else _MICROS


def _to_micros(nanos: pa.Array) -> pa.Array:
    """Rounded down, so that times before 1970 are cut off in the same direction."""
    micros = nanos.fill_null(0).to_numpy() // 1000
    return pa.array(micros, mask=nanos.is_null().to_numpy(zero_copy_only=False))


def _text_by_text(texts: list[str | None]) -> tuple[pa.Array, list[int]]:
    micros = [None if text is None else readable_microseconds(text) for text in texts]
    pairs = zip(texts, micros, strict=True)
    unreadable = [row for row, (text, us) in enumerate(pairs) if us is None and text is not None]
    return pa.array(micros, pa.int64()).cast(_MICROS), unreadable
