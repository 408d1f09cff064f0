"""Rows as records of a topic: its event class says which columns, its declaration where to."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model import (
    ByKey,
    EventField,
    EventSchema,
    FieldType,
    Metadata,
    Topic,
    partition_of,
    value_at,
)
from headrace.sinks.api import RejectedRow
from headrace.sinks.map_values import json_key

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.kafka.headers import Headers
    from headrace.kafka.sending import ProducerRecord

EVENT_ID, ORIGIN = "event-id", "origin"
# Of Kafka's record format v2: the head of a batch, and of its only record the attributes, the
# offset and the time, which are relative to the batch's.
_BATCH_HEAD_BYTES, _RECORD_HEAD_BYTES = 61, 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND, _MILLISECOND = timedelta(microseconds=1), timedelta(milliseconds=1)
_ToJson: TypeAlias = Callable[[Any], Any]


class RecordsOf:
    """Makes records of rows, as the topic declares its events.

    Args:
        topic: where the records go.
        clock: tells seconds since 1970, from which the latest event time is counted.
        encode: returns the value of a record for the JSON text of its event; None: it is the text.
    """

    def __init__(
        self,
        topic: Topic,
        clock: Callable[[], float] = time.time,
        encode: Callable[[bytes], bytes] | None = None,
    ) -> None:
        self._topic, self._clock, self._encode = topic, clock, encode
        self._schema = topic.schema
        by_key = isinstance(topic.partitioning, ByKey)
        self._place = None if by_key else partition_of(topic.partitioning, topic.partitions)

    def of(self, rows: pa.Table) -> tuple[dict[int, ProducerRecord], list[RejectedRow]]:
        """Returns a record by the index of each row that is an event, and the other rows."""
        origins = _origins(rows)
        if self._schema is None:
            return self._raw(rows, origins), []
        return self._events(rows, self._schema, origins)

    def _raw(self, rows: pa.Table, origins: Sequence[str | None]) -> dict[int, ProducerRecord]:
        from headrace.kafka.sending import ProducerRecord

        keys = _bytes(rows, "key") if "key" in rows.column_names else [None] * len(rows)
        values = _bytes(rows, "value")
        return {
            index: ProducerRecord(self._topic.name, key, value, _headers("", origin))
            for index, (key, value, origin) in enumerate(zip(keys, values, origins, strict=True))
        }

    def _events(
        self, rows: pa.Table, schema: EventSchema, origins: Sequence[str | None]
    ) -> tuple[dict[int, ProducerRecord], list[RejectedRow]]:
        from msgspec import json

        records: dict[int, ProducerRecord] = {}
        rejected: list[RejectedRow] = []
        rejection_of, bounds = _Check(schema), self._topic.event_time_bounds(self._clock())
        columns = [_json_values(rows.column(field.name), field) for field in schema.fields]
        for index, values in enumerate(zip(*columns, strict=True)):
            errors = [value.args for value in values if isinstance(value, _UnwritableError)]
            if errors:
                rejected.append(RejectedRow(index, *errors[0]))
                continue
            event = dict(zip(schema.names, values, strict=True))
            text = json.encode(event)
            why = rejection_of(text) or self._rejected_time(event, bounds)
            if (why := why or self._rejected_key(event)) is not None:
                rejected.append(RejectedRow(index, *why))
            else:
                records[index] = self._record(event, text, origins[index])
        return records, rejected

    def _rejected_time(
        self, event: Mapping[str, Any], bounds: tuple[int, int]
    ) -> tuple[str, str] | None:
        earliest_us, latest_us = bounds
        if (time_us := self._time_us(event)) is None or earliest_us <= time_us <= latest_us:
            return None
        from headrace.events import out_of_bounds

        return out_of_bounds(str(self._topic.event_time), time_us, earliest_us, latest_us)

    def _time_us(self, event: Mapping[str, Any]) -> int | None:
        """Returns the event time in microseconds since 1970; None: the topic declares none."""
        if self._topic.event_time is None:
            return None
        at = event[self._topic.event_time]
        return at * 1000 if type(at) is int else (at - _EPOCH) // _MICROSECOND

    def _rejected_key(self, event: Mapping[str, Any]) -> tuple[str, str] | None:
        """A record without a key would lose its place among those of its key."""
        name = self._topic.key
        if name is None or value_at(event, name) is not None:
            return None
        return "bad-key", f"field {name!r} is null, and is the key"

    def _record(self, event: Mapping[str, Any], text: bytes, origin: str | None) -> ProducerRecord:
        from headrace.kafka.sending import ProducerRecord

        topic = self._topic
        key = value_at(event, topic.key) if topic.key else None
        event_id = value_at(event, topic.event_id) if topic.event_id else ""
        return ProducerRecord(
            topic.name,
            None if key is None else str(key).encode(),
            text if self._encode is None else self._encode(text),
            _headers(event_id or "", origin),
            self._partition(event),
        )

    def _partition(self, event: Mapping[str, Any]) -> int:
        if self._place is None:
            return -1
        return self._place(event, "", _EPOCH + (self._time_us(event) or 0) * _MICROSECOND)


class _Check:
    """Says why a text is no event of a schema: the rules are those of every reader."""

    def __init__(self, schema: EventSchema) -> None:
        from headrace.events import ReadableCheck, event_parser

        self._schema = schema
        self._parse = event_parser(schema)
        self._is_readable = ReadableCheck(schema)

    def __call__(self, text: bytes) -> tuple[str, str] | None:
        from headrace.events import rejection

        try:
            event = self._parse(text)
        except (ValueError, TypeError, RecursionError) as error:
            return rejection(text, self._schema, error)
        return None if self._is_readable(event) else rejection(text, self._schema)


def batch_size_of(record: ProducerRecord) -> int:
    """Returns the size of a batch with this record alone, before it is compressed."""
    parts = [record.key or b"", record.value or b""]
    for name, value in record.headers:
        parts += [name.encode(), value or b""]
    count = _length_bytes(len(record.headers))
    size = _RECORD_HEAD_BYTES + count + sum(_length_bytes(len(p)) + len(p) for p in parts)
    return _BATCH_HEAD_BYTES + _length_bytes(size) + size


def _length_bytes(length: int) -> int:
    """Returns how many bytes a length takes: Kafka's varints hold the sign and 7 bits a byte."""
    return max(1, ((length << 1).bit_length() + 6) // 7)


class _UnwritableError(Exception):
    """A value can't be written as JSON: a reason and a sentence. Stands for it in its row."""


def _json_values(column: pa.ChunkedArray, field: EventField) -> list[Any]:
    """Returns the values as msgspec writes them; it knows times, dates, decimals and bytes."""
    convert = _nullable(_converter(field, field.name))
    try:
        return [convert(value) for value in column.to_pylist()]
    except (_UnwritableError, OverflowError, ValueError):
        return [_json_value(scalar, convert, field.name) for scalar in column]


def _json_value(scalar: pa.Scalar, convert: _ToJson, path: str) -> Any:
    try:
        return convert(scalar.as_py())
    except _UnwritableError as error:
        return error
    except UnicodeDecodeError:
        return _UnwritableError("not-utf8", f"field {path!r} holds a text that is not UTF-8")
    except (OverflowError, ValueError):
        sentence = f"field {path!r} holds a time outside the years 1 to 9999"
        return _UnwritableError("out-of-range", sentence)


def _converter(field: EventField, path: str) -> _ToJson | None:
    """Returns what makes JSON of a value that is not null; ``None`` if nothing has to."""
    if field.type is FieldType.MILLIS:
        return functools.partial(_milliseconds, path)
    if field.type is FieldType.JSON:
        return functools.partial(_raw_json, path)
    if field.type is FieldType.STRUCT:
        inner = {
            member.name: _nullable(_converter(member, f"{path}.{member.name}"))
            for member in field.fields
        }
        return lambda values: {name: convert(values[name]) for name, convert in inner.items()}
    if field.type is FieldType.LIST:
        item = _nullable(_converter(field.item, f"{path}[]"))
        return lambda values: [item(value) for value in values]
    if field.type is FieldType.MAP:
        item = _nullable(_converter(field.item, f"{path}[]"))
        return lambda pairs: {json_key(key): item(value) for key, value in pairs}
    return None


def _nullable(convert: _ToJson | None) -> _ToJson:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _milliseconds(path: str, at: datetime) -> int:
    milliseconds, rest = divmod(at - _EPOCH, _MILLISECOND)
    if rest:
        sentence = f"field {path!r} takes milliseconds, and the time has parts of one"
        raise _UnwritableError("wrong-value", sentence)
    return milliseconds


def _raw_json(path: str, text: str) -> Any:
    """Returns a text that goes into the record as it is, so it must be one JSON value."""
    from msgspec import Raw, json

    raw = Raw(text.encode())
    try:
        json.decode(raw, type=Raw)
    except (ValueError, RecursionError):
        sentence = f"field {path!r} is a text that is not one JSON value"
        raise _UnwritableError("wrong-type", sentence) from None
    return raw


def _origins(rows: pa.Table) -> list[str | None]:
    names = [Metadata.TOPIC.value, Metadata.PARTITION.value, Metadata.OFFSET.value]
    if not set(names) <= set(rows.column_names):
        return [None] * rows.num_rows
    columns = (rows.column(name).to_pylist() for name in names)
    events: Sequence[str] = [""] * rows.num_rows
    if Metadata.EVENT_INDEX.value in rows.column_names:
        indices = rows.column(Metadata.EVENT_INDEX.value).to_pylist()
        events = ["" if index is None else f"#{index}" for index in indices]
    return [
        f"{topic}/{partition}:{at}{event}"
        for topic, partition, at, event in zip(*columns, events, strict=True)
    ]


def _headers(event_id: str, origin: str | None) -> Headers:
    headers: list[tuple[str, bytes]] = []
    if event_id:
        headers.append((EVENT_ID, event_id.encode()))
    if origin is not None:
        headers.append((ORIGIN, origin.encode()))
    return tuple(headers)


def _bytes(rows: pa.Table, name: str) -> list[bytes | None]:
    """Returns texts or bytes as bytes: a text that a step cast from bytes may be any."""
    import pyarrow as pa

    values: list[bytes | None] = rows.column(name).cast(pa.large_binary()).to_pylist()
    return values
