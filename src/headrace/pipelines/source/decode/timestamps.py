"""RFC 3339 texts to timestamps."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from headrace.pipelines.source.decode.decoder import Why

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
EARLIEST_US = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
LATEST_US = (datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC) - _EPOCH) // _MICROSECOND

_TYPE = pa.timestamp("us", tz="UTC")
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:?[0-9]{2})"
)
_SHORTEST = len("2000-01-01T00:00:00Z")


def timestamps(name: str, texts: list[str | None]) -> tuple[pa.Array, dict[int, Why]]:
    """RFC 3339 texts as timestamp[us, UTC]; by row, why one can't be (its value is null).

    A space may stand for the T, and the colon of the zone may be left out. Digits beyond
    microseconds are cut off. Leap seconds are refused: no column type can hold them.
    """
    fast = _all_at_once(pa.array(texts, pa.string()))
    return (fast, {}) if fast is not None else _one_by_one(name, texts)


def _all_at_once(texts: pa.Array) -> pa.Array | None:
    """What Arrow makes of them; None if any of them is not certainly RFC 3339."""
    micros = _cast(texts)
    if micros is None or not _all_shaped(texts.drop_null()):
        return None
    extremes = pc.min_max(micros)
    oldest, newest = extremes["min"].as_py(), extremes["max"].as_py()
    if oldest is not None and (oldest < EARLIEST_US or newest > LATEST_US):
        return None
    return micros.cast(_TYPE)


def _cast(texts: pa.Array) -> pa.Array | None:
    """Microseconds since 1970. Arrow refuses more digits than the unit has, so try both."""
    try:
        return texts.cast(_TYPE).cast(pa.int64())
    except pa.ArrowInvalid:
        pass
    try:
        nanos = texts.cast(pa.timestamp("ns", tz="UTC")).cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    # Rounds down, so that times before 1970 are cut off in the same direction.
    micros = nanos.fill_null(0).to_numpy() // 1000
    return pa.array(micros, mask=nanos.is_null().to_numpy(False))


def _all_shaped(texts: pa.Array) -> bool:
    """Whether texts have seconds and minutes of the zone, which Arrow does not ask for."""
    if not len(texts):
        return True
    _, offsets, characters = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    starts, ends = ends[:-1], ends[1:]
    if int((ends - starts).min()) < _SHORTEST:
        return False
    bytes_ = np.frombuffer(characters, np.uint8)
    third_last = bytes_[ends - 3]
    seconds = bytes_[starts + 16] == ord(":")
    return bool((seconds & (third_last != ord("+")) & (third_last != ord("-"))).all())


def _one_by_one(name: str, texts: list[str | None]) -> tuple[pa.Array, dict[int, Why]]:
    micros: list[int | None] = []
    refused: dict[int, Why] = {}
    for row, text in enumerate(texts):
        time = None if text is None else _microseconds(text)
        if text is not None and time is None:
            refused[row] = (
                "wrong-type",
                f"field {name!r} is a string that is not an RFC 3339 time with a zone",
            )
        elif time is not None and not EARLIEST_US <= time <= LATEST_US:
            refused[row] = ("out-of-range", f"field {name!r} is outside the years 1 to 9999 in UTC")
            time = None
        micros.append(time)
    return pa.array(micros, pa.int64()).cast(_TYPE), refused


def _microseconds(text: str) -> int | None:
    if not _RFC3339.fullmatch(text):
        return None
    try:
        return (datetime.fromisoformat(text.upper()) - _EPOCH) // _MICROSECOND
    except ValueError:
        return None
