"""The contract of formats, for each of headrace's own."""

import functools
import io
import itertools
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

import fastavro
from google.protobuf.message_factory import GetMessageClass
from tests.contracts.format import (
    LIMITS,
    NOON,
    ORDER,
    EventFormatContract,
    FormatContract,
    Line,
    Order,
    json_text,
)

from headrace.events.avro.values import HEADER, avro_schema
from headrace.events.protobuf.schemas import protobuf_schema
from headrace.events.protobuf.writing import protobuf_text
from headrace.ingest.events.validation import EventCheck
from headrace.model import Avro, JsonSchema, Protobuf, RegisteredSchema, Topic
from headrace.pipelines.source.decode import decoder_for
from headrace.pipelines.source.decode.avro import AvroDecoder
from headrace.pipelines.source.decode.protobuf import ProtobufDecoder

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


@dataclass
class ProtobufOrder:
    """An :class:`Order` without what Protobuf has no form for."""

    id: str
    at: datetime
    group: str
    count: int | None
    day: date | None
    body: bytes | None
    first: Line | None
    lines: list[Line]
    labels: dict[str, int]


PROTOBUF = {
    str: "string",
    int: "int64",
    bytes: "bytes",
    datetime: "google.protobuf.Timestamp",
    date: "string",
    Decimal: "string",
}


def message_fields(event, indent=""):
    """The messages and fields that a writer of this value, and no other, would have."""
    messages, fields = [], []
    for number, (name, value) in enumerate(event.items(), 1):
        held = value[0] if isinstance(value, list) else value
        kind = f"Of{name}" if isinstance(held, dict) else PROTOBUF.get(type(held), "string")
        if name == "labels":
            kind = "map<string, int64>"
        elif isinstance(held, dict):
            merged = {key: item for part in [value, held] for key, item in dict_of(part).items()}
            messages.append(f"message {kind} {{ {message_fields(merged)} }}")
        label = "repeated " if isinstance(value, list) else "optional "
        fields.append(f"{'' if name == 'labels' else label}{kind} {name} = {number};")
    return " ".join([*messages, *fields])


def dict_of(value):
    """The members of all items: the last one's type is that of all."""
    if isinstance(value, dict):
        return value
    return {key: item for part in value for key, item in part.items()}


class TestProtobuf(EventFormatContract):
    """Each record has the schema of its own writer, which need not be that of the class."""

    topic = Topic("orders", event=ProtobufOrder, format=Protobuf())
    schemas = {1: RegisteredSchema("PROTOBUF", protobuf_text(topic.schema), id=1)}  # noqa: RUF012

    def decoder(self):
        return ProtobufDecoder(self.topic.schema, self.schemas.get)

    def record(self, event):
        head = 'syntax = "proto3"; import "google/protobuf/timestamp.proto";'
        text = f"{head} message Record {{ {message_fields(event)} }}"
        known = {schema.text: number for number, schema in self.schemas.items()}
        schema_id = known.setdefault(text, len(known) + 1)
        schema = self.schemas.setdefault(schema_id, RegisteredSchema("PROTOBUF", text))
        message = message_of(schema)()
        for name, value in event.items():
            put(message, name, value)
        return HEADER.pack(0, schema_id) + b"\0" + message.SerializeToString()

    def event_check(self, topic):
        return EventCheck(topic, LIMITS, NOON.timestamp, self.schemas[1])

    def test_what_may_be_null_may_be_missing_and_what_is_not_declared_is_ignored(self):
        required = {name: ORDER[name] for name in ("id", "at", "group")}
        nulls = dict.fromkeys(("count", "day", "body", "first"))
        rows, rejected = self.judged(required, required | nulls, ORDER | {"other": "x"})
        assert rejected == {}
        # A list that is not there has no items.
        assert rows[0] == rows[1] == required | nulls | {"lines": [], "labels": []}
        assert rows[2]["id"] == "o1"

    def test_a_null_is_named_where_none_is_allowed(self):
        _, rejected = self.judged(ORDER | {"id": None})
        assert rejected == {0: ("missing-field", "field 'id' is missing, expected a string")}


@functools.cache
def message_of(schema):
    return GetMessageClass(protobuf_schema(schema).message([0]))


def put(message, name, value):
    """Sets a field, which is of the type of its value."""
    field = getattr(message, name)
    if isinstance(value, datetime):
        field.FromDatetime(value)
    elif name == "labels" and value is not None:
        field.update(value)
    elif isinstance(value, dict):
        field.SetInParent()
        for inner, held in value.items():
            put(field, inner, held)
    elif isinstance(value, list):
        for item in value:
            held = field.add()
            for inner, part in item.items():
                put(held, inner, part)
    elif value is not None:
        setattr(message, name, str(value) if isinstance(value, date | Decimal) else value)
