"""Avro events to columns, by way of JSON text."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from headrace.events.avro import AvroTexts, SchemaLookup, as_read
from headrace.pipelines.source.decode.decoder import Decoded
from headrace.pipelines.source.decode.json_events import JsonDecoder

if TYPE_CHECKING:
    from headrace.events import Rejection
    from headrace.model import EventSchema


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
        self._json = JsonDecoder(as_read(schema), needed)
        self._json_text = AvroTexts(lookup, schema)
        self.arrow_schema = self._json.arrow_schema

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        """Decodes a chunk into the columns of the schema's fields.

        Raises:
            RegistryUnreachableError: if the registry does not answer.
        """
        texts: list[bytes | None] = []
        indices: list[int] = []
        rejected: dict[int, Rejection] = {}
        for index, value in enumerate(values):
            text = self._json_text(value)
            if isinstance(text, bytes):
                texts.append(text)
                indices.append(index)
            else:
                rejected[index] = text
        decoded = self._json.decode(texts)
        rejected |= {indices[number]: why for number, why in decoded.rejected.items()}
        return Decoded(decoded.rows, dict(sorted(rejected.items())))
