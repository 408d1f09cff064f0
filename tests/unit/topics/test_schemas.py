"""Schemas that a project's events are written and read with."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark import cloudpickle
from tests.mock_registry import MockRegistry

from headrace.errors import ExtraMissingError, SchemaMismatchError
from headrace.events.avro.values import AvroWriter, avro_schema
from headrace.events.json_schema.schemas import json_schema
from headrace.events.protobuf.writing import protobuf_text
from headrace.model import Avro, JsonSchema, Protobuf, Topic, TopicPartition
from headrace.runtime import extras
from headrace.settings import Settings
from headrace.testing.bench_instance import Message, SentRecord
from headrace.topics.schemas import schema_warnings, written_with
from headrace.workers import Worker, WorkerTask, worker
from headrace.workers.references.table import WorkerReference
from headrace.workers.schemas import with_schemas


@dataclass
class Order:
    id: str


AVRO = Topic("orders", event=Order, format=Avro())
JSON = Topic("json-orders", event=Order, format=JsonSchema())
PROTOBUF = Topic("pb-orders", event=Order, format=Protobuf())
PLAIN, RAW = Topic("plain", event=Order), Topic("raw")
SETTINGS = Settings(Path(), "shop", ("flow",), "lake")


@worker(topic=AVRO)
async def take(order: Order) -> None:
    """Takes an event by value."""


@worker(topic=AVRO)
async def take_record(record) -> None:
    """Takes bytes, which need no schema."""


@worker(topic=PLAIN)
async def take_plain(order: Order) -> None:
    """Takes an event of JSON."""


@pytest.fixture
def registry():
    with MockRegistry().running() as registry:
        yield registry


def test_only_avro_topics_have_a_schema_and_others_ask_for_nothing(registry):
    settings = replace(SETTINGS, schema_registry=registry.settings)
    assert written_with([PLAIN, RAW], settings) == {}
    assert registry.requests == []
    assert written_with([PLAIN, AVRO, RAW], settings) == {"orders": 1}
    assert registry.requests == ["POST /subjects/orders-value/versions?normalize=False"]


def test_the_schema_of_a_json_schema_topic_is_registered_as_json(registry):
    settings = replace(SETTINGS, schema_registry=registry.settings)
    assert written_with([JSON], settings) == {"json-orders": 1}
    [(text, kind)] = registry.schemas
    assert (json.loads(text), kind) == (json_schema(JSON.schema), "JSON")


def test_the_newest_schema_of_a_protobuf_topic_is_used_and_else_one_is_registered(registry):
    settings = replace(SETTINGS, schema_registry=registry.settings)
    written = written_with([PROTOBUF], settings)["pb-orders"]
    assert (written.id, written.text) == (1, protobuf_text(PROTOBUF.schema))
    assert registry.schemas == [(written.text, "PROTOBUF")]
    registry.subjects["pb-orders-value"] = 'syntax = "proto3"; message M { string id = 12; }'
    registry.kinds["pb-orders-value"] = "PROTOBUF"
    assert "id = 12" in written_with([PROTOBUF], settings)["pb-orders"].text
    registry.subjects["pb-orders-value"] = 'syntax = "proto3"; message M { string name = 1; }'
    with pytest.raises(SchemaMismatchError, match="message M has no field 'id'"):
        written_with([PROTOBUF], settings)
    registry.kinds["pb-orders-value"] = "AVRO"
    with pytest.raises(SchemaMismatchError, match="is AVRO, and not PROTOBUF"):
        written_with([PROTOBUF], settings)
    assert len(registry.schemas) == 1


def test_what_a_registered_json_schema_allows_and_the_class_rejects_is_a_warning(registry):
    settings = replace(SETTINGS, schema_registry=registry.settings)
    assert list(schema_warnings([JSON, AVRO, PLAIN], settings)) == []
    subject = "json-orders-value"
    for schema in ({"type": "object", "properties": {"id": {"type": "string"}}}, {"type": 7}):
        registry.subjects[subject] = json.dumps(schema)
        registry.add(schema, "JSON")
        registry.kinds[subject] = "JSON"
        [warning] = schema_warnings([JSON, AVRO, PLAIN], settings)
        assert warning.message.startswith(f"topic 'json-orders': by the schema '{subject}' ")
    registry.kinds[subject] = "AVRO"
    [warning] = schema_warnings([JSON], settings)
    assert "events are AVRO, and not JSON" in warning.message


def test_an_avro_schema_is_compared_with_the_class_and_those_it_refers_to(registry):
    settings = replace(SETTINGS, schema_registry=registry.settings)
    registry.subjects["ids"] = json.dumps({"type": "enum", "name": "Id", "symbols": ["a"]})
    fields = [{"name": "id", "type": ["null", "Id"]}]
    text = json.dumps({"type": "record", "name": "Order", "fields": fields})
    registry.subjects["orders-value"] = text
    registry.add_text(text, Id="ids")
    [warning] = schema_warnings([AVRO], settings)
    assert warning.message == (
        "topic 'orders': by the schema 'orders-value' field 'id' may be null"
    )
    registry.subjects["orders-value"] = json.dumps(avro_schema(AVRO.schema))
    assert list(schema_warnings([AVRO], settings)) == []
    registry.subjects["orders-value"] = '{"type": record}'
    [warning] = schema_warnings([AVRO], settings)
    assert "nothing can be compared: it is no schema of Avro's" in warning.message


def test_a_protobuf_schema_is_compared_for_reading_and_for_writing(registry):
    settings = replace(SETTINGS, schema_registry=registry.settings)
    registry.kinds["pb-orders-value"] = "PROTOBUF"
    registry.subjects["pb-orders-value"] = protobuf_text(PROTOBUF.schema)
    assert list(schema_warnings([PROTOBUF], settings)) == []
    registry.subjects["pb-orders-value"] = 'syntax = "proto3"; message M { bytes id = 1; }'
    write, read = schema_warnings([PROTOBUF], settings)
    assert read.message == (
        "topic 'pb-orders': by the schema 'pb-orders-value' "
        "field 'id' is Protobuf's bytes, expected string or an enum"
    )
    assert "no events can be written with the schema 'pb-orders-value'" in write.message
    assert "field 'id' is bytes, which does not hold all of string" in write.message
    registry.subjects["pb-orders-value"] = "message M {"
    [warning] = schema_warnings([PROTOBUF], settings)
    assert "nothing can be compared: it is no schema of Protobuf's" in warning.message


@pytest.mark.parametrize("topic", [AVRO, JSON, PROTOBUF])
def test_a_class_that_can_t_be_compared_is_a_warning(registry, topic):
    registry.status = 422
    [warning] = schema_warnings([topic], replace(SETTINGS, schema_registry=registry.settings))
    assert f"its class is not compared with '{topic.name}-value'" in warning.message


@pytest.mark.parametrize("topic", [AVRO, JSON, PROTOBUF])
def test_a_class_is_not_compared_without_the_extra_which_is_a_warning(registry, topic, monkeypatch):
    extra = topic.format.extra
    monkeypatch.setattr(extras, "MODULES", {extra: ("no_such_module",)})
    [warning] = schema_warnings([topic], replace(SETTINGS, schema_registry=registry.settings))
    assert extra in warning.message


def test_a_worker_that_takes_avro_events_reads_them_by_the_projects_registry(registry):
    schema_id = registry.add(avro_schema(AVRO.schema))
    bound = with_schemas(take, replace(SETTINGS, schema_registry=registry.settings))
    task = cloudpickle.loads(cloudpickle.dumps(bound.task))
    value = AvroWriter(AVRO.schema, schema_id)(b'{"id": "o"}')
    assert task._readers["orders"](value) == Order("o")
    assert registry.requests == ["GET /schemas/ids/1"]


def test_a_worker_reads_avro_references_by_the_projects_registry(registry):
    schema_id = registry.add(avro_schema(AVRO.schema))
    worker = Worker("w", RAW, WorkerTask, references={"orders": AVRO})
    bound = with_schemas(worker, replace(SETTINGS, schema_registry=registry.settings))
    table = WorkerReference(cloudpickle.loads(cloudpickle.dumps(bound)), AVRO)
    value = AvroWriter(AVRO.schema, schema_id)(b'{"id": "o"}')
    at = TopicPartition("orders", 0)
    table.take(b"o", Message(at, 0, SentRecord("orders", value, b"o"), 0))
    table.publish()
    assert table.snapshot == {b"o": Order("o")}


def test_only_a_worker_that_takes_avro_events_needs_the_extra(monkeypatch):
    monkeypatch.setattr(extras, "MODULES", {"avro": ("fastavro_2",)})
    assert with_schemas(take_record, SETTINGS) is take_record
    assert with_schemas(take_plain, SETTINGS) is take_plain
    with pytest.raises(ExtraMissingError, match="avro"):
        with_schemas(replace(take_record, references={"orders": AVRO}), SETTINGS)
    with pytest.raises(ExtraMissingError, match="avro"):
        with_schemas(take, SETTINGS)
