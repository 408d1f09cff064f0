"""Events of Avro, JSON Schema and Protobuf through a real schema registry, on both paths."""

import io
import json
import struct
import subprocess
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

import fastavro
import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from tests.integration.flow import NOW_MS, Flow
from tests.integration.schema_registry_server import SchemaRegistryServer
from tests.integration.service import Service
from tests.integration.test_sinks import records
from tests.waiting import FLUSH_SECONDS

from headrace import (
    Avro,
    EpochMillis,
    JsonSchema,
    Kafka,
    Lake,
    Pipeline,
    Precision,
    Protobuf,
    Topic,
)
from headrace.cli import main
from headrace.errors import RegistryUnreachableError
from headrace.events.protobuf.schemas import protobuf_schema
from headrace.kafka.admin.schema_registry import SchemaRegistry
from headrace.kafka.client.clients import connected_producer
from headrace.model import RegisteredSchema, event_schema
from headrace.pipelines.source.decode import decoder_for
from headrace.runtime.servers.ports import free_ports
from headrace.service.status import State
from headrace.settings import SchemaRegistrySettings


@dataclass
class Item:
    sku: str
    price: Annotated[Decimal, Precision(12, scale=2)]


@dataclass
class Order:
    id: str
    at: EpochMillis
    items: list[Item]
    note: str | None


ITEM = {
    "type": "record",
    "name": "Item",
    "namespace": "shop",
    "fields": [
        {"name": "sku", "type": "string"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
    ],
}
JSON_SCHEMA = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"})
JSON_DRAFT = {"$schema": "http://json-schema.org/draft-07/schema#"}
AT = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def order_schema(*more, item=ITEM):
    fields = [
        {"name": "id", "type": "string"},
        AT,
        {"name": "items", "type": {"type": "array", "items": item}},
        *more,
    ]
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}


