"""JSON events to columns.

One parser both validates and reads: msgspec, with a struct made from the event's schema. It is
strict where JSON parsers that fill columns are not (they turn ``5`` into ``"5"`` and lone
surrogates into text), it says which record is bad, and it is faster than those: a struct costs
0.45 us an event and its way into columns as much again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events import Why, iso_text, refusal
from headrace.model import FieldType
from headrace.model.partition_value import unsafe_partition_value
from headrace.pipelines.source.decode.columns import EventColumns
from headrace.pipelines.source.decode.decoder import Decoded, EventTimeBounds

if TYPE_CHECKING:
    from msgspec import Struct

    from headrace.model import EventSchema

# Few enough structs for the processor cache: parsing 50,000 at once takes half as long again.
BLOCK_RECORDS = 4_000


class JsonDecoder:
    r"""One JSON object a record, by an event schema.

    Fields that the schema does not declare are ignored, their text not even decoded, as long as the
    record is JSON. Of a repeated field the last value counts, and every one must be of the
    field's type. Bad records carry one of these reasons, the first that applies:

    ========================= ==================================================================
    null-value                no value: a tombstone
    empty                     nothing, or nothing but white space
    not-utf8                  bytes that are not UTF-8
    trailing-data             more after the JSON value, such as a second one
    not-json                  malformed or cut off; NaN and Infinity are not JSON
    too-deep                  nested beyond what the parser follows, about 950 levels
    not-an-object             a JSON array, string, number, boolean or null
    missing-field             a field that may not be null is absent
    wrong-type                a field is null, of another JSON type, or not an RFC 3339 time
    out-of-range              beyond 64 bits, beyond a double, or outside the years 1 to 9999
    unknown-value             a text that is none of the field's values
    lone-surrogate            half of a UTF-16 pair (``\ud800``), which is no text
    event-time-out-of-bounds  before or after the bounds of the topic
    unsafe-partition-value    a text that can't name a directory of the lake
    ========================= ==================================================================
    """

    def __init__(self, schema: EventSchema, partition_columns: Sequence[str] = ()) -> None:
        self._schema = schema
        self._columns = EventColumns(schema)
        self._partition_columns = [
            field.name
            for field in schema.fields
            if field.type is FieldType.STRING and field.name in partition_columns
        ]
        self.arrow_schema = self._columns.arrow_schema

    def decode(self, values: Sequence[bytes | None], bounds: EventTimeBounds | None) -> Decoded:
        """Columns of the schema's fields, and the bad records."""
        batches: list[pa.RecordBatch] = []
        bad: list[tuple[int, str, str]] = []
        for start in range(0, len(values), BLOCK_RECORDS):
            batch, refused = self._block(values[start : start + BLOCK_RECORDS], bounds)
            batches.append(batch)
            bad += [(start + index, *refused[index]) for index in sorted(refused)]
        rows = pa.Table.from_batches(batches, schema=self.arrow_schema).combine_chunks()
        return Decoded(rows, bad)

    def _block(
        self, values: Sequence[bytes | None], bounds: EventTimeBounds | None
    ) -> tuple[pa.RecordBatch, dict[int, Why]]:
        events, refused = self._parse(values)
        rows, unreadable = self._columns.of(events)
        bad_rows = {
            **_unsafe(rows, self._partition_columns),
            **_out_of_bounds(rows, bounds),
            **unreadable,
        }
        if not bad_rows:
            return rows, refused
        indices = [index for index in range(len(values)) if index not in refused]
        refused |= {indices[row]: why for row, why in bad_rows.items()}
        return _without(rows, bad_rows), refused

    def _parse(self, values: Sequence[bytes | None]) -> tuple[list[Struct], dict[int, Why]]:
        """The records that are events, and by index why the others are not."""
        events: list[Struct] = []
        refused: dict[int, Why] = {}
        left = iter(values)
        while True:
            try:
                # Keeps the events before a bad record, so nothing is parsed twice.
                events.extend(map(self._columns.parse, left))
            except (ValueError, TypeError, RecursionError) as error:
                index = len(events) + len(refused)
                refused[index] = refusal(values[index], self._schema, error)
            else:
                return events, refused


def _out_of_bounds(rows: pa.RecordBatch, bounds: EventTimeBounds | None) -> dict[int, Why]:
    if bounds is None:
        return {}
    times = rows.column(bounds.column).cast(pa.int64())
    extremes = pc.min_max(times)
    oldest, newest = extremes["min"].as_py(), extremes["max"].as_py()
    if oldest is None or (bounds.earliest <= oldest and newest <= bounds.latest):
        return {}
    outside = pc.or_(pc.less(times, bounds.earliest), pc.greater(times, bounds.latest))
    return {
        row: ("event-time-out-of-bounds", _bounds_sentence(time, bounds))
        for row, time in _found(times, outside)
    }


def _bounds_sentence(time: int, bounds: EventTimeBounds) -> str:
    side, limit = (
        ("before the earliest", bounds.earliest)
        if time < bounds.earliest
        else ("after the latest", bounds.latest)
    )
    return f"field {bounds.column!r} is {iso_text(time)}, {side} accepted, {iso_text(limit)}"


def _unsafe(rows: pa.RecordBatch, columns: Sequence[str]) -> dict[int, Why]:
    refused: dict[int, Why] = {}
    for name in columns:
        column = rows.column(name)
        reasons = {value: unsafe_partition_value(value or "") for value in _distinct(column)}
        unsafe = {value: reason for value, reason in reasons.items() if reason is not None}
        if unsafe:
            found = pc.is_in(column, pa.array(list(unsafe), pa.string()))
            refused |= {
                row: ("unsafe-partition-value", f"field {name!r} {unsafe[value]}")
                for row, value in _found(column, found)
            }
    return refused


def _distinct(column: pa.Array) -> list[str | None]:
    return list(pc.unique(column).to_pylist())


def _found(column: pa.Array, mask: pa.Array) -> Iterator[tuple[int, Any]]:
    """Row and value wherever the mask is true."""
    rows = pc.indices_nonzero(mask).to_pylist()
    return zip(rows, column.filter(mask).to_pylist(), strict=True)


def _without(rows: pa.RecordBatch, bad_rows: Mapping[int, Why]) -> pa.RecordBatch:
    kept = np.ones(rows.num_rows, np.bool_)
    kept[list(bad_rows)] = False
    return rows.filter(pa.array(kept))
