"""The contract of formats, for each of headrace's own."""

import io
import itertools
from datetime import date, datetime
from decimal import Decimal

import fastavro
from tests.contracts.format import (
    LIMITS,
    NOON,
    EventFormatContract,
    FormatContract,
    Order,
    json_text,
)

from headrace.events.avro import HEADER, avro_schema
from headrace.ingest.events.validation import EventCheck
from headrace.model import Avro, JsonSchema, Topic
from headrace.pipelines.source.decode import decoder_for
from headrace.pipelines.source.decode.avro import AvroDecoder

NUMBERS = itertools.count()
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 3}
SIMPLE = {
    str: "string",
    int: "long",
    bytes: "bytes",
    type(None): "null",
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    date: {"type": "int", "logicalType": "date"},
    Decimal: DECIMAL,
}


def written_schema(name, value):
    """The Avro schema that a writer of this value, and no other, would have."""
    if name == "labels" and isinstance(value, dict):
        return {"type": "map", "values": "long"}
    if isinstance(value, dict):
        fields = [
            {"name": inner, "type": written_schema(inner, held)} for inner, held in value.items()
        ]
        return {"type": "record", "name": f"Record{next(NUMBERS)}", "fields": fields}
    if isinstance(value, list):
        return {"type": "array", "items": [written_schema(name, held) for held in value]}
    return SIMPLE[type(value)]


class TestRaw(FormatContract):
    topic = Topic("raw")

    def decoder(self):
        return decoder_for(self.topic.record_format, None)

    def a_record(self):
        return b"\x00anything"

    def test_every_record_is_a_row_a_tombstone_too(self):
        decoded = self.decoder().decode([b"\xff", None, b""])
        assert decoded.rejected == {}
        assert decoded.rows.to_pylist() == [{"value": b"\xff"}, {"value": None}, {"value": b""}]


class TestJson(EventFormatContract):
    topic = Topic("orders", event=Order)

    def decoder(self):
        return decoder_for(self.topic.record_format, self.topic.schema)

    def record(self, event):
        return json_text(event)

    def event_check(self, topic):
        return EventCheck(topic, LIMITS, NOON.timestamp)


class TestJsonSchema(EventFormatContract):
    topic = Topic("orders", event=Order, format=JsonSchema())

    def decoder(self):
        return decoder_for(self.topic.record_format, self.topic.schema)

    def record(self, event):
        return HEADER.pack(0, 7) + json_text(event)

    def event_check(self, topic):
        return EventCheck(topic, LIMITS, NOON.timestamp, 7)


class TestAvro(EventFormatContract):
    """Each record has the schema of its own writer, which need not be that of the class."""

    topic = Topic("orders", event=Order, format=Avro())
    schemas = {1: avro_schema(topic.schema)}  # noqa: RUF012 - as a registry: it only grows

    def decoder(self):
        return AvroDecoder(self.topic.schema, self.schemas.get)

    def record(self, event):
        schema = written_schema("", event)
        schema_id = len(self.schemas) + 1
        self.schemas[schema_id] = schema
        stream = io.BytesIO()
        stream.write(HEADER.pack(0, schema_id))
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), event)
        return stream.getvalue()

    def event_check(self, topic):
        return EventCheck(topic, LIMITS, NOON.timestamp, 1)
