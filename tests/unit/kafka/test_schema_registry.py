"""Requests to a schema registry: few, bounded, and never mistaken for an answer."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.mock_registry import MockRegistry

from headrace.errors import ExtraMissingError, RegistryUnreachableError, SchemaRejectedError
from headrace.kafka import schema_registry
from headrace.kafka.schema_registry import SchemaRegistry, register, shared_registry
from headrace.runtime import extras
from headrace.runtime.ports import free_ports
from headrace.settings import SchemaRegistrySettings, Secret

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}


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
        answers = list(threads.map(registry.avro_schema, [schema_id] * 50))
    assert answers == [SCHEMA] * 50
    assert len(server.requests) == 1


def test_an_unknown_id_is_looked_up_again_after_a_while(server):
    now = [0.0]
    registry = SchemaRegistry(server.settings, lambda: now[0])
    assert [registry.avro_schema(1), registry.avro_schema(1)] == [None, None]
    assert len(server.requests) == 1
    server.add(SCHEMA)
    now[0] = 29.0
    assert registry.avro_schema(1) is None
    now[0] = 31.0
    assert registry.avro_schema(1) == SCHEMA


def test_a_schema_of_another_kind_is_there_and_looked_up_once(server):
    registry = SchemaRegistry(server.settings)
    schema_id = server.add({"type": "object"}, "JSON")
    for _ in range(2):
        with pytest.raises(ValueError, match="it is of the type JSON, and not AVRO"):
            registry.avro_schema(schema_id)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_registry_that_does_not_say_is_unreachable_and_asked_a_few_times_at_most(server, status):
    schema_id = server.add(SCHEMA)
    registry = SchemaRegistry(server.settings)
    server.status = status
    with pytest.raises(RegistryUnreachableError, match=r"127\.0\.0\.1"):
        registry.avro_schema(schema_id)
    assert len(server.requests) <= 3
    server.status = None
    assert registry.avro_schema(schema_id) == SCHEMA


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
        registry.avro_schema(schema_id)
    server.page = None
    assert registry.avro_schema(schema_id) == SCHEMA


@pytest.mark.parametrize("code", [40401, 40402, 40403])
def test_only_codes_of_the_registry_itself_make_a_schema_unknown(server, code):
    server.page = (404, f'{{"error_code": {code}, "message": "not found"}}')
    assert SchemaRegistry(server.settings).avro_schema(1) is None


def test_what_does_not_listen_is_unreachable():
    (port,) = free_ports(1)
    settings = SchemaRegistrySettings(f"http://127.0.0.1:{port}")
    with pytest.raises(RegistryUnreachableError, match=str(port)):
        register(settings, "orders-value", SCHEMA)


def test_a_schema_gets_the_same_id_whenever_it_is_registered(server):
    assert register(server.settings, "orders-value", SCHEMA) == 1
    assert register(server.settings, "orders-value", SCHEMA) == 1
    assert server.requests[0] == "POST /subjects/orders-value/versions?normalize=False"


@pytest.mark.parametrize("status", [409, 422])
def test_a_schema_that_breaks_the_rules_of_its_subject_is_rejected(server, status):
    server.status = status
    with pytest.raises(SchemaRejectedError, match="as it was told") as raised:
        register(server.settings, "orders-value", SCHEMA)
    assert raised.value.subject == "orders-value"


def test_a_user_is_told_to_the_registry_and_the_password_to_nobody_else(server):
    settings = replace(server.settings, username="ann", password=Secret("hunter2"))
    register(settings, "orders-value", SCHEMA)
    assert server.authorization == "Basic YW5uOmh1bnRlcjI="
    server.status = 401
    with pytest.raises(RegistryUnreachableError) as raised:
        register(settings, "orders-value", SCHEMA)
    assert "hunter2" not in str(raised.value)


def test_tasks_of_a_process_share_what_they_know_of_a_registry(server):
    settings = [replace(server.settings, username="a", password=Secret("b")) for _ in "ab"]
    first, second = map(shared_registry, settings)
    assert first is second
    assert shared_registry(replace(settings[0], password=Secret("c"))) is not first


def test_without_the_extra_nothing_is_asked(server, monkeypatch):
    monkeypatch.setattr(extras, "MODULES", {"avro": ("fastavro_2",)})
    with pytest.raises(ExtraMissingError, match="avro"):
        SchemaRegistry(server.settings).avro_schema(1)
    with pytest.raises(ExtraMissingError, match="avro"):
        register(server.settings, "orders-value", SCHEMA)
    assert server.requests == []
