"""Avro values of one schema to columns, a field of all records at a time.

A value of Avro's has neither names nor lengths: where a field begins is known once the one before
it was read. So of each record is kept where its next field begins, and NumPy reads that field of
all records of a block in a few calls. That costs a tenth of reading record by record.

Only what every reader takes alike is read this way. A record in which anything else shows (it is
cut off, a text is not UTF-8, a time lies beyond the calendar, null where the class has none) is
named, and left to the reader of single records, which has the words for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events.times import EARLIEST_US, LATEST_US
from headrace.events.wire_format import frame_size
from headrace.model import EventField, FieldType
from headrace.pipelines.source.decode.columns import arrow_type

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.events.avro_schemas import Named, Schema
    from headrace.model import EventSchema

    _Int64s: TypeAlias = NDArray[np.int64]
    _Bools: TypeAlias = NDArray[np.bool_]

_Read: TypeAlias = "Callable[[_Cursors], pa.Array]"
_Skip: TypeAlias = "Callable[[_Cursors], object]"

_TIME = pa.timestamp("us", tz="UTC")
_DAY_US = 86_400_000_000
_UNITS = {"timestamp-millis": 1000, "timestamp-micros": 1}
_WORD = 8
_MAX_VARINT_BYTES = 10
_CONTINUES = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F)
_PAYLOAD = np.uint64(0x7F7F7F7F7F7F7F7F)
# Joins the seven bits of neighbours, then the pairs, then the halves: lower part, upper, distance.
_JOINS = tuple(
    (np.uint64(low), np.uint64(high), np.uint64(bits))
    for low, high, bits in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)
_MIN_LONG, _MAX_LONG = -(2**63), 2**63 - 1
_MAX_EXACT = 2**53
_NO_ROWS = np.empty(0, np.int64)
MAX_TYPES = 300
MIN_RECORDS = 50
"""Of a block: fewer are read faster singly."""
MAX_ITEMS = 64
"""Of an array or a map: those of a longer one are read faster one after the other."""
_RECORDS_FOR_STEP = 4
MAX_BLOCK_BYTES = 2**31 - 1 - _MAX_VARINT_BYTES
"""Of the values of a block: Arrow's offsets of texts have 32 bits."""


class AvroColumns:
    """Reads values that were written with one schema into the columns of an event class.

    Args:
        writer: that schema, as fastavro has parsed it.
        named: the types that it names.
        schema: of the event class, as :func:`~headrace.events.values.as_read` gives it.
        arrow_schema: columns of fields of the class.

    Raises:
        NotInColumnsError: if the schema has a type, or the class a field, that is not read this
            way, or the schema has more than MAX_TYPES with each named type where it is used.
    """

    def __init__(
        self, writer: Schema, named: Named, schema: EventSchema, arrow_schema: pa.Schema
    ) -> None:
        self._arrow_schema = arrow_schema
        self._fields = schema.names
        plan = _Plan(named)
        writer, outer = plan.defined(writer, ())
        self._read = plan.fields(writer, schema.fields, outer)

    def read(self, values: Sequence[bytes]) -> tuple[pa.Table, _Bools]:
        """Returns a row for each value, and which rows are none: those are to be read singly.

        Args:
            values: behind the same id of the schema; one at least, at most MAX_BLOCK_BYTES.
        """
        cursors = _Cursors.of(values)
        arrays = dict(zip(self._fields, self._read(cursors), strict=True))
        cursors.refuse(cursors.at != cursors.ends)
        columns = [arrays[name] for name in self._arrow_schema.names]
        return pa.Table.from_arrays(columns, schema=self._arrow_schema), cursors.refused


class NotInColumnsError(Exception):
    """Values of a schema are not read into columns."""


@dataclass(slots=True)
class _Steps:
    """How many more items are read: a step costs as much as a few records that are read singly."""

    left: int


