"""Protobuf events to columns, without a text between them.

A message of upb takes 0.1 us to make and as much for each field that is read; columns are made of
the values of all messages of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from headrace.events.parsing.parser import LONG_RANGE
from headrace.events.parsing.values import DecimalReader, as_read
from headrace.events.protobuf.fields import ReadField
from headrace.events.protobuf.types import Reading
from headrace.events.protobuf.values import (
    ProtobufLookup,
    ProtobufMessages,
    ProtobufReader,
)
from headrace.events.rejection import rejection
from headrace.events.times import EARLIEST_US, LATEST_US, parse_date
from headrace.model import FieldType
from headrace.pipelines.source.decode.columns import arrow_schema, arrow_type, read_values
from headrace.pipelines.source.decode.decoder import Decoded
from headrace.pipelines.source.decode.json_events import BLOCK_RECORDS
from headrace.pipelines.source.decode.parts import decoded_in_blocks, in_order, without_rows
from headrace.pipelines.source.decode.timestamps import timestamps

if TYPE_CHECKING:
    from headrace.events import Rejection
    from headrace.model import EventSchema

_TIME = pa.timestamp("us", tz="UTC")
_NANOS = 1_000_000_000
_FIRST_SECOND, _LAST_SECOND = EARLIEST_US // 1_000_000, LATEST_US // 1_000_000
_Column: TypeAlias = tuple[pa.Array, Collection[int]]
"""An array of the values of one field, and the rows whose value the class does not take."""
_Builder: TypeAlias = Callable[[list[Any]], _Column]


class ProtobufDecoder:
    """Decodes format :class:`~headrace.model.Protobuf`: Confluent's wire format.

    Each record names the schema that it was written with, and the message of it; the event class is
    compared with that by the names of fields. A field that the class lacks is skipped, whatever it
    holds. Rejected records carry one of these reasons, or one of the JSON decoder's for the fields
    of the event:

    ========================= ==================================================================
    null-value                no value: a tombstone
    no-schema-id              no id of a schema before the value or in a header
    unknown-schema            the registry has no schema of that id
    unreadable-schema         the schema of that id is not Protobuf, or does not compile
    not-protobuf              no message of its schema, or one that is cut off
    not-utf8                  a string that is not UTF-8
    out-of-range              a time outside the years 1 to 9999, a double that is no number
    unknown-value             a number that its enum does not have
    wrong-type                a type of Protobuf's that the field does not take
    ========================= ==================================================================

    A registry that does not answer rejects nothing: the task fails and is repeated.
    """

    def __init__(self, schema: EventSchema, lookup: ProtobufLookup) -> None:
        """Schemas of records are looked up with ``lookup``; columns are as of JSON events."""
        self.arrow_schema = arrow_schema(schema)
        self._schema = as_read(schema)
        self._messages = ProtobufMessages(lookup, self._schema)
        self._columns: dict[ProtobufReader, _Messages] = {}

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decodes a chunk into the columns of the schema's fields.

        Raises:
            RegistryUnreachableError: if the registry does not answer.
        """
        return decoded_in_blocks(self._block, values, BLOCK_RECORDS, self.arrow_schema)

    def _block(self, values: Sequence[bytes | None]) -> Decoded:
        rejected: dict[int, Rejection] = {}
        by_reader: dict[ProtobufReader, tuple[list[int], list[Any]]] = {}
        for index, value in enumerate(values):
            reader, body = self._messages(value)
            if not isinstance(reader, ProtobufReader):
                rejected[index] = reader, body
                continue
            message = reader.parsed(body)
            if isinstance(message, tuple):
                rejected[index] = message
                continue
            if reader not in by_reader:
                by_reader[reader] = [], []
            indices, messages = by_reader[reader]
            indices.append(index)
            messages.append(message)
        parts = [
            (indices, self._decoded(reader, messages))
            for reader, (indices, messages) in by_reader.items()
        ]
        return in_order(parts, rejected, self.arrow_schema)

    def _decoded(self, reader: ProtobufReader, messages: list[Any]) -> Decoded:
        if reader not in self._columns:
            self._columns[reader] = _Messages(reader.message.fields)
        arrays, refused = self._columns[reader](messages)
        rows = pa.Table.from_arrays(arrays, schema=self.arrow_schema)
        rejected = {row: self._why(reader, messages[row]) for row in sorted(refused)}
        return Decoded(without_rows(rows, refused), rejected)

    def _why(self, reader: ProtobufReader, message: Any) -> Rejection:
        text = reader.json_text(message)
        return rejection(text, self._schema) if isinstance(text, bytes) else text


class _Messages:
    """Makes an array of each field of the class."""

    def __init__(self, fields: Sequence[ReadField]) -> None:
        self._parts = [(read, _values_reader(read), _builder(read)) for read in fields]

    def __call__(self, messages: list[Any]) -> tuple[list[pa.Array], set[int]]:
        """Returns the arrays, and the rows that are rejected; of a null all fields are null."""
        nulls = {row for row, message in enumerate(messages) if message is None}
        arrays: list[pa.Array] = []
        refused: set[int] = set()
        for read, values_of, build in self._parts:
            values = values_of(messages)
            array, rows = build(values)
            refused.update(rows)
            if not read.declared.nullable and array.null_count > len(nulls):
                refused.update(row for row, value in enumerate(values) if value is None)
            arrays.append(array)
        return arrays, refused - nulls