def order(n, **changes):
    at = datetime.fromtimestamp((NOW_MS - 3_600_000) / 1000, UTC)
    return {"id": f"o{n}", "at": at, "items": [{"sku": "a", "price": Decimal("1.50")}]} | changes


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    server = SchemaRegistryServer(tmp_path_factory.mktemp("registry"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(registry):
    with SchemaRegistryClient({"url": registry.settings.url}) as client:
        yield client


def serialized(client, topic, schema, value):
    """As any producer with Confluent's serializer writes it."""
    serializer = AvroSerializer(client, json.dumps(schema))
    return serializer(value, SerializationContext(topic, MessageField.VALUE))


@pytest.fixture
def flow(broker, spark, tmp_path, registry):
    flow = Flow(broker, spark, tmp_path)
    flow.more_settings = {"schema_registry": registry.settings}
    return flow


@pytest.fixture
def topic(flow):
    topic = Topic(f"{flow.name}-avro", event=Order, format=Avro(), event_time="at")
    flow.create(topic.name, 1)
    flow.create(topic.dead_letters, 1)
    return topic


def with_count(rows):
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("count", F.size("items"))


@pytest.mark.parametrize("path", ["fused", "stepped"])
def test_avro_events_of_several_schemas_land_and_bad_ones_are_dead_letters(
    flow, topic, client, path
):
    old, new = order_schema(), order_schema(NOTE, {"name": "undeclared", "type": "int"})
    values = [
        serialized(client, topic.name, old, order(1)),
        b"\x00\x7f\xff\xff\xffx",
        serialized(client, topic.name, new, order(2, note="n", undeclared=1)),
        json.dumps({"id": "o3"}).encode(),
        serialized(client, topic.name, old, order(4))[:-2],
        None,
        serialized(client, topic.name, old, order(5)),
    ]
    flow.send(values, topic=topic.name)
    steps = [with_count] if path == "stepped" else []
    outcome = flow.run(Pipeline(path, topic, Lake(path, ("day",)), steps=steps))[path]
    assert outcome.state is State.FINISHED, outcome.reason
    rows = sorted(flow.rows(path), key=lambda row: row["id"])
    assert [(row["id"], row["note"]) for row in rows] == [("o1", None), ("o2", "n"), ("o5", None)]
    assert rows[0]["items"] == [{"sku": "a", "price": Decimal("1.50")}]
    assert rows[0]["at"] == order(1)["at"]
    letters = [stored.letter for stored in flow.dead(topic.name)]
    assert [(letter.offset, letter.reason) for letter in letters] == [
        (1, "unknown-schema"),
        (3, "no-schema-id"),
        (4, "not-avro"),
        (5, "null-value"),
    ]
    assert letters[2].value == values[4]


def test_a_pipeline_writes_avro_that_other_clients_read(flow, topic, client):
    source = Topic(f"{flow.name}-json", event=Order, event_time="at")
    flow.create(source.name, 1)
    flow.create(source.dead_letters, 1)
    event = order(1, note="n")
    made = {"at": int(event["at"].timestamp() * 1000), "items": [{"sku": "a", "price": "1.50"}]}
    flow.send([json.dumps(event | made).encode()], topic=source.name)
    outcome = flow.run(Pipeline("to-avro", source, Kafka(topic)))["to-avro"]
    assert outcome.state is State.FINISHED, outcome.reason
    [record] = records(flow.client, topic.name)
    context = SerializationContext(topic.name, MessageField.VALUE)
    assert AvroDeserializer(client)(record.value(), context) == event
    assert len(client.get_versions(topic.schema_subject)) == 1


def test_a_schema_may_refer_to_another_one(client, registry):
    client.register_schema("shop-item", Schema(json.dumps(ITEM), "AVRO"))
    refers = order_schema(item="shop.Item")
    reference = SchemaReference("shop.Item", "shop-item", 1)
    schema_id = client.register_schema("refers", Schema(json.dumps(refers), "AVRO", [reference]))
    body = io.BytesIO(struct.pack(">bI", 0, schema_id))
    body.seek(5)
    fastavro.schemaless_writer(body, fastavro.parse_schema(order_schema()), order(1))
    decoder = decoder_for(Avro(), event_schema(Order), registry.settings)
    decoded = decoder.decode([body.getvalue()])
    assert decoded.rejected == {}
    assert decoded.rows["items"].to_pylist() == [[{"sku": "a", "price": Decimal("1.50")}]]


def test_a_schema_of_another_kind_is_not_read(client, registry):
    schema_id = client.register_schema("json", Schema(JSON_SCHEMA, "JSON"))
    with pytest.raises(ValueError, match="it is of the type JSON"):
        SchemaRegistry(registry.settings).schema("AVRO", schema_id)


def test_a_registry_that_does_not_answer_rejects_nothing():
    (port,) = free_ports(1)
    settings = SchemaRegistrySettings(f"http://127.0.0.1:{port}")
    decoder = decoder_for(Avro(), event_schema(Order), settings)
    with pytest.raises(RegistryUnreachableError, match=str(port)):
        decoder.decode([b"\x00\x00\x00\x00\x01x"])


AVRO_FLOW = """
from datetime import datetime
from headrace import Avro, Topic


class Visit:
    id: str
    at: datetime
    pages: list[int]


visits = Topic("visits{suffix}", event=Visit, format=Avro(), key="id", event_time="at")
"""
VISIT = {"id": "v1", "at": "2026-05-01T10:00:00Z", "pages": [1, 2]}


@pytest.fixture
def service(broker, registry, tmp_path):
    table = f'[schema_registry]\nurl = "{registry.settings.url}"'
    service = Service(tmp_path, broker.bootstrap_servers, f"-{uuid.uuid4().hex[:6]}", table)
    (tmp_path / "flow.py").write_text(AVRO_FLOW.format(suffix=service.suffix))
    service.command("apply")
    return service


def test_events_over_http_and_from_a_file_are_avro_that_other_clients_read(service, client):
    name = f"visits{service.suffix}"
    lines = service.folder / "visits.ndjson"
    lines.write_text(json.dumps(VISIT | {"id": "v2"}) + "\n")
    assert service.command("produce", name, str(lines))["sent"] == 1
    with service.running():
        token = service.token()
        assert service.post("visits", token, json.dumps(VISIT)).status_code == 202
        answer = service.post("visits", token, json.dumps(VISIT | {"pages": ["x"]}))
        assert (answer.status_code, answer.json()["code"]) == (400, "wrong-type")
    read = AvroDeserializer(client)
    context = SerializationContext(name, MessageField.VALUE)
    records = service.records("visits")
    at = datetime(2026, 5, 1, 10, tzinfo=UTC)
    assert {record.key(): read(record.value(), context) for record in records} == {
        b"v1": VISIT | {"at": at},
        b"v2": VISIT | {"id": "v2", "at": at},
    }
    assert len(client.get_versions(f"{name}-value")) == 1
    sender = connected_producer(service.client)
    sender.produce(name, b"\xffno Avro", b"v3")
    assert sender.flush(FLUSH_SECONDS) == 0
    arguments = ("tail", name, "--from", "earliest", "--once", "--json", "--project")
    shown = CliRunner().invoke(main, [*arguments, str(service.folder)])
    values = {line["key"]: line.get("value") for line in map(json.loads, shown.output.splitlines())}
    assert json.loads(values["v1"]) == VISIT
    assert json.loads(values["v2"]) == VISIT | {"id": "v2"}
    assert values["v3"] is None  # its bytes are in base64


def test_where_the_registry_rejects_a_changed_event_class_nothing_is_sent(service, client):
    name = f"visits{service.suffix}"
    lines = service.folder / "visits.ndjson"
    lines.write_text(json.dumps(VISIT) + "\n")
    service.command("produce", name, str(lines))
    client.set_compatibility(f"{name}-value", "BACKWARD")
    flow = service.folder / "flow.py"
    flow.write_text(flow.read_text().replace("pages:", "site: str\n    pages:"))
    for command in (["produce", name, str(lines)], ["ingest"]):
        arguments = [service.headrace, *command, "--json", "--project", service.folder]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 1, done.stdout + done.stderr
        assert f"{name}-value" in json.loads(done.stdout)["message"]
    assert len(service.records("visits")) == 1
    flow.write_text(flow.read_text().replace("site: str", "site: str | None"))
    assert service.command("produce", name, str(lines))["sent"] == 1


JSON_FLOW = AVRO_FLOW.replace("Avro", "JsonSchema")


def test_json_schema_events_over_http_and_from_a_file_are_what_other_clients_read(
    broker, registry, client, tmp_path
):
    table = f'[schema_registry]\nurl = "{registry.settings.url}"'
    service = Service(tmp_path, broker.bootstrap_servers, f"-{uuid.uuid4().hex[:6]}", table)
    (tmp_path / "flow.py").write_text(JSON_FLOW.format(suffix=service.suffix))
    service.command("apply")
    name = f"visits{service.suffix}"
    lines = service.folder / "visits.ndjson"
    lines.write_text(json.dumps(VISIT | {"id": "v2", "undeclared": 1}) + "\n")
    assert service.command("produce", name, str(lines))["sent"] == 1
    with service.running():
        token = service.token()
        answer = service.post("visits", token, json.dumps(VISIT))
        assert answer.status_code == 202, answer.text
    context = SerializationContext(name, MessageField.VALUE)
    schema = client.get_latest_version(f"{name}-value").schema
    read = JSONDeserializer(schema.schema_str)
    records = service.records("visits")
    assert {record.key(): read(record.value(), context) for record in records} == {
        b"v1": VISIT,
        b"v2": VISIT | {"id": "v2"},
    }
    assert schema.schema_type == "JSON"
    arguments = ("tail", name, "--from", "earliest", "--once", "--json", "--project")
    shown = CliRunner().invoke(main, [*arguments, str(service.folder)])
    values = [json.loads(line)["value"] for line in shown.output.splitlines()]
    assert sorted(json.loads(value)["id"] for value in values) == ["v1", "v2"]
    other = {"type": "object", "properties": {"id": {"type": "integer"}}}
    client.set_compatibility(f"{name}-value", "NONE")
    client.register_schema(f"{name}-value", Schema(json.dumps(JSON_DRAFT | other), "JSON"))
    warnings = [warning["message"] for warning in service.command("plan")["warnings"]]
    said = "by the schema '{}-value' field 'id' may be an integer, expected string"
    assert any(said.format(name) in warning for warning in warnings)


@pytest.mark.parametrize("path", ["fused", "stepped"])
def test_json_schema_events_of_other_clients_land_and_bad_ones_are_dead_letters(flow, client, path):
    topic = Topic(f"{flow.name}-json", event=Order, format=JsonSchema(), event_time="at")
    flow.create(topic.name, 1)
    flow.create(topic.dead_letters, 1)
    context = SerializationContext(topic.name, MessageField.VALUE)
    write = JSONSerializer(json.dumps(JSON_DRAFT | {"title": "Order", "type": "object"}), client)
    event = order(1, note="n", undeclared={"x": 1})
    event |= {"at": int(event["at"].timestamp() * 1000), "items": [{"sku": "a", "price": "1.50"}]}
    values = [write(event, context), write(event | {"id": 7}, context), None]
    flow.send([*values, json.dumps(event | {"id": "o2"}).encode()], topic=topic.name)
    steps = [with_count] if path == "stepped" else []
    outcome = flow.run(Pipeline(path, topic, Lake(path, ("day",)), steps=steps))[path]
    assert outcome.state is State.FINISHED, outcome.reason
    rows = sorted(flow.rows(path), key=lambda row: row["id"])
    assert [(row["id"], row["note"]) for row in rows] == [("o1", "n"), ("o2", "n")]
    assert rows[0]["items"] == [{"sku": "a", "price": Decimal("1.50")}]
    letters = [stored.letter for stored in flow.dead(topic.name)]
    assert [(letter.offset, letter.reason) for letter in letters] == [
        (1, "wrong-type"),
        (2, "null-value"),
    ]
    assert letters[0].value == values[1]
    assert "field 'id' is an integer" in letters[0].detail


SHOP_ITEM = 'syntax = "proto3"; package shop; message Item { string sku = 2; string price = 9; }'
SHOP_ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "shop/item.proto";
message Other { int32 x = 1; }
message Order {
  repeated shop.Item items = 7;
  string id = 3;
  google.protobuf.Timestamp at = 1;
  optional string note = 4;
  Order undeclared = 8;
}
"""


def shop_order(client, topic, indices=b"\x02\x02"):
    """What writes orders as the second message of a registered schema, which imports another."""
    imported = f"{topic}-item"
    client.register_schema(imported, Schema(SHOP_ITEM, "PROTOBUF"))
    reference = SchemaReference("shop/item.proto", imported, 1)
    registered = Schema(SHOP_ORDER, "PROTOBUF", [reference])
    schema_id = client.register_schema(f"{topic}-value", registered)
    files = RegisteredSchema("PROTOBUF", SHOP_ORDER, (("shop/item.proto", SHOP_ITEM),))
    order_class = GetMessageClass(protobuf_schema(files).message([1]))

    def write(**fields):
        body = ParseDict(fields, order_class()).SerializeToString()
        return struct.pack(">bI", 0, schema_id) + indices + body

    return write


@pytest.mark.parametrize("path", ["fused", "stepped"])
def test_protobuf_events_of_other_clients_land_and_bad_ones_are_dead_letters(flow, client, path):
    topic = Topic(f"{flow.name}-pb", event=Order, format=Protobuf(), event_time="at")
    flow.create(topic.name, 1)
    flow.create(topic.dead_letters, 1)
    write = shop_order(client, topic.name)
    event = {"at": order(1)["at"].isoformat(), "items": [{"sku": "a", "price": "1.50"}]}
    first = write(**event, id="o1", note="", undeclared={"id": "x"})
    values = [first, b"\0\x7f\xff\xff\xff\0", None, first[:-1], write(**event, id="o2")]
    values.append(write(at=event["at"], items=[{"sku": "a", "price": "x"}]))
    flow.send(values, topic=topic.name)
    steps = [with_count] if path == "stepped" else []
    outcome = flow.run(Pipeline(path, topic, Lake(path, ("day",)), steps=steps))[path]
    assert outcome.state is State.FINISHED, outcome.reason
    rows = sorted(flow.rows(path), key=lambda row: row["id"])
    assert [(row["id"], row["note"]) for row in rows] == [("o1", ""), ("o2", None)]
    assert rows[0]["items"] == [{"sku": "a", "price": Decimal("1.50")}]
    assert rows[0]["at"] == order(1)["at"]
    letters = [stored.letter for stored in flow.dead(topic.name)]
    assert [(letter.offset, letter.reason) for letter in letters] == [
        (1, "unknown-schema"),
        (2, "null-value"),
        (3, "not-protobuf"),
        (5, "wrong-type"),
    ]
    assert "field 'items[0].price'" in letters[3].detail


def test_protobuf_events_over_http_and_from_a_file_are_what_other_clients_read(
    broker, registry, client, tmp_path
):
    table = f'[schema_registry]\nurl = "{registry.settings.url}"'
    service = Service(tmp_path, broker.bootstrap_servers, f"-{uuid.uuid4().hex[:6]}", table)
    flow = AVRO_FLOW.replace("Avro", "Protobuf").format(suffix=service.suffix)
    (tmp_path / "flow.py").write_text(flow)
    service.command("apply")
    name = f"visits{service.suffix}"
    lines = service.folder / "visits.ndjson"
    lines.write_text(json.dumps(VISIT | {"id": "v2"}) + "\n")
    assert service.command("produce", name, str(lines))["sent"] == 1
    with service.running():
        answer = service.post("visits", service.token(), json.dumps(VISIT))
        assert answer.status_code == 202, answer.text
    registered = client.get_latest_version(f"{name}-value")
    assert registered.schema.schema_type == "PROTOBUF"
    text = registered.schema.schema_str
    visit = GetMessageClass(protobuf_schema(RegisteredSchema("PROTOBUF", text)).message([0]))
    read = ProtobufDeserializer(visit, {"use.deprecated.format": False})
    context = SerializationContext(name, MessageField.VALUE)
    messages = [read(record.value(), context) for record in service.records("visits")]
    assert {message.id: list(message.pages) for message in messages} == {"v1": [1, 2], "v2": [1, 2]}
    assert messages[0].at.ToDatetime(UTC) == datetime(2026, 5, 1, 10, tzinfo=UTC)
    arguments = ("tail", name, "--from", "earliest", "--once", "--json", "--project")
    shown = CliRunner().invoke(main, [*arguments, str(service.folder)])
    values = [json.loads(json.loads(line)["value"]) for line in shown.output.splitlines()]
    assert sorted(value["id"] for value in values) == ["v1", "v2"]
    (tmp_path / "flow.py").write_text(flow.replace("pages:", "site: str | None\n    pages:"))
    arguments = [service.headrace, "produce", name, str(lines), "--json", "--project", tmp_path]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "has no field 'site'" in json.loads(done.stdout)["message"]