class _Cursors:
    """Keeps where the next field of each record begins.

    Attributes:
        at: by record, never beyond its end.
        ends: by record.
        steps: for items of arrays and maps, of all cursors of a block.
        refused: which records are to be read singly. Their cursors stand anywhere within them.
    """

    def __init__(self, block: bytes, at: _Int64s, ends: _Int64s, steps: _Steps) -> None:
        self._block, self.at, self.ends, self.steps = block, at, ends, steps
        self.refused = np.zeros(len(at), np.bool_)
        self._bytes = np.frombuffer(block, np.uint8)
        # The eight bytes from each byte on.
        shape = (len(block) - _WORD + 1,)
        self._words = np.ndarray(shape, "<u8", block, strides=(1,))

    @classmethod
    def of(cls, values: Sequence[bytes]) -> _Cursors:
        """Returns cursors behind the ids of the schema of values."""
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        ends = np.cumsum(sizes)
        block = b"".join((*values, bytes(_MAX_VARINT_BYTES + _WORD)))
        steps = _Steps(len(values) // _RECORDS_FOR_STEP)
        return cls(block, ends - sizes + frame_size(values[0]), ends, steps)

    def refuse(self, rows: _Bools) -> None:
        """Leaves rows to be read singly."""
        self.refused |= rows

    def skip(self, sizes: _Int64s | int) -> None:
        """Moves on; a record that is shorter is refused."""
        self.at = self.at + sizes
        is_beyond = self.at > self.ends
        if is_beyond.any():
            self.refuse(is_beyond)
            self.at = np.minimum(self.at, self.ends)

    def words(self) -> NDArray[np.uint64]:
        """Returns the next eight bytes, without moving on."""
        return self._words[self.at]

    def bytes(self) -> NDArray[np.uint8]:
        """Reads a byte."""
        values = self._bytes[self.at]
        self.skip(1)
        return values

    def longs(self) -> _Int64s:
        """Reads integers: seven bits a byte, the lowest first, the sign in the lowest bit."""
        first = self._bytes[self.at]
        if not (first > _LOW_BITS).any():
            self.skip(1)
            joined = first.astype(np.uint64)
        else:
            joined = self._joined()
        return ((joined >> np.uint64(1)) ^ (~(joined & np.uint64(1)) + np.uint64(1))).view(np.int64)

    def _joined(self) -> NDArray[np.uint64]:
        words = self.words()
        ends = ~words & _CONTINUES
        end = ends & (~ends + np.uint64(1))
        below = end - np.uint64(1)  # all bits where no byte of the word is the last one
        joined = words & below & _PAYLOAD
        for low, high, bits in _JOINS:
            joined = (joined & low) | ((joined & high) >> bits)
        sizes = (np.bitwise_count(below).astype(np.int64) + 1) >> 3
        rows = np.nonzero(ends == 0)[0]
        if len(rows):
            ninth, tenth = (
                self._bytes[self.at[rows] + place].astype(np.uint64) for place in (8, 9)
            )
            has_tenth = ninth > _LOW_BITS
            joined[rows] |= (ninth & _LOW_BITS) << np.uint64(56)
            joined[rows] |= np.where(has_tenth, tenth << np.uint64(63), np.uint64(0))
            self.refused[rows] |= has_tenth & (tenth > 1)
            sizes[rows] = np.where(has_tenth, _MAX_VARINT_BYTES, _MAX_VARINT_BYTES - 1)
        self.skip(sizes)
        return joined

    def lengths(self) -> _Int64s:
        """Reads the lengths of what follows; they are zero in records that are shorter."""
        lengths = self.longs()
        is_wrong = (lengths < 0) | (lengths > self.ends - self.at)
        if is_wrong.any():
            self.refuse(is_wrong)
            lengths = np.where(is_wrong, 0, lengths)
        return lengths

    def binary(self, sizes: _Int64s | int) -> pa.Array:
        """Reads so many bytes of each record."""
        count = len(self.at)
        # What lies between the parts of two records is an element, too, which is not taken.
        offsets = np.empty((count, 2), np.int32)
        offsets[:, 0] = self.at
        self.skip(sizes)
        offsets[:, 1] = self.at
        if not count:
            return pa.array([], pa.binary())
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._block)]
        elements = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
        return elements.take(pa.array(np.arange(0, 2 * count, 2)))

    def of_rows(self, rows: _Int64s) -> _Cursors:
        """Returns cursors of some of the records."""
        return _Cursors(self._block, self.at[rows], self.ends[rows], self.steps)

    def follow(self, rows: _Int64s, others: _Cursors) -> None:
        """Moves on to where the cursors of some of the records are."""
        self.at = self.at.copy()
        self.at[rows] = others.at
        self.refused[rows] |= others.refused


