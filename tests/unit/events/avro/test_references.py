"""Avro schemas that use types of other schemas."""

import json

import pytest

from headrace.events.avro.references import AvroSchemas, written_out
from headrace.events.avro.schemas import parsed_schema
from headrace.events.avro.values import AvroReader
from headrace.model import RegisteredSchema, event_schema


def together(schema, **referenced):
    texts = tuple((name, json.dumps(other)) for name, other in referenced.items())
    return written_out(RegisteredSchema("AVRO", json.dumps(schema), texts))


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
    item, sku, label, skus_are_first
):
    fields = [
        {"name": "item", "type": ["null", item]},
        {"name": "items", "type": {"type": "array", "items": item}},
    ]
    skus = {"name": "skus", "type": {"type": "map", "values": sku}}
    fields = [skus, *fields] if skus_are_first else [*fields, skus]
    order = {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    reader = AvroReader(together(order, **{label: ITEM}), event_schema(Order))
    of_item, of_items, of_skus = b"\x02\x02a", b"\x02\x02b\x00", b"\x02\x02k\x02c\x00"
    value = [of_skus, of_item, of_items] if skus_are_first else [of_item, of_items, of_skus]
    assert json.loads(reader.json_text(bytes(5) + b"".join(value))) == {
        "item": {"sku": {"code": "a"}},
        "items": [{"sku": {"code": "b"}}],
        "skus": {"k": {"code": "c"}},
    }


def test_a_type_without_a_namespace_may_be_used_in_one():
    fields = [{"name": "sku", "type": "Sku"}]
    item = {"type": "record", "name": "shop.Item", "fields": fields}
    text = AvroReader(together(item, Sku=SKU), event_schema(Item)).json_text(bytes(5) + b"\x02a")
    assert json.loads(text) == {"sku": {"code": "a"}}


def test_schemas_that_refer_to_each_other_s_types_are_read():
    item = ITEM | {"fields": [{"name": "sku", "type": "stock.Sku"}]}
    sku = SKU | {"namespace": "stock"}
    fields = [{"name": name, "type": "shop.Item"} for name in ("first", "second")]
    order = {"type": "record", "name": "Order", "fields": fields}
    _, named = parsed_schema(together(order, **{"shop.Item": item, "stock.Sku": sku}))
    assert set(named) == {"Order", "shop.Item", "stock.Sku"}


@pytest.mark.parametrize(
    ("text", "referenced", "reason"),
    [
        ('{"type": record}', {}, r"\(Expecting value"),
        ('{"items":' * 10**5 + "}" * 10**5, {}, r"\(maximum recursion"),
        ("{}", {"shop.Item": ITEM}, r"\('type'\)"),
        (
            json.dumps(ITEM | {"fields": []}),
            {"shop.Item": ITEM},
            r"\(shop.Item is defined in two ways\)",
        ),
    ],
)
def test_a_schema_by_which_nothing_can_be_read_is_no_schema_of_avros(text, referenced, reason):
    texts = tuple((name, json.dumps(other)) for name, other in referenced.items())
    schemas = AvroSchemas({1: RegisteredSchema("AVRO", text, texts)}.get)
    assert schemas(2) is None
    with pytest.raises(ValueError, match=f"it is no schema of Avro's {reason}"):
        schemas(1)
