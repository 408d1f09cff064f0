"""How values of Avro's types are read and skipped: those of all records of a block at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events.avro.types import kind_of
from headrace.events.times import EARLIEST_US, LATEST_US
from headrace.model import EventField, FieldType
from headrace.pipelines.source.decode.avro_cursors import MAX_BLOCK_BYTES, WORD, Cursors
from headrace.pipelines.source.decode.columns import arrow_type

if TYPE_CHECKING:
    from headrace.events.avro.schemas import Schema
    from headrace.pipelines.source.decode.avro_cursors import Int64s

Read: TypeAlias = Callable[[Cursors], pa.Array]
Skip: TypeAlias = Callable[[Cursors], object]

_TIME = pa.timestamp("us", tz="UTC")
_DAY_US = 86_400_000_000
_UNITS = {"timestamp-millis": 1000, "timestamp-micros": 1}
_MAX_LONG = 2**63 - 1
_MAX_DECIMAL_SHIFT = 18  # digits that fit 64 bits
_MAX_EXACT = 2**53


class NotInColumnsError(Exception):
    """Values of a schema are not read into columns, for the reason that it carries."""


def _texts(_writer: Schema, field: EventField) -> Read:
    values = pa.array(field.values, pa.string()) if field.values else None

    def read(cursors: Cursors) -> pa.Array:
        binary = cursors.binary(cursors.lengths())
        try:
            array = binary.cast(pa.string())
        except pa.ArrowInvalid:
            # Bytes that are no text fall back; in the array they are empty texts.
            texts = [_text(value) for value in binary.to_pylist()]
            cursors.fall_back(np.array([text is None for text in texts]))
            array = pa.array([text or "" for text in texts], pa.string())
        if values is not None:
            cursors.fall_back(pc.invert(pc.is_in(array, values)).to_numpy(zero_copy_only=False))
        return array

    return read


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _binary(_writer: Schema, _field: EventField) -> Read:
    return lambda cursors: cursors.binary(cursors.lengths())


def fixed_size(writer: Schema) -> int:
    """Returns how many bytes a value of a fixed type has."""
    size: int = writer["size"]
    if size > MAX_BLOCK_BYTES:
        raise NotInColumnsError(f"its type {writer['name']!r} has {size!r:.60} bytes")
    return size


def _fixed(writer: Schema, _field: EventField) -> Read:
    size = fixed_size(writer)
    return lambda cursors: cursors.binary(size)


def _longs(_writer: Schema, _field: EventField) -> Read:
    return lambda cursors: pa.array(cursors.longs())


def _doubles(writer: Schema, _field: EventField) -> Read:
    kind, size = ("<f8", WORD) if kind_of(writer) == "double" else ("<f4", WORD // 2)

    def read(cursors: Cursors) -> pa.Array:
        words = cursors.words()
        cursors.skip(size)
        with np.errstate(invalid="ignore"):  # of a NaN that signals
            numbers = words.astype(f"<u{size}").view(kind).astype(np.float64)
        cursors.fall_back(~np.isfinite(numbers))
        return pa.array(numbers)

    return read


def _whole_doubles(_writer: Schema, _field: EventField) -> Read:
    def read(cursors: Cursors) -> pa.Array:
        numbers = cursors.longs()
        cursors.fall_back((numbers < -_MAX_EXACT) | (numbers > _MAX_EXACT))
        return pa.array(numbers.astype(np.float64))

    return read


def _decimals(writer: Schema, field: EventField) -> Read:
    """Reads decimals of at most eight bytes, and integers."""
    digits, scale = field.precision.digits, field.precision.scale
    kind, base = arrow_type(field), writer if isinstance(writer, str) else writer["type"]
    written = writer.get("scale", 0) if base in ("bytes", "fixed") else 0
    if not 0 <= scale - written <= _MAX_DECIMAL_SHIFT:
        reason = f"field {field.name!r} has the scale {scale}, and its decimal {written!r:.20}"
        raise NotInColumnsError(reason)
    factor = 10 ** (scale - written)
    limit = min(10**digits - 1, _MAX_LONG) // factor
    size = fixed_size(writer) if base == "fixed" else None

    def read(cursors: Cursors) -> pa.Array:
        numbers = cursors.longs() if base in ("int", "long") else _big_endian(cursors, size)
        is_beyond = (numbers < -limit) | (numbers > limit)
        cursors.fall_back(is_beyond)
        halves = np.empty((len(numbers), 2), np.int64)
        halves[:, 0] = np.where(is_beyond, 0, numbers) * factor
        halves[:, 1] = halves[:, 0] >> 63
        return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(halves)])

    return read


def _big_endian(cursors: Cursors, size: int | None) -> Int64s:
    sizes = cursors.lengths() if size is None else np.full(len(cursors.at), size)
    is_odd = (sizes == 0) | (sizes > WORD)
    cursors.fall_back(is_odd)
    words = cursors.words().byteswap().view(np.int64)
    cursors.skip(sizes)
    return words >> np.where(is_odd, 0, 8 * (WORD - sizes))


def _booleans(_writer: Schema, _field: EventField) -> Read:
    def read(cursors: Cursors) -> pa.Array:
        values = cursors.next_bytes()
        cursors.fall_back(values > 1)
        return pa.array(values.astype(np.bool_))

    return read


def _times(writer: Schema, _field: EventField) -> Read:
    return _within(_UNITS[kind_of(writer)], np.int64, _TIME)


def _dates(_writer: Schema, _field: EventField) -> Read:
    return _within(_DAY_US, np.int32, pa.date32())


def _within(unit: int, integer: type, kind: pa.DataType) -> Read:
    """Reads times of a unit in microseconds, those of the calendar alone."""
    earliest, latest = -(-EARLIEST_US // unit), LATEST_US // unit
    times_unit = 1 if unit == _DAY_US else unit

    def read(cursors: Cursors) -> pa.Array:
        times = cursors.longs()
        is_outside = (times < earliest) | (times > latest)
        cursors.fall_back(is_outside)
        return pa.array((np.where(is_outside, 0, times) * times_unit).astype(integer)).cast(kind)

    return read


def _is_text(symbol: object) -> bool:
    # Half of a surrogate pair can't be encoded.
    return isinstance(symbol, str) and symbol == symbol.encode(errors="ignore").decode()


def _symbols(writer: Schema, field: EventField) -> Read:
    texts = [*writer["symbols"]]
    if not texts or not all(map(_is_text, texts)):
        raise NotInColumnsError(f"the symbols of its enum {writer['name']!r} are not all texts")
    symbols = pa.array(texts, pa.string())
    is_value = np.array([not field.values or text in field.values for text in texts])

    def read(cursors: Cursors) -> pa.Array:
        numbers = cursors.longs()
        is_wrong = (numbers < 0) | (numbers >= len(symbols))
        numbers = np.where(is_wrong, 0, numbers)
        cursors.fall_back(is_wrong | ~is_value[numbers])
        return symbols.take(pa.array(numbers))

    return read


KEYS = _texts("string", EventField("", FieldType.STRING))
READS: Mapping[tuple[str, FieldType], Callable[[Schema, EventField], Read]] = {
    ("string", FieldType.STRING): _texts,
    ("enum", FieldType.STRING): _symbols,
    ("int", FieldType.LONG): _longs,
    ("long", FieldType.LONG): _longs,
    ("double", FieldType.DOUBLE): _doubles,
    ("float", FieldType.DOUBLE): _doubles,
    ("int", FieldType.DOUBLE): _whole_doubles,
    ("long", FieldType.DOUBLE): _whole_doubles,
    ("decimal", FieldType.DECIMAL): _decimals,
    ("int", FieldType.DECIMAL): _decimals,
    ("long", FieldType.DECIMAL): _decimals,
    ("boolean", FieldType.BOOLEAN): _booleans,
    ("timestamp-millis", FieldType.TIMESTAMP): _times,
    ("timestamp-micros", FieldType.TIMESTAMP): _times,
    ("date", FieldType.DATE): _dates,
    ("bytes", FieldType.BINARY): _binary,
    ("fixed", FieldType.BINARY): _fixed,
}
SKIPS: Mapping[str, Skip] = {
    "null": lambda cursors: cursors.skip(0),
    "boolean": lambda cursors: cursors.skip(1),
    "int": Cursors.longs,
    "long": Cursors.longs,
    "enum": Cursors.longs,
    "float": lambda cursors: cursors.skip(WORD // 2),
    "double": lambda cursors: cursors.skip(WORD),
    "bytes": lambda cursors: cursors.skip(cursors.lengths()),
    "string": lambda cursors: cursors.skip(cursors.lengths()),
}
