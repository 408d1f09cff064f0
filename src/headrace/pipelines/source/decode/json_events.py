"""JSON events to columns.

One parser both validates and reads: msgspec, with a struct made from the event's schema. It is
strict where JSON parsers that fill columns are not (they turn ``5`` into ``"5"`` and lone
surrogates into text), it says which record is bad, and it is faster than those: a struct costs
0.45 us an event and its way into columns as much again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.events import Rejection, parsed_again, rejection
from headrace.events.json_schema.schemas import json_text
from headrace.pipelines.source.decode.columns import EventColumns
from headrace.pipelines.source.decode.decoder import Decoded
from headrace.pipelines.source.decode.parts import decoded_in_blocks, without_rows

if TYPE_CHECKING:
    from msgspec import Struct

    from headrace.model import EventSchema

# Few enough structs for the processor cache: parsing 50,000 at once takes half as long again.
BLOCK_RECORDS = 4_000


class JsonDecoder:
    r"""Decodes format :class:`~headrace.model.Json`: one JSON object per record.

    Fields that the schema does not declare are ignored, their text not even decoded, as long as the
    record is JSON. Of a repeated field the last value counts, whatever the others are. All of this
    holds for nested fields as well. Rejected records carry one of these reasons, the first that
    applies:

    ========================= ==================================================================
    null-value                no value: a tombstone
    empty                     nothing, or nothing but white space
    not-utf8                  bytes that are not UTF-8
    trailing-data             more after the JSON value, such as a second one
    not-json                  malformed or cut off; NaN and Infinity are not JSON
    too-deep                  nested beyond what the parser follows, about 950 levels
    not-an-object             a JSON array, string, number, boolean or null
    missing-field             a field that may not be null is absent
    wrong-type                a field is null, of another JSON type, or a text that is no time,
                              date, base64 or number where the field is one
    out-of-range              beyond 64 bits, a double or a decimal's digits, or a time outside the
                              years 1 to 9999
    unknown-value             a text that is none of the field's values
    lone-surrogate            half of a UTF-16 pair (``\ud800``), which is no text
    ========================= ==================================================================
    """

    def __init__(self, schema: EventSchema, needed: Collection[str] | None = None) -> None:
        """Columns are made as :class:`EventColumns` says."""
        self._schema = schema
        self._columns = EventColumns(schema, needed)
        self.arrow_schema = self._columns.arrow_schema

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decodes a chunk into the columns of the schema's fields."""
        return decoded_in_blocks(self._block, values, BLOCK_RECORDS, self.arrow_schema)

    def _block(self, values: Sequence[bytes | None]) -> Decoded:
        events, rejected = self._parse(values)
        rows, unreadable = self._columns.of(events)
        if unreadable:
            indices = [index for index in range(len(values)) if index not in rejected]
            for index in (indices[row] for row in unreadable):
                rejected[index] = rejection(values[index], self._schema)
        table = without_rows(pa.Table.from_batches([rows]), unreadable)
        return Decoded(table, dict(sorted(rejected.items())))

    def _parse(self, values: Sequence[bytes | None]) -> tuple[list[Struct], dict[int, Rejection]]:
        """Returns the records that the parser takes, and by index why it rejects the others."""
        events: list[Struct] = []
        rejected: dict[int, Rejection] = {}
        remaining = iter(values)
        while True:
            try:
                # Keeps the events before a bad record, so nothing is parsed twice.
                events.extend(map(self._columns.parse, remaining))
            except (ValueError, TypeError, RecursionError) as error:
                index = len(events) + len(rejected)
                again = parsed_again(values[index], self._schema, self._columns.parse, error)
                if isinstance(again, tuple):
                    rejected[index] = again
                else:
                    events.append(again)
            else:
                return events, rejected


class JsonSchemaDecoder(JsonDecoder):
    """Decodes format :class:`~headrace.model.JsonSchema`: JSON behind the id of its schema.

    The reasons are those of :class:`JsonDecoder`. No schema is looked up: the event class says what
    an event may be, and a text without an id is read, too.
    """

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """See :meth:`JsonDecoder.decode`."""
        return super().decode([json_text(value) for value in values])
