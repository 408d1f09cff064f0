"""Rows of records without a value, for sinks that delete the rows of their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.events import Rejection
from headrace.kafka.read.range_reader import Record
from headrace.model import EventSchema, FieldType
from headrace.pipelines.source.decode import Decoded, columns_for
from headrace.pipelines.source.record_columns import record_offsets, timestamp_ms

if TYPE_CHECKING:
    import pyarrow as pa

BAD_KEY = "bad-key"
_LONGS = range(-(2**63), 2**63)


class Parted(NamedTuple):
    """Records of a chunk, by what they hold.

    Attributes:
        records: those with a value, and those without one whose key is no value of the column.
        rejected: the reasons of the latter, by index in ``records``.
        deletions: those without a value that delete.
    """

    records: Sequence[Record]
    rejected: dict[int, Rejection]
    deletions: Sequence[Record]


class Deletions:
    """Makes rows of records without a value: :attr:`.Sink.null_key` says for which sinks.

    A row has the record's key in the column of the key, and the record's timestamp as its event
    time. The other fields are null.

    Args:
        schema: of the topic's events.
        key: field whose text is the record's key, of the type STRING or LONG.
        event_time: field of the event time; None: there is none.
    """

    def __init__(self, schema: EventSchema, key: str, event_time: str | None) -> None:
        self._columns = columns_for(schema)
        self._key, self._event_time = key, event_time
        self._is_long = any(
            field.name == key and field.type is FieldType.LONG for field in schema.fields
        )

    def parted(self, records: Sequence[Record]) -> Parted:
        """Returns the records of a chunk by what they hold."""
        kept: list[Record] = []
        rejected: dict[int, Rejection] = {}
        deletions: list[Record] = []
        for record in records:
            if record.value() is not None:
                kept.append(record)
            elif self._key_of(record) is not None:
                deletions.append(record)
            else:
                rejected[len(kept)] = (BAD_KEY, self._detail)
                kept.append(record)
        return Parted(kept, rejected, deletions)

    def rows(self, records: Sequence[Record]) -> pa.Table:
        """Returns the rows of records that delete."""
        import pyarrow as pa

        columns = {field.name: pa.nulls(len(records), field.type) for field in self._columns}
        key_type = self._columns.field(self._key).type
        columns[self._key] = pa.array([self._key_of(record) for record in records], key_type)
        if self._event_time is not None:
            times = pa.array(map(timestamp_ms, records), pa.timestamp("ms", tz="UTC"))
            columns[self._event_time] = times.cast(self._columns.field(self._event_time).type)
        return pa.table(columns, self._columns)

    def checked(self, rows: pa.Table, records: Sequence[Record]) -> Decoded:
        """Rejects rows whose record has another key than their column: none would delete them."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = pa.array([record.key() for record in records], pa.binary())
        texts = rows.column(self._key).cast(pa.string()).cast(pa.binary())
        is_same = pc.equal(texts, keys).fill_null(fill_value=False)
        others = pc.indices_nonzero(pc.invert(is_same)).to_pylist()
        if not others:
            return Decoded(rows, {})
        detail = f"the key of the record is not the text of field {self._key!r}"
        return Decoded(rows.filter(is_same), dict.fromkeys(others, (BAD_KEY, detail)))

    def merged(
        self,
        rows: pa.Table,
        events: Sequence[Record],
        deletions: pa.Table,
        records: Sequence[Record],
    ) -> tuple[pa.Table, Sequence[Record]]:
        """Returns the rows of events with those that delete, in the order of their records."""
        import numpy as np
        import pyarrow as pa

        offsets = np.concatenate([record_offsets(events), record_offsets(records)])
        order = np.argsort(offsets, kind="stable")
        both = [*events, *records]
        rows = pa.concat_tables([rows, deletions]).take(pa.array(order))
        return rows, [both[place] for place in order]

    @property
    def _detail(self) -> str:
        kind = "an integer of 64 bits" if self._is_long else "a text in UTF-8"
        return f"the record has no value, and its key is not {kind}, as field {self._key!r} is"

    def _key_of(self, record: Record) -> str | int | None:
        """Returns the value of the key column; None: the record's key is none."""
        key = record.key()
        try:
            text = None if key is None else key.decode()
            if text is None or not self._is_long:
                return text
            number = int(text)
        except ValueError:
            return None
        return number if number in _LONGS and str(number) == text else None
