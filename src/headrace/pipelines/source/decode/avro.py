"""Avro events to columns: all at once where their schema allows it, else record by record."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.events.avro.values import AvroReader, AvroTexts, SchemaLookup
from headrace.events.parsing.values import as_read
from headrace.events.wire_format import frame_size, schema_id_of
from headrace.pipelines.source.decode.avro_columns import MIN_RECORDS, AvroColumns
from headrace.pipelines.source.decode.avro_cursors import MAX_BLOCK_BYTES
from headrace.pipelines.source.decode.avro_reads import NotInColumnsError
from headrace.pipelines.source.decode.decoder import Decoded, decode_others
from headrace.pipelines.source.decode.json_events import JsonDecoder
from headrace.pipelines.source.decode.parts import Part, decoded_in_blocks, in_order, without_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.events import Rejection
    from headrace.model import EventSchema, SchemaId

_LOG = logging.getLogger("headrace.pipelines")
BLOCK_RECORDS = 16_000


class AvroDecoder:
    """Decodes format :class:`~headrace.model.Avro`: Confluent's wire format.

    Each record names the schema that it was written with; the event class is the reader's schema. A
    field that the writer's schema lacks is null, or missing, and one that the class lacks is
    skipped, whatever it holds. Rejected records carry one of these reasons, or one of the JSON
    decoder's for the fields of the event:

    ========================= ==================================================================
    null-value                no value: a tombstone
    no-schema-id              does not begin with a zero byte and the id of a schema
    unknown-schema            the registry has no schema of that id
    unreadable-schema         the schema of that id is not Avro, or nothing can be read by it
    not-avro                  does not fit the schema that it names
    not-utf8                  a string that is not UTF-8
    out-of-range              a time outside the years 1 to 9999
    trailing-data             more than the schema describes
    too-deep                  nested a thousand levels or deeper
    too-many-items            more than 100,000 items that take no bytes, such as nulls
    wrong-type                a type of Avro's that the field does not take
    not-an-object             not a record
    ========================= ==================================================================

    A registry that does not answer rejects nothing: the task fails and is repeated.
    """

    def __init__(
        self, schema: EventSchema, lookup: SchemaLookup, needed: Collection[str] | None = None
    ) -> None:
        """Schemas of records are looked up with ``lookup``; columns are as of JSON events."""
        self._schema = as_read(schema)
        self._json = JsonDecoder(self._schema, needed)
        self._texts = AvroTexts(lookup, schema)
        self._columns: dict[bytes, AvroColumns | None] = {}
        self.arrow_schema = self._json.arrow_schema

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decodes a chunk into the columns of the schema's fields.

        Raises:
            RegistryUnreachableError: if the registry does not answer.
        """
        return decoded_in_blocks(self._block, values, BLOCK_RECORDS, self.arrow_schema)

    def _block(self, values: Sequence[bytes | None]) -> Decoded:
        if sum(map(len, filter(None, values))) > MAX_BLOCK_BYTES:
            return self._record_by_record(values)
        parts: list[Part] = []
        rejected: dict[int, Rejection] = {}
        is_unread = np.ones(len(values), np.bool_)
        for head, indices in self._by_schema(values):
            columns = self._columns_of(head)
            if isinstance(columns, tuple):
                rejected |= dict.fromkeys(indices.tolist(), columns)
                is_unread[indices] = False
            # Fewer records are read faster one by one.
            elif columns is not None and len(indices) >= MIN_RECORDS:
                rows, falls_back = columns.read(_selected(values, indices))
                rows = without_rows(rows, np.nonzero(falls_back)[0])
                parts.append((indices[~falls_back], Decoded(rows, {})))
                is_unread[indices] = falls_back
                # The schema itself can't be read in columns, so further blocks need not try.
                if falls_back.all():
                    self._fall_back(head, "no record of the block could be read in columns")
        unread = np.nonzero(is_unread)[0]
        if len(unread):
            parts.append((unread, self._record_by_record(_selected(values, unread))))
        return in_order(parts, rejected, self.arrow_schema)

    def _by_schema(
        self, values: Sequence[bytes | None]
    ) -> Iterator[tuple[bytes, NDArray[np.int64]]]:
        """Yields each id of a schema with the indices of its values; empty: they have none."""
        heads = [b"" if value is None else value[: frame_size(value)] for value in values]
        numbers = {head: number for number, head in enumerate(dict.fromkeys(heads))}
        by_record = np.fromiter(map(numbers.__getitem__, heads), np.int64, len(heads))
        for head, number in numbers.items():
            yield head, np.nonzero(by_record == number)[0]

    def _columns_of(self, head: bytes) -> AvroColumns | Rejection | None:
        """Returns what reads the values after an id into columns; None: nothing does."""
        if not head:
            return None
        if head in self._columns:
            return self._columns[head]
        reader = self._texts.reader(head)
        if not isinstance(reader, AvroReader):
            return reader
        try:
            self._columns[head] = AvroColumns(reader, self._schema, self.arrow_schema)
        except NotInColumnsError as error:
            self._fall_back(head, str(error))
        return self._columns[head]

    def _fall_back(self, head: bytes, reason: str) -> None:
        """Has records of a schema decoded by themselves from now on."""
        self._columns[head] = None
        _log_fallback(self._schema.name, schema_id_of(head), reason)

    def _record_by_record(self, values: Sequence[bytes | None]) -> Decoded:
        """Decodes records by way of JSON text."""
        texts = [self._texts(value) for value in values]
        rejected = {index: why for index, why in enumerate(texts) if isinstance(why, tuple)}
        read = [text if isinstance(text, bytes) else None for text in texts]
        return decode_others(self._json, read, rejected)


def _selected(values: Sequence[bytes | None], indices: NDArray[np.int64]) -> Sequence[Any]:
    """Returns the values at some indices, which are ascending."""
    if len(indices) == len(values):
        return values
    return [values[index] for index in indices.tolist()]


@lru_cache(maxsize=1_000)
def _log_fallback(event: str, schema_id: SchemaId, reason: str) -> None:
    """Logs once in a process why records of a schema are decoded by themselves."""
    _LOG.warning(
        "%s: records with the schema id %s are decoded record by record, which takes up to ten "
        "times as long: %s",
        *(event, schema_id, reason),
    )