def _values_reader(read: ReadField) -> Callable[[list[Any]], list[Any]]:
    """A comprehension reads a slot twice as fast as attrgetter, but needs its name in the code."""
    slot = read.slot
    if not slot:
        empty: Any = {Reading.LIST: (), Reading.MAP: {}}.get(read.reading)
        return lambda messages: [None if message is None else empty for message in messages]
    value = f"message.{slot}.value" if read.is_wrapped else f"message.{slot}"
    if read.is_null_if_absent:
        value = f"{value} if message is not None and message.HasField({slot!r}) else None"
    else:
        value = f"{value} if message is not None else None"
    return eval(f"lambda messages: [{value} for message in messages]")  # type: ignore[no-any-return]  # noqa: S307


def _builder(read: ReadField) -> _Builder:
    kind = arrow_type(read.declared)
    if read.reading in (Reading.LIST, Reading.MAP):
        return _Containers(read, kind)
    if read.reading is Reading.STRUCT:
        return _Structs(read, kind)
    if read.reading is Reading.MISMATCH:
        return lambda values: (pa.nulls(len(values), kind), _mismatched(values))
    if read.reading is Reading.TEXT and read.declared.type is FieldType.TIMESTAMP:
        return timestamps
    read_one = _reader_of_one(read)
    if read_one is not None:
        return partial(read_values, read_one, kind)
    return _BUILDERS.get(read.reading, lambda values: (pa.array(values, kind), ()))


def _reader_of_one(read: ReadField) -> Callable[[Any], Any] | None:
    """Returns how one value is read further; it returns None for what the class does not take."""
    allowed = frozenset(read.declared.values)
    match read.reading:
        case Reading.ENUM:
            texts = {n: text for n, text in read.texts.items() if not allowed or text in allowed}
            return texts.get
        case Reading.UNSIGNED:
            return lambda value: value if value <= LONG_RANGE[1] else None
        case Reading.INTEGER:
            decimal = DecimalReader(read.declared.precision)
            return lambda value: decimal.number(str(value))
        case Reading.TEXT if read.declared.type is FieldType.DATE:
            return parse_date
        case Reading.TEXT:
            return _decimal_reader(read)
    return (lambda text: text if text in allowed else None) if allowed else None


def _decimal_reader(read: ReadField) -> Callable[[str], Any]:
    decimal = DecimalReader(read.declared.precision)

    def number(text: str) -> Any:
        try:
            return decimal.number(text)
        except ValueError:
            return None

    return number


def _mismatched(values: list[Any]) -> list[int]:
    """Returns the rows with a value; a list without items has none."""
    return [
        row
        for row, value in enumerate(values)
        if value is not None
        and (isinstance(value, str | bytes) or not hasattr(value, "__len__") or len(value))
    ]


def _times(values: list[Any]) -> _Column:
    try:
        seconds = np.fromiter((time.seconds for time in values), np.int64, len(values))
        nanos = np.fromiter((time.nanos for time in values), np.int64, len(values))
    except AttributeError:  # of a null
        present = [row for row, time in enumerate(values) if time is not None]
        array, refused = _times([values[row] for row in present])
        places = np.full(len(values), -1)
        places[present] = np.arange(len(present))
        return array.take(pa.array(places, mask=places < 0)), [present[row] for row in refused]
    is_time = (
        (seconds >= _FIRST_SECOND) & (seconds <= _LAST_SECOND) & (nanos >= 0) & (nanos < _NANOS)
    )
    micros = np.where(is_time, seconds, 0) * 1_000_000 + nanos // 1000
    return pa.array(micros).cast(_TIME), np.nonzero(~is_time)[0].tolist()


def _numbers(values: list[Any]) -> _Column:
    array = pa.array(values, pa.float64())
    numbers = array.fill_null(0.0).to_numpy()
    return array, np.nonzero(~np.isfinite(numbers))[0].tolist()


_BUILDERS: Mapping[Reading, _Builder] = {Reading.TIME: _times, Reading.NUMBER: _numbers}


class _Structs:
    """Makes a struct array of messages."""

    def __init__(self, read: ReadField, kind: pa.DataType) -> None:
        self._messages, self._members = _Messages(read.fields), list(kind)

    def __call__(self, values: list[Any]) -> _Column:
        arrays, refused = self._messages(values)
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=self._members, mask=mask), refused


class _Containers:
    """Makes a list array of repeated fields, or a map array of maps."""

    def __init__(self, read: ReadField, kind: pa.DataType) -> None:
        self._is_map, self._kind = read.reading is Reading.MAP, kind
        self._build = None if read.element is None else _builder(read.element)
        self._is_wrapped = read.element is not None and read.element.is_wrapped

    def __call__(self, values: list[Any]) -> _Column:
        if self._build is None:
            return pa.array([None if value is None else [] for value in values], self._kind), ()
        ends = np.cumsum([0 if value is None else len(value) for value in values], dtype=np.int32)
        is_null = np.array([*(value is None for value in values), False])
        offsets = pa.array(np.append(np.int32(0), ends), mask=is_null)
        held = [value for value in values if value]
        if not self._is_map:
            items, refused = self._build(self._unwrapped(list(chain.from_iterable(held))))
            rows = np.searchsorted(ends, list(refused), side="right").tolist()
            return pa.ListArray.from_arrays(offsets, items), rows
        # upb has no order of keys, and a repeated batch must have the same bytes.
        pairs = [(key, value[key]) for value in held for key in sorted(value)]
        keys = pa.array([key for key, _ in pairs], pa.string())
        items, refused = self._build(self._unwrapped([item for _, item in pairs]))
        rows = np.searchsorted(ends, list(refused), side="right").tolist()
        return pa.MapArray.from_arrays(offsets, keys, items), rows

    def _unwrapped(self, items: list[Any]) -> list[Any]:
        return [item.value for item in items] if self._is_wrapped else items