class _Plan:
    """How the fields of a class are read from values of a schema.

    ``outer`` are the names of the types around: one that holds itself is not read in columns.
    """

    def __init__(self, named: Named) -> None:
        self._named, self._types = named, 0

    def fields(
        self, writer: Schema, fields: Sequence[EventField], outer: Sequence[str]
    ) -> Callable[[_Cursors], list[pa.Array]]:
        """Returns what reads a record: an array of each field of the class."""
        if _kind(writer) not in ("record", "error"):
            raise NotInColumnsError
        parts = {part["name"]: part["type"] for part in writer["fields"]}
        declared = {field.name: field for field in fields}
        steps: dict[str, Callable[[_Cursors], Any]] = {
            name: self._read(part, declared[name], outer)
            if name in declared
            else self._skip(part, outer)
            for name, part in parts.items()
        }
        absent = {field.name: arrow_type(field) for field in fields if field.name not in parts}
        if not fields or not all(declared[name].nullable for name in absent):
            raise NotInColumnsError

        def read(cursors: _Cursors) -> list[pa.Array]:
            arrays = {name: step(cursors) for name, step in steps.items()}
            arrays |= {name: pa.nulls(len(cursors.at), kind) for name, kind in absent.items()}
            return [arrays[field.name] for field in fields]

        return read

    def defined(self, writer: Schema, outer: Sequence[str]) -> tuple[Schema, Sequence[str]]:
        """Returns the definition of a type, and the names of those around its parts."""
        self._types += 1
        if self._types > MAX_TYPES:
            raise NotInColumnsError
        if isinstance(writer, str) and writer in self._named:
            writer = self._named[writer]
        name = writer.get("name") if isinstance(writer, dict) else None
        if name is None:
            return writer, outer
        if name in outer:
            raise NotInColumnsError
        return writer, (*outer, name)

    def _read(self, writer: Schema, field: EventField, outer: Sequence[str]) -> _Read:
        if isinstance(writer, list):
            return self._union(writer, field, outer)
        writer, outer = self.defined(writer, outer)
        kind = _kind(writer)
        if field.type is FieldType.STRUCT:
            members = list(arrow_type(field))
            read = self.fields(writer, field.fields, outer)
            return lambda cursors: pa.StructArray.from_arrays(read(cursors), fields=members)
        if field.element is not None:
            return self._containers(writer, field, outer)
        make = _READS.get((kind, field.type))
        if make is None:
            raise NotInColumnsError
        return make(writer, field)

    def _containers(self, writer: Schema, field: EventField, outer: Sequence[str]) -> _Read:
        kind, is_map = arrow_type(field), field.type is FieldType.MAP
        if _kind(writer) != ("map" if is_map else "array"):
            raise NotInColumnsError
        read = self._read(writer["values" if is_map else "items"], field.item, outer)
        if not is_map:

            def lists(cursors: _Cursors) -> pa.Array:
                offsets, (items,), _ = _items(cursors, (read,))
                return pa.ListArray.from_arrays(offsets, items, type=kind)

            return lists

        def maps(cursors: _Cursors) -> pa.Array:
            offsets, (keys, items), rows = _items(cursors, (_KEYS, read))
            _refuse_repeated(cursors, rows, keys)
            return pa.MapArray.from_arrays(offsets, keys, items, type=kind)

        return maps

    def _union(self, branches: Sequence[Schema], field: EventField, outer: Sequence[str]) -> _Read:
        null, other = _null_and_other(branches)
        read = self._read(branches[other], field, outer)
        is_nullable = field.nullable

        def read_present(cursors: _Cursors) -> pa.Array:
            rows, is_null = _present(cursors, null)
            if not is_nullable:
                cursors.refuse(is_null)
            if len(rows) == len(is_null):
                return read(cursors)
            part = cursors.of_rows(rows)
            array = read(part)
            cursors.follow(rows, part)
            places = np.cumsum(~is_null) - 1
            return array.take(pa.array(places, mask=is_null))

        return read_present

    def _skip(self, writer: Schema, outer: Sequence[str]) -> _Skip:
        """Returns what moves on behind a value that the class does not have."""
        if isinstance(writer, list):
            return self._skip_union(writer, outer)
        writer, outer = self.defined(writer, outer)
        base = writer if isinstance(writer, str) else writer["type"]
        if base in ("record", "error"):
            skips = [self._skip(part["type"], outer) for part in writer["fields"]]
            return lambda cursors: [skip(cursors) for skip in skips]
        if base == "fixed":
            size = _fixed_size(writer)
            return lambda cursors: cursors.skip(size)
        if base in ("array", "map"):
            skips = [self._skip(writer["items" if base == "array" else "values"], outer)]
            if base == "map":
                skips.insert(0, _SKIPS["bytes"])
            return lambda cursors: [*_steps(cursors, skips)]
        skip = _SKIPS.get(base)
        if skip is None:
            raise NotInColumnsError
        return skip

    def _skip_union(self, branches: Sequence[Schema], outer: Sequence[str]) -> _Skip:
        null, other = _null_and_other(branches)
        skip = self._skip(branches[other], outer)

        def skip_present(cursors: _Cursors) -> None:
            rows, _ = _present(cursors, null)
            part = cursors.of_rows(rows)
            skip(part)
            cursors.follow(rows, part)

        return skip_present


