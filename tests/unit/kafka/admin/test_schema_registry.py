"""Requests to a schema registry: few, bounded, and never mistaken for an answer."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from tests.mock_registry import MockRegistry

from headrace.errors import ExtraMissingError, RegistryUnreachableError, SchemaRejectedError
from headrace.kafka.admin import schema_registry
from headrace.kafka.admin.schema_registry import (
    SchemaRegistry,
    latest_schema,
    register,
    shared_registry,
)
from headrace.model import RegisteredSchema
from headrace.runtime import extras
from headrace.runtime.servers.ports import free_ports
from headrace.settings import SchemaRegistrySettings, Secret

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
TEXT = json.dumps(SCHEMA)
AVRO = RegisteredSchema("AVRO", TEXT)


@pytest.fixture
def server(monkeypatch):
    quick = {**schema_registry.CLIENT_CONFIG, "retries.wait.ms": 1, "retries.max.wait.ms": 1}
    monkeypatch.setattr(schema_registry, "CLIENT_CONFIG", quick)
    with MockRegistry().running() as server:
        yield server


def test_a_schema_is_looked_up_once_whoever_asks(server):
    schema_id = server.add(SCHEMA)
    registry = SchemaRegistry(server.settings)
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(partial(registry.schema, "AVRO"), [schema_id] * 50))
    assert answers == [AVRO] * 50
    assert len(server.requests) == 1


def test_an_unknown_id_is_looked_up_again_after_a_while(server):
    now = [0.0]
    registry = SchemaRegistry(server.settings, lambda: now[0])
    assert [registry.schema("AVRO", 1), registry.schema("AVRO", 1)] == [None, None]
    assert len(server.requests) == 1
    server.add(SCHEMA)
    now[0] = 29.0
    assert registry.schema("AVRO", 1) is None
    now[0] = 31.0
    assert registry.schema("AVRO", 1) == AVRO


def test_a_schema_of_another_kind_is_there_and_looked_up_once(server):
    registry = SchemaRegistry(server.settings)
    schema_id = server.add({"type": "object"}, "JSON")
    for _ in range(2):
        with pytest.raises(ValueError, match="it is of the type JSON, and not AVRO"):
            registry.schema("AVRO", schema_id)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_registry_that_does_not_say_is_unreachable_and_asked_a_few_times_at_most(server, status):
    schema_id = server.add(SCHEMA)
    registry = SchemaRegistry(server.settings)
    server.status = status
    with pytest.raises(RegistryUnreachableError, match=r"127\.0\.0\.1"):
        registry.schema("AVRO", schema_id)
    assert len(server.requests) <= 3
    server.status = None
    assert registry.schema("AVRO", schema_id) == AVRO


@pytest.mark.parametrize(
    "page",
    [
        (404, "<html>default backend - 404</html>"),
        (404, ""),
        (404, '{"error_code": 404, "message": "HTTP 404 Not Found"}'),
        (404, '["no route"]'),
        (200, "<html>under construction</html>"),
        (200, "{}"),
        (200, '{"status": "ok"}'),
    ],
)
def test_another_server_at_its_address_does_not_say_what_the_registry_has(server, page):
    schema_id = server.add(SCHEMA)
    registry = SchemaRegistry(server.settings)
    server.page = page
    with pytest.raises(RegistryUnreachableError, match=r"127\.0\.0\.1"):
        registry.schema("AVRO", schema_id)
    server.page = None
    assert registry.schema("AVRO", schema_id) == AVRO


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_only_codes_of_the_registry_itself_make_a_schema_unknown(server, code):
    server.page = (404, f'{{"error_code": {code}, "message": "not found"}}')
    assert SchemaRegistry(server.settings).schema("AVRO", 1) is None


def test_a_schema_that_refers_to_a_version_that_is_gone_is_there_and_looked_up_once(server):
    schema_id = server.add(SCHEMA, **{"shop.Item": "gone"})
    registry = SchemaRegistry(server.settings)
    for _ in range(2):
        with pytest.raises(
            ValueError, match="it refers to version 1 of 'gone', which the registry"
        ):
            registry.schema("AVRO", schema_id)
    assert len(server.requests) == 2


def test_what_does_not_listen_is_unreachable():
    (port,) = free_ports(1)
    settings = SchemaRegistrySettings(f"http://127.0.0.1:{port}")
    with pytest.raises(RegistryUnreachableError, match=str(port)):
        register(settings, "orders-value", "AVRO", TEXT)


def test_a_schema_gets_the_same_id_whenever_it_is_registered(server):
    assert register(server.settings, "orders-value", "AVRO", TEXT) == 1
    assert register(server.settings, "orders-value", "AVRO", TEXT) == 1
    assert server.requests[0] == "POST /subjects/orders-value/versions?normalize=False"


@pytest.mark.parametrize("status", [409, 422])
def test_a_schema_that_breaks_the_rules_of_its_subject_is_rejected(server, status):
    server.status = status
    with pytest.raises(SchemaRejectedError, match="as it was told") as raised:
        register(server.settings, "orders-value", "AVRO", TEXT)
    assert raised.value.subject == "orders-value"


def test_a_user_is_told_to_the_registry_and_the_password_to_nobody_else(server):
    settings = replace(server.settings, username="ann", password=Secret("hunter2"))
    register(settings, "orders-value", "AVRO", TEXT)
    assert server.authorization == "Basic YW5uOmh1bnRlcjI="
    server.status = 401
    with pytest.raises(RegistryUnreachableError) as raised:
        register(settings, "orders-value", "AVRO", TEXT)
    assert "hunter2" not in str(raised.value)


def test_a_schema_of_protobuf_has_the_files_that_it_imports_at_any_depth(server):
    server.subjects |= {"a": 'import "b.proto";', "b": "message B {}"}
    server.add_text(server.subjects["a"], "PROTOBUF", **{"b.proto": "b"})
    schema_id = server.add_text('import "a.proto";', "PROTOBUF", **{"a.proto": "a"})
    registry = SchemaRegistry(server.settings)
    for _ in range(2):
        found = registry.schema("PROTOBUF", schema_id)
        assert found.text == 'import "a.proto";'
        assert dict(found.referenced) == {"a.proto": 'import "b.proto";', "b.proto": "message B {}"}
    assert len(server.requests) == 3
    with pytest.raises(ValueError, match="it is of the type PROTOBUF, and not AVRO"):
        registry.schema("AVRO", schema_id)
    gone = server.add_text('import "gone.proto";', "PROTOBUF", **{"gone.proto": "gone"})
    with pytest.raises(ValueError, match="it refers to version 1 of 'gone', which the registry"):
        registry.schema("PROTOBUF", gone)


def test_a_schema_is_known_by_its_guid_too(server):
    server.add({"type": "string"})
    guid = server.guid(server.add(SCHEMA))
    registry = SchemaRegistry(server.settings)
    assert [registry.schema("AVRO", guid), registry.schema("AVRO", UUID(int=7))] == [AVRO, None]
    assert server.requests[0] == f"GET /schemas/guids/{guid}"


def test_the_latest_schema_of_a_subject_has_the_texts_that_it_refers_to_by_their_names(server):
    server.subjects |= {"item": '{"type": "string"}', "orders-value": '{"$ref": "item.json"}'}
    server.add_text(server.subjects["orders-value"], "JSON", **{"item.json": "item"})
    latest = latest_schema(server.settings, "orders-value", "jsonschema")
    assert latest.text == '{"$ref": "item.json"}'
    assert dict(latest.referenced) == {"item.json": '{"type": "string"}'}
    assert latest_schema(server.settings, "other", "jsonschema") is None


def test_tasks_of_a_process_share_what_they_know_of_a_registry(server):
    settings = [replace(server.settings, username="a", password=Secret("b")) for _ in "ab"]
    first, second = map(shared_registry, settings)
    assert first is second
    assert shared_registry(replace(settings[0], password=Secret("c"))) is not first


def test_without_the_extra_nothing_is_asked(server, monkeypatch):
    monkeypatch.setattr(extras, "MODULES", {"avro": ("fastavro_2",)})
    with pytest.raises(ExtraMissingError, match="avro"):
        SchemaRegistry(server.settings).schema("AVRO", 1)
    with pytest.raises(ExtraMissingError, match="avro"):
        register(server.settings, "orders-value", "AVRO", TEXT)
    assert server.requests == []
