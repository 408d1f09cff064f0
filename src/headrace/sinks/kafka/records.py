"""Rows as records of a topic: its event class says which columns, its declaration where to."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat, starmap
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.model import (
    AppliedSpreads,
    ByKey,
    EventSchema,
    Metadata,
    Topic,
    partition_of,
    value_at,
)
from headrace.sinks.api import RejectedRow
from headrace.sinks.kafka.column_values import is_readable, json_values

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.events import Rejection
    from headrace.events.written import EventWriter
    from headrace.kafka.client.headers import Headers
    from headrace.kafka.write.record import ProducerRecord

EVENT_ID, ORIGIN = "event-id", "origin"
# Of Kafka's record format v2: the head of a batch, and of its only record the attributes, the
# offset and the time, which are relative to the batch's.
_BATCH_HEAD_BYTES, _RECORD_HEAD_BYTES, _MAX_LENGTH_BYTES = 61, 3, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_Columns: TypeAlias = Mapping[str, Sequence[Any]]
"""The values of each field, by its name."""


class RecordsOf:
    """Makes records of rows, as the topic declares its events.

    Args:
        topic: where the records go.
        clock: returns seconds since 1970, from which the latest event time is counted.
        writer: of the values of events; None: they are JSON texts.
        applied: spreads of a topic that takes them.
    """

    def __init__(
        self,
        topic: Topic,
        clock: Callable[[], float] = time.time,
        writer: EventWriter | None = None,
        applied: AppliedSpreads | None = None,
    ) -> None:
        self._topic, self._clock = topic, clock
        self._events = None if topic.schema is None else _Events(topic.schema, writer)
        by_key = isinstance(topic.partitioning, ByKey)
        self._place = (
            None if by_key else partition_of(topic.partitioning, topic.partitions, applied)
        )

    def of(self, rows: pa.Table) -> tuple[dict[int, ProducerRecord], list[RejectedRow]]:
        """Returns a record by the index of each row that is an event, and the other rows."""
        from headrace.kafka.write.record import ProducerRecord

        name, origins = self._topic.name, _header(ORIGIN, _origins(rows))
        if self._events is None:
            keys = _bytes(rows, "key") if "key" in rows.column_names else repeat(None)
            raw = enumerate(zip(keys, _bytes(rows, "value"), origins, strict=False))
            return {index: ProducerRecord(name, *parts) for index, parts in raw}, []
        columns, values, rejected = self._events.of(rows)
        for index, why in chain(self._out_of_bounds(columns), self._without_key(columns)):
            rejected.setdefault(index, why)
        headers = map(operator.add, _header(EVENT_ID, self._ids(columns)), origins)
        events = enumerate(zip(self._keys(columns), values, headers, strict=False))
        records = {
            index: ProducerRecord(name, key, value, both, self._partition(columns, index))
            for index, (key, value, both) in events
            if index not in rejected
        }
        return records, [RejectedRow(index, *rejected[index]) for index in sorted(rejected)]

    def _out_of_bounds(self, columns: _Columns) -> Iterator[tuple[int, Rejection]]:
        name = self._topic.event_time
        if name is None:
            return
        times = [at for at in columns[name] if at is not None]
        earliest_us, latest_us = self._topic.event_time_bounds(self._clock())
        if not times or earliest_us <= _micros(min(times)) <= _micros(max(times)) <= latest_us:
            return
        from headrace.events import out_of_bounds

        for index, at in enumerate(columns[name]):
            if at is not None and not earliest_us <= _micros(at) <= latest_us:
                yield index, out_of_bounds(name, _micros(at), earliest_us, latest_us)

    def _without_key(self, columns: _Columns) -> Iterator[tuple[int, Rejection]]:
        """A record without a key would lose its place among those of its key."""
        name = self._topic.key
        for index, key in enumerate(() if name is None else _values_at(columns, name)):
            if key is None:
                yield index, ("bad-key", f"field {name!r} is null, and is the key")

    def _keys(self, columns: _Columns) -> Iterable[bytes | None]:
        if self._topic.key is None:
            return repeat(None)
        return (str(key).encode() for key in _values_at(columns, self._topic.key))

    def _ids(self, columns: _Columns) -> Iterable[bytes | None]:
        if self._topic.event_id is None:
            return repeat(None)
        return (
            event_id and event_id.encode() for event_id in _values_at(columns, self._topic.event_id)
        )

    def _partition(self, columns: _Columns, index: int) -> int:
        if self._place is None:
            return -1
        event = {name: values[index] for name, values in columns.items()}
        at = 0 if self._topic.event_time is None else _micros(event[self._topic.event_time])
        return self._place(event, "", _EPOCH + at * _MICROSECOND)


class _Events:
    """Makes record values of rows that are events of a schema."""

    def __init__(self, schema: EventSchema, writer: EventWriter | None) -> None:
        import msgspec

        from headrace.events import ReadableCheck, event_parser
        from headrace.events.json_schema.schemas import JsonSchemaWriter
        from headrace.events.parsing.parser import slots

        self._schema, self._writer = schema, writer
        # The texts of rows are those that it would write of them.
        self._write = writer.of_text if isinstance(writer, JsonSchemaWriter) else writer
        names = {slot: field.name for slot, field in slots(schema).items()}
        self._event = msgspec.defstruct(schema.name, names, rename=names, gc=False)
        self._encode = msgspec.json.Encoder().encode
        self._parse = event_parser(schema)
        self._is_readable = ReadableCheck(schema)

    def of(self, rows: pa.Table) -> tuple[_Columns, Sequence[bytes], dict[int, Rejection]]:
        """Returns what rows hold by field, a value for each, and why no reader takes some."""
        from headrace.events.avro.values import AvroWriter

        rejected: dict[int, Rejection] = {}
        fields = [(rows.column(field.name), field) for field in self._schema.fields]
        columns = {field.name: json_values(column, field, rejected) for column, field in fields}
        is_sure = all(starmap(is_readable, fields))
        if is_sure and not rejected and isinstance(self._writer, AvroWriter):
            rows_of_values = zip(*columns.values(), strict=True)
            events = (dict(zip(columns, values, strict=True)) for values in rows_of_values)
            return columns, list(map(self._writer.of_fields, events)), {}
        texts = [self._encode(event) for event in map(self._event, *columns.values())]
        if not is_sure:  # then readers' own parser finds the rows
            for index, text in enumerate(texts):
                if index not in rejected and (why := self._rejection(text)) is not None:
                    rejected[index] = why
        return columns, self._values(texts, rejected), rejected

    def _values(self, texts: Sequence[bytes], rejected: Collection[int]) -> Sequence[bytes]:
        if self._write is None:
            return texts
        numbered = enumerate(texts)
        return [text if index in rejected else self._write(text) for index, text in numbered]

    def _rejection(self, text: bytes) -> Rejection | None:
        """Says why a text is no event of the schema: the rules are those of every reader."""
        from headrace.events import rejection

        try:
            event = self._parse(text)
        except (ValueError, TypeError, RecursionError) as error:
            return rejection(text, self._schema, error)
        return None if self._is_readable(event) else rejection(text, self._schema)


def _values_at(columns: _Columns, path: str) -> Sequence[Any]:
    """Returns the values at a path such as ``repo.full_name``."""
    name, _, rest = path.partition(".")
    if not rest:
        return columns[name]
    return [None if value is None else value_at(value, rest) for value in columns[name]]


def _micros(at: datetime | int) -> int:
    """Returns an event time, which is milliseconds where it is a number, in microseconds."""
    return at * 1000 if isinstance(at, int) else (at - _EPOCH) // _MICROSECOND


def batch_size_of(record: ProducerRecord) -> int:
    """Returns the size of a batch with this record alone, before it is compressed."""
    parts = [record.key or b"", record.value or b""]
    for name, value in record.headers:
        parts += [name.encode(), value or b""]
    count = _length_bytes(len(record.headers))
    size = _RECORD_HEAD_BYTES + count + sum(_length_bytes(len(p)) + len(p) for p in parts)
    return _BATCH_HEAD_BYTES + _length_bytes(size) + size


def batch_size_at_most(record: ProducerRecord) -> int:
    """Returns what :func:`batch_size_of` does, or a little more, in a fifth of the time."""
    size = _BATCH_HEAD_BYTES + _RECORD_HEAD_BYTES + 4 * _MAX_LENGTH_BYTES
    size += len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 2 * _MAX_LENGTH_BYTES + len(name.encode()) + len(value or b"")
    return size


def _length_bytes(length: int) -> int:
    """Returns how many bytes a length takes: Kafka's varints hold the sign and 7 bits a byte."""
    return max(1, ((length << 1).bit_length() + 6) // 7)


def _origins(rows: pa.Table) -> list[bytes | None]:
    """Returns where rows came from; None: it is not known."""
    import pyarrow as pa
    from pyarrow import compute

    names = [Metadata.TOPIC.value, Metadata.PARTITION.value, Metadata.OFFSET.value]
    if not set(names) <= set(rows.column_names):
        return [None] * rows.num_rows
    topic, partition, offset = (rows.column(name).cast(pa.string()) for name in names)
    origins = compute.binary_join_element_wise(topic, partition, "/")
    origins = compute.binary_join_element_wise(origins, offset, ":")
    if Metadata.EVENT_INDEX.value in rows.column_names:
        indices = rows.column(Metadata.EVENT_INDEX.value).cast(pa.string())
        of_events = compute.binary_join_element_wise(origins, indices, "#")
        origins = compute.coalesce(of_events, origins)
    values: list[bytes | None] = origins.cast(pa.binary()).to_pylist()
    return values


def _header(name: str, values: Iterable[bytes | None]) -> Iterator[Headers]:
    """Yields a header for each value; none for those without."""
    return (((name, value),) if value else () for value in values)


def _bytes(rows: pa.Table, name: str) -> list[bytes | None]:
    """Returns texts or bytes as bytes: a text that a step cast from bytes may be any."""
    import pyarrow as pa

    values: list[bytes | None] = rows.column(name).cast(pa.large_binary()).to_pylist()
    return values