def _null_and_other(branches: Sequence[Schema]) -> tuple[int, int]:
    if len(branches) != 2 or "null" not in branches:  # noqa: PLR2004
        raise NotInColumnsError
    null = branches.index("null")
    return null, 1 - null


def _present(cursors: _Cursors, null: int) -> tuple[_Int64s, _Bools]:
    """Reads which branch of a union follows; returns the rows of the other one, and the nulls."""
    branches = cursors.longs()
    is_wrong = (branches < 0) | (branches > 1)
    cursors.refuse(is_wrong)
    is_null = (branches == null) | is_wrong
    return np.nonzero(~is_null)[0], is_null


def _steps(cursors: _Cursors, parts: Sequence[_Skip]) -> Iterator[tuple[_Int64s, list[Any]]]:
    """Reads arrays or maps: the next item of every record that has one, until none has.

    They come in blocks: a count, which is zero at the end; a negative one has the size of the block
    behind it. Yields the records, and what the parts of their items were read to.
    """
    left = np.zeros(len(cursors.at), np.int64)
    rows = np.arange(len(left))
    for number in range(MAX_ITEMS + 1):
        ended = rows[left[rows] == 0]
        if len(ended):
            left[ended] = _counts(cursors, ended)
            rows = rows[left[rows] > 0]
        if not len(rows):
            return
        cursors.steps.left -= 1
        if number == MAX_ITEMS or cursors.steps.left < 0:
            break
        items = cursors.of_rows(rows)
        yield rows, [part(items) for part in parts]
        cursors.follow(rows, items)
        left[rows] -= 1
        rows = rows[~items.refused]
    cursors.refused[rows] = True


def _counts(cursors: _Cursors, rows: _Int64s) -> _Int64s:
    """Reads how many items the next blocks of some records have."""
    blocks = cursors.of_rows(rows)
    counts = blocks.longs()
    sized = np.nonzero(counts < 0)[0]
    if len(sized):
        sizes = blocks.of_rows(sized)
        sizes.longs()
        blocks.follow(sized, sizes)
    blocks.refuse(counts == _MIN_LONG)
    cursors.follow(rows, blocks)
    return np.where(blocks.refused, 0, np.abs(counts))


