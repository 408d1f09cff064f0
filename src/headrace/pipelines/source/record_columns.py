"""The columns of the Kafka record that stand beside an event's fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.kafka.client.headers import headers_of
from headrace.kafka.dead_letters.replayed import PartitionId
from headrace.kafka.read.range_reader import Record
from headrace.model import EventSchema, Metadata
from headrace.pipelines.source.decode import columns_for
from headrace.pipelines.source.reading.envelopes import event_index

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_LATEST_MS = 253_402_300_799_999  # the end of the year 9999


def with_record_columns(
    rows: pa.Table,
    records: Sequence[Record],
    place: PartitionId,
    metadata: Sequence[Metadata],
) -> pa.Table:
    """Returns ``rows`` with the columns ``metadata`` of their records, which are in their order."""
    for column in metadata:
        rows = rows.append_column(column.value, _metadata_column(column, records, place))
    return rows


def timestamp_ms(record: Record) -> int | None:
    """Returns the timestamp; None if it is missing, or outside the calendar (other units)."""
    milliseconds = record.timestamp()[1]
    return milliseconds if 0 <= milliseconds <= _LATEST_MS else None


def record_offsets(records: Sequence[Record]) -> NDArray[np.int64]:
    """Returns the offset of each record; records are in order of offset.

    Events of one envelope have one offset.
    """
    import numpy as np

    if not records:
        return np.empty(0, np.int64)
    first, last = records[0].offset(), records[-1].offset()
    is_envelope = event_index(records[0]) is not None
    # Without gaps: no call for each record.
    if last - first == len(records) - 1 and not is_envelope:
        return np.arange(first, last + 1)
    return np.fromiter((record.offset() for record in records), np.int64, len(records))


def row_columns(schema: EventSchema | None, metadata: Sequence[Metadata]) -> pa.Schema:
    """Returns the columns of a topic's rows: fields of the event, then metadata; all nullable."""
    import pyarrow as pa

    columns = columns_for(schema)
    for column in metadata:
        columns = columns.append(pa.field(column.value, metadata_types()[column]))
    return columns


def metadata_types() -> dict[Metadata, pa.DataType]:
    """Arrow types of the metadata columns."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return {
        Metadata.TOPIC: pa.string(),
        Metadata.PARTITION: pa.int32(),
        Metadata.OFFSET: pa.int64(),
        Metadata.TIMESTAMP: pa.timestamp("us", tz="UTC"),
        Metadata.KEY: pa.binary(),
        Metadata.HEADERS: pa.list_(header),
        Metadata.EVENT_INDEX: pa.int32(),
        Metadata.TOPIC_ID: pa.string(),
    }


def _metadata_column(column: Metadata, records: Sequence[Record], place: PartitionId) -> pa.Array:
    import pyarrow as pa

    kind = metadata_types()[column]
    match column:
        case Metadata.TOPIC:
            return pa.repeat(pa.scalar(place.partition.topic, kind), len(records))
        case Metadata.TOPIC_ID:
            return pa.repeat(pa.scalar(place.topic_id, kind), len(records))
        case Metadata.PARTITION:
            return pa.repeat(pa.scalar(place.partition.partition, kind), len(records))
        case Metadata.OFFSET:
            return pa.array(record_offsets(records), kind)
        case Metadata.TIMESTAMP:
            values: list[Any] = [timestamp_ms(record) for record in records]
            # Kafka's are milliseconds; Arrow multiplies those of all records at once.
            return pa.array(values, pa.timestamp("ms", tz="UTC")).cast(kind)
        case Metadata.KEY:
            values = [record.key() for record in records]
        case Metadata.HEADERS:
            values = [_header_structs(record) for record in records]
        case Metadata.EVENT_INDEX:
            values = [event_index(record) for record in records]
    return pa.array(values, kind)


def _header_structs(record: Record) -> list[dict[str, Any]] | None:
    headers = headers_of(record)
    if headers is None:
        return None
    return [{"key": key, "value": value} for key, value in headers]
