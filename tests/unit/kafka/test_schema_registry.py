"""Requests to a schema registry: few, bounded, and never mistaken for an answer."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import pytest
from tests.mock_registry import MockRegistry

from headrace.errors import ExtraMissingError, RegistryUnreachableError, SchemaRejectedError
from headrace.events.avro import AvroReader
from headrace.events.avro_schemas import parsed_schema
from headrace.kafka import schema_registry
from headrace.kafka.schema_registry import SchemaRegistry, latest_schema, register, shared_registry
from headrace.model import event_schema
from headrace.runtime import extras
from headrace.runtime.ports import free_ports
from headrace.settings import SchemaRegistrySettings, Secret

SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
TEXT = json.dumps(SCHEMA)


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


SKU = {"type": "record", "name": "Sku", "fields": [{"name": "code", "type": "string"}]}
ITEM = {
    "type": "record",
    "name": "Item",
    "namespace": "shop",
    "fields": [{"name": "sku", "type": SKU}],
}


class Sku:
    code: str


class Item:
    sku: Sku


class Order:
    item: Item | None
    items: list[Item]
    skus: dict[str, Sku]


@pytest.mark.parametrize("item", ["Item", "shop.Item", {"type": "Item"}])
@pytest.mark.parametrize("sku", ["Sku", "shop.Sku"])
@pytest.mark.parametrize("label", ["shop.Item", "item-reference"])
@pytest.mark.parametrize("skus_are_first", [True, False])
def test_types_of_other_schemas_may_be_used_by_each_of_their_names(
    server, item, sku, label, skus_are_first
):
    fields = [
        {"name": "item", "type": ["null", item]},
        {"name": "items", "type": {"type": "array", "items": item}},
    ]
    skus = {"name": "skus", "type": {"type": "map", "values": sku}}
    fields = [skus, *fields] if skus_are_first else [*fields, skus]
    order = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    server.subjects["items"] = json.dumps(ITEM)
    schema_id = server.add(order, **{label: "items"})
    reader = AvroReader(SchemaRegistry(server.settings).avro_schema(schema_id), event_schema(Order))
    of_item, of_items, of_skus = b"\x02\x02a", b"\x02\x02b\x00", b"\x02\x02k\x02c\x00"
    value = [of_skus, of_item, of_items] if skus_are_first else [of_item, of_items, of_skus]
    assert json.loads(reader.json_text(bytes(5) + b"".join(value))) == {
        "item": {"sku": {"code": "a"}},
        "items": [{"sku": {"code": "b"}}],
        "skus": {"k": {"code": "c"}},
    }


def test_a_type_without_a_namespace_may_be_used_in_one(server):
    server.subjects["skus"] = json.dumps(SKU)
    fields = [{"name": "sku", "type": "Sku"}]
    item = {"type": "record", "name": "shop.Item", "fields": fields}
    schema = SchemaRegistry(server.settings).avro_schema(server.add(item, Sku="skus"))
    text = AvroReader(schema, event_schema(Item)).json_text(bytes(5) + b"\x02a")
    assert json.loads(text) == {"sku": {"code": "a"}}


def test_schemas_that_refer_to_each_other_s_types_are_read(server):
    item = ITEM | {"fields": [{"name": "sku", "type": "stock.Sku"}]}
    server.subjects["skus"] = json.dumps(SKU | {"namespace": "stock"})
    server.subjects["items"] = json.dumps(item)
    server.add(item, **{"stock.Sku": "skus"})
    fields = [{"name": name, "type": "shop.Item"} for name in ("first", "second")]
    order = {"type": "record", "name": "Order", "fields": fields}
    schema_id = server.add(order, **{"shop.Item": "items"})
    _, named = parsed_schema(SchemaRegistry(server.settings).avro_schema(schema_id))
    assert set(named) == {"Order", "shop.Item", "stock.Sku"}


UNREADABLE = {
    "it refers to version 1 of 'gone', which the registry lacks": (json.dumps(SCHEMA), "gone"),
    r"it is no schema of Avro's \(Expecting value": ('{"type": record}', None),
    r"it is no schema of Avro's \(maximum recursion": ('{"items":' * 10**5 + "}" * 10**5, None),
    r"it is no schema of Avro's \('type'\)": ("{}", "items"),
    r"it is no schema of Avro's \(shop.Item is defined in two ways\)": (
        json.dumps(ITEM | {"fields": []}),
        "items",
    ),
}


@pytest.mark.parametrize("reason", UNREADABLE)
def test_a_schema_by_which_nothing_can_be_read_is_there_and_looked_up_once(server, reason):
    text, subject = UNREADABLE[reason]
    server.subjects["items"] = json.dumps(ITEM)
    schema_id = server.add_text(text, **({} if subject is None else {"shop.Item": subject}))
    registry = SchemaRegistry(server.settings)
    for _ in range(2):
        with pytest.raises(ValueError, match=reason):
            registry.avro_schema(schema_id)
    assert len(server.requests) == (1 if subject is None else 2)


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
        found = registry.protobuf_schema(schema_id)
        assert found.text == 'import "a.proto";'
        assert dict(found.referenced) == {"a.proto": 'import "b.proto";', "b.proto": "message B {}"}
    assert len(server.requests) == 3
    with pytest.raises(ValueError, match="it is of the type PROTOBUF, and not AVRO"):
        registry.avro_schema(schema_id)
    gone = server.add_text('import "gone.proto";', "PROTOBUF", **{"gone.proto": "gone"})
    with pytest.raises(ValueError, match="it refers to version 1 of 'gone', which the registry"):
        registry.protobuf_schema(gone)


def test_a_schema_is_known_by_its_guid_too(server):
    server.add({"type": "string"})
    guid = server.guid(server.add(SCHEMA))
    registry = SchemaRegistry(server.settings)
    assert [registry.avro_schema(guid), registry.avro_schema(UUID(int=7))] == [SCHEMA, None]
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
        SchemaRegistry(server.settings).avro_schema(1)
    with pytest.raises(ExtraMissingError, match="avro"):
        register(server.settings, "orders-value", "AVRO", TEXT)
    assert server.requests == []