def _items(cursors: _Cursors, parts: Sequence[_Read]) -> tuple[pa.Array, list[pa.Array], _Int64s]:
    """Returns where the items of each record end, arrays of their parts, and their records."""
    steps = [(np.empty(0, np.int64), [part(cursors.of_rows(_NO_ROWS)) for part in parts])]
    steps += _steps(cursors, parts)
    rows = np.concatenate([rows for rows, _ in steps])
    order = np.argsort(rows, kind="stable")
    arrays = [pa.concat_arrays(arrays) for arrays in zip(*(read for _, read in steps), strict=True)]
    ends = np.cumsum(np.bincount(rows, minlength=len(cursors.at)))
    offsets = pa.array(np.append(0, ends).astype(np.int32))
    return offsets, [array.take(pa.array(order)) for array in arrays], rows[order]


def _refuse_repeated(cursors: _Cursors, rows: _Int64s, keys: pa.Array) -> None:
    """Refuses maps that have a key twice: which value counts is for the other reader to say."""
    pairs = (
        pa.table({"row": rows, "key": keys}).group_by(["row", "key"]).aggregate([([], "count_all")])
    )
    repeated = pairs.filter(pc.greater(pairs["count_all"], 1))["row"].to_numpy()
    cursors.refused[repeated] = True


def _kind(schema: Schema) -> str:
    if not isinstance(schema, dict):
        return str(schema)
    return str(schema.get("logicalType") or schema["type"])


def _texts(_writer: Schema, field: EventField) -> _Read:
    values = pa.array(field.values, pa.string()) if field.values else None

    def read(cursors: _Cursors) -> pa.Array:
        binary = cursors.binary(cursors.lengths())
        try:
            array = binary.cast(pa.string())
        except pa.ArrowInvalid:
            array = _utf8_alone(cursors, binary)
        if values is not None:
            cursors.refuse(pc.invert(pc.is_in(array, values)).to_numpy(zero_copy_only=False))
        return array

    return read


def _utf8_alone(cursors: _Cursors, binary: pa.Array) -> pa.Array:
    """Refuses bytes that are no text; they are empty ones in the array."""
    texts = [_text(value) for value in binary.to_pylist()]
    cursors.refuse(np.array([text is None for text in texts]))
    return pa.array([text or "" for text in texts], pa.string())


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _binary(_writer: Schema, _field: EventField) -> _Read:
    return lambda cursors: cursors.binary(cursors.lengths())


def _fixed_size(writer: Schema) -> int:
    size = writer["size"]
    if not isinstance(size, int) or not 0 <= size <= MAX_BLOCK_BYTES:
        raise NotInColumnsError
    return size


def _fixed(writer: Schema, _field: EventField) -> _Read:
    size = _fixed_size(writer)
    return lambda cursors: cursors.binary(size)


def _longs(_writer: Schema, _field: EventField) -> _Read:
    return lambda cursors: pa.array(cursors.longs())


