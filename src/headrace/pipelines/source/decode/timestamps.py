"""RFC 3339 texts to timestamps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events import EARLIEST_US, LATEST_US, microseconds

if TYPE_CHECKING:
    from headrace.events import Why

_MICROS = pa.timestamp("us", tz="UTC")
_NANOS = pa.timestamp("ns", tz="UTC")
_SHORTEST = len("2000-01-01T00:00:00Z")
_BEFORE_SECONDS = len("2000-01-01T00:00")
_WITH_MICROS = len("2000-01-01T00:00:00.000000")
_PIECE = 250


def timestamps(name: str, texts: list[str | None]) -> tuple[pa.Array, dict[int, Why]]:
    """RFC 3339 texts as timestamp[us, UTC]; by row, why one can't be (its value is null).

    A space may stand for the T, and the colon of the zone may be left out. Digits beyond
    microseconds are cut off. Leap seconds are refused: no column type can hold them.
    """
    times = _all_at_once(texts)
    return (times, {}) if times is not None else _in_pieces(name, texts)


def _in_pieces(name: str, texts: list[str | None]) -> tuple[pa.Array, dict[int, Why]]:
    """A few bad texts slow down only the pieces they are in."""
    pieces: list[pa.Array] = []
    refused: dict[int, Why] = {}
    for start in range(0, len(texts), _PIECE):
        piece = texts[start : start + _PIECE]
        times = _all_at_once(piece)
        if times is None:
            times, bad = _one_by_one(name, piece)
            refused |= {start + row: why for row, why in bad.items()}
        pieces.append(times)
    return pa.concat_arrays(pieces), refused


def _all_at_once(texts: list[str | None]) -> pa.Array | None:
    """What Arrow makes of them; None if any of them is not certainly RFC 3339."""
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
    if int(lengths.min()) < _SHORTEST:
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


def _one_by_one(name: str, texts: list[str | None]) -> tuple[pa.Array, dict[int, Why]]:
    micros: list[int | None] = []
    refused: dict[int, Why] = {}
    for row, text in enumerate(texts):
        time = None if text is None else microseconds(text)
        if text is not None and time is None:
            refused[row] = (
                "wrong-type",
                f"field {name!r} is a string that is not an RFC 3339 time with a zone",
            )
        elif time is not None and not EARLIEST_US <= time <= LATEST_US:
            refused[row] = ("out-of-range", f"field {name!r} is outside the years 1 to 9999 in UTC")
            time = None
        micros.append(time)
    return pa.array(micros, pa.int64()).cast(_MICROS), refused