def _doubles(writer: Schema, _field: EventField) -> _Read:
    kind, size = ("<f8", _WORD) if _kind(writer) == "double" else ("<f4", _WORD // 2)

    def read(cursors: _Cursors) -> pa.Array:
        words = cursors.words()
        cursors.skip(size)
        with np.errstate(invalid="ignore"):  # of a NaN that signals
            numbers = words.astype(f"<u{size}").view(kind).astype(np.float64)
        cursors.refuse(~np.isfinite(numbers))
        return pa.array(numbers)

    return read


def _whole_doubles(_writer: Schema, _field: EventField) -> _Read:
    def read(cursors: _Cursors) -> pa.Array:
        numbers = cursors.longs()
        cursors.refuse((numbers < -_MAX_EXACT) | (numbers > _MAX_EXACT))
        return pa.array(numbers.astype(np.float64))

    return read


def _decimals(writer: Schema, field: EventField) -> _Read:
    """Reads decimals of at most eight bytes, and integers."""
    digits, scale = field.precision.digits, field.precision.scale
    kind, base = arrow_type(field), writer if isinstance(writer, str) else writer["type"]
    factor = 10 ** (scale - (writer.get("scale", 0) if base in ("bytes", "fixed") else 0))
    # Else the writer's have more digits behind the point, or far fewer.
    if not isinstance(factor, int) or factor > _MAX_LONG:
        raise NotInColumnsError
    limit = min(10**digits - 1, _MAX_LONG) // factor
    size = _fixed_size(writer) if base == "fixed" else None

    def read(cursors: _Cursors) -> pa.Array:
        numbers = cursors.longs() if base in ("int", "long") else _big_endian(cursors, size)
        is_beyond = (numbers < -limit) | (numbers > limit)
        cursors.refuse(is_beyond)
        halves = np.empty((len(numbers), 2), np.int64)
        halves[:, 0] = np.where(is_beyond, 0, numbers) * factor
        halves[:, 1] = halves[:, 0] >> 63
        return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(halves)])

    return read


def _big_endian(cursors: _Cursors, size: int | None) -> _Int64s:
    sizes = cursors.lengths() if size is None else np.full(len(cursors.at), size)
    is_odd = (sizes == 0) | (sizes > _WORD)
    cursors.refuse(is_odd)
    words = cursors.words().byteswap().view(np.int64)
    cursors.skip(sizes)
    return words >> np.where(is_odd, 0, 8 * (_WORD - sizes))


def _booleans(_writer: Schema, _field: EventField) -> _Read:
    def read(cursors: _Cursors) -> pa.Array:
        values = cursors.bytes()
        cursors.refuse(values > 1)
        return pa.array(values.astype(np.bool_))

    return read


def _times(writer: Schema, _field: EventField) -> _Read:
    return _within(_UNITS[_kind(writer)], np.int64, _TIME)


def _dates(_writer: Schema, _field: EventField) -> _Read:
    return _within(_DAY_US, np.int32, pa.date32())


def _within(unit: int, integer: type, kind: pa.DataType) -> _Read:
    """Reads times of a unit in microseconds, those of the calendar alone."""
    earliest, latest = -(-EARLIEST_US // unit), LATEST_US // unit
    times_unit = 1 if unit == _DAY_US else unit

    def read(cursors: _Cursors) -> pa.Array:
        times = cursors.longs()
        is_outside = (times < earliest) | (times > latest)
        cursors.refuse(is_outside)
        return pa.array((np.where(is_outside, 0, times) * times_unit).astype(integer)).cast(kind)

    return read


def _symbols(writer: Schema, field: EventField) -> _Read:
    if not writer["symbols"]:
        raise NotInColumnsError
    symbols = pa.array(writer["symbols"], pa.string())
    is_value = np.array(
        [not field.values or symbol in field.values for symbol in writer["symbols"]]
    )

    def read(cursors: _Cursors) -> pa.Array:
        numbers = cursors.longs()
        is_wrong = (numbers < 0) | (numbers >= len(symbols))
        numbers = np.where(is_wrong, 0, numbers)
        cursors.refuse(is_wrong | ~is_value[numbers])
        return symbols.take(pa.array(numbers))

    return read


_KEYS = _texts("string", EventField("", FieldType.STRING))
_READS: Mapping[tuple[str, FieldType], Callable[[Schema, EventField], _Read]] = {
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
_SKIPS: Mapping[str, _Skip] = {
    "null": lambda cursors: cursors.skip(0),
    "boolean": lambda cursors: cursors.skip(1),
    "int": _Cursors.longs,
    "long": _Cursors.longs,
    "enum": _Cursors.longs,
    "float": lambda cursors: cursors.skip(_WORD // 2),
    "double": lambda cursors: cursors.skip(_WORD),
    "bytes": lambda cursors: cursors.skip(cursors.lengths()),
    "string": lambda cursors: cursors.skip(cursors.lengths()),
}
