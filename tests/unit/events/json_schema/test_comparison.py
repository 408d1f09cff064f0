"""The comparison of JSON Schemas with classes, beside a validator and the readers of the class.

An event that the schema allows and the class rejects, of which the comparison says nothing, would
be a dead letter of which nobody was warned.
"""

import json
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Literal

import jsonschema_rs
import pytest

from headrace.errors import InvalidRecordError
from headrace.events.instances import event_reader
from headrace.events.json_schema.comparison import allowed_but_not_taken
from headrace.events.json_schema.schemas import DECIMAL_PATTERN, json_schema
from headrace.model import RegisteredSchema, Topic, event_schema

DRAFTS = {
    "http://json-schema.org/draft-07/schema#": jsonschema_rs.Draft7Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
}


@dataclass
class Item:
    sku: str
    count: int | None


@dataclass
class Order:
    id: str
    at: datetime
    day: date | None
    paid: bool
    count: int
    weight: float
    price: Decimal
    kind: Literal["new", "used"]
    body: bytes
    first: Item
    items: list[Item]
    labels: dict[str, int]
    note: str | None


SCHEMA = event_schema(Order)
READ = event_reader(Topic("orders", event=Order))
EVENT = {
    "id": "o1",
    "at": "2026-05-01T10:00:00Z",
    "day": "2026-05-01",
    "paid": True,
    "count": 1,
    "weight": 1.5,
    "price": "1.50",
    "kind": "new",
    "body": "AA==",
    "first": {"sku": "a", "count": None},
    "items": [{"sku": "a", "count": 1}],
    "labels": {"x": 1},
    "note": None,
}
# No integer as 3.0, which "integer" allows, and no bounds of numbers: these are not compared.
VALUES = [
    *(None, True, 1, 2, 1.5, "a", "new", "old", "1.50", "AA==", "2026-05-01"),
    *("2026-05-01T10:00:00Z", [], [1], {}, {"x": 1}, {"x": "a"}),
    *({"sku": "a", "count": 1}, {"sku": "a"}, {"sku": None, "count": 1}),
    *([{"sku": "a", "count": 1}], [{"count": 1}], [{"sku": "a", "count": "1"}]),
]


def is_taken(event):
    try:
        READ(json.dumps(event).encode())
    except InvalidRecordError:
        return False
    return True


def any_schema(rng, depth=0):
    """A schema that says of what types its values are; its references are in the document."""
    leaf = rng.choice([any_type, any_type, any_values])
    if depth == 3 or rng.random() < 0.4:
        return leaf(rng, depth)
    inner = [any_schema(rng, depth + 1) for _ in range(rng.randint(1, 2))]
    open_ = rng.choice([True, {}, {"minLength": 1}, {"title": "x"}])
    typed, reference = {"type": any_type(rng, 3)["type"]}, {"$ref": rng.choice(REFERENCES)}
    return rng.choice(
        [
            {rng.choice(["anyOf", "oneOf"]): inner},
            {"allOf": [*inner, open_]},
            {"anyOf": inner, **typed},
            reference | typed,  # siblings, which count in some drafts only
            reference | leaf(rng, depth),
            reference,
        ]
    )


REFERENCES = ["#/definitions/text", "#/definitions/a~1b", "#/definitions/list/anyOf/0", "#number"]


def any_type(rng, depth):
    match rng.randrange(9):
        case 0:
            return {"type": "string", **rng.choice(FORMATS)}
        case 1:
            return {"type": "number", **rng.choice([{}, {"multipleOf": 1}, {"multipleOf": 0.5}])}
        case 2 | 3:
            # A bare array or object leaves open what it holds, which is not compared.
            kinds = ["string", "number", "integer", "boolean", "null"]
            return {"type": rng.sample(kinds, rng.randint(1, 3))}
        case 4 if depth < 3:
            return {"type": "array", "items": any_schema(rng, depth + 1)}
        case 5 if depth < 3:
            names = rng.sample(["sku", "count", "x"], rng.randint(0, 3))
            return {
                "type": "object",
                "properties": {name: any_schema(rng, depth + 1) for name in names},
                "required": rng.sample(["sku", "count"], rng.randint(0, 2)),
                "additionalProperties": rng.choice([False, any_schema(rng, depth + 1)]),
                **rng.choice([{}, {"patternProperties": {"^s": any_schema(rng, depth + 1)}}]),
            }
        case _:
            return {"type": rng.choice(["string", "integer", "boolean", "null"])}


FORMATS = [
    *({}, {"format": "date-time"}, {"format": "date"}, {"contentEncoding": "base64"}),
    *({"pattern": DECIMAL_PATTERN}, {"pattern": "^[a-z]"}, {"maxLength": 3}),
]


def any_values(rng, depth):
    values = rng.sample(VALUES, rng.randint(1, 4))
    typed = rng.choice([{}, {"type": any_type(rng, 3)["type"]}])
    return rng.choice([{"enum": values}, {"const": values[0]}, {"enum": values, **typed}])


def any_document(rng, draft):
    document = json_schema(SCHEMA)
    for name in rng.sample([*EVENT], rng.choice([1, 1, 2])):
        document["properties"][name] = any_schema(rng)
    definitions = {
        "text": rng.choice([{"type": "string"}, {"type": ["string", "null"]}]),
        "a/b": any_type(rng, 3),
        "list": {"anyOf": [any_type(rng, 3)]},
        "named": {"$anchor": "number", "$id": "#number", "type": rng.choice(["number", "integer"])},
    }
    if "2020" in draft:
        del definitions["named"]["$id"]
    required = [name for name in document["required"] if rng.random() < 0.999]
    return document | {"$schema": draft, "definitions": definitions, "required": required}


def any_event(rng, document):
    event = dict(EVENT)
    changed = [name for name in EVENT if document["properties"][name] != OWN[name]]
    for name in rng.sample(changed, rng.randint(1, len(changed))) if changed else ():
        event[name] = rng.choice(VALUES)
    if rng.random() < 0.1:
        del event[rng.choice([*EVENT])]
    return event


OWN = json_schema(SCHEMA)["properties"]


def of_document(document, *referenced):
    registered = RegisteredSchema("JSON", json.dumps(document), referenced)
    return list(allowed_but_not_taken(registered, SCHEMA))


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("seed", range(15))
def test_an_event_that_the_schema_allows_and_the_class_rejects_is_warned_of(seed, draft):
    rng = Random(f"{seed} {draft}")
    for _ in range(25):
        document = any_document(rng, draft)
        validator = DRAFTS[draft](document, validate_formats=True)
        phrases = of_document(document)
        for _ in range(40):
            event = any_event(rng, document)
            if validator.is_valid(event) and not is_taken(event):
                assert phrases, (document, event)


OLD, NEW = DRAFTS


def compared(schema, field="id", draft=NEW, **definitions):
    document = json_schema(SCHEMA)
    properties = document["properties"] | {field: schema}
    document |= {"properties": properties, "$defs": definitions, "$schema": draft}
    return of_document(document)


@pytest.mark.parametrize(
    ("field", "schema", "phrases"),
    [
        ("at", {"enum": ["2026-05-01T10:00:00Z"]}, []),
        (
            "at",
            {"type": "string", "format": "date-time", "enum": ["soon"]},
            ["field 'at' may be 'soon', which is rejected as wrong-type"],
        ),
        ("day", {"const": "2026-02-30"}, ["field 'day' may be '2026-02-30', which is rejected as"]),
        ("price", {"const": "much"}, ["field 'price' may be 'much', which is rejected as"]),
        ("price", {"type": "string", "pattern": "^a"}, ["whose pattern is not compared"]),
        ("count", {"type": "number", "multipleOf": 5.0}, []),
        ("count", {"type": "number", "multipleOf": 0.5}, ["field 'count' may be a number"]),
        ("count", {"enum": [2**70]}, ["which is rejected as out-of-range"]),
        ("first", {"const": {"sku": 1}}, ["field 'first' may be {'sku': 1}, which is rejected"]),
        (
            "first",
            {"required": ["sku"], "additionalProperties": {"type": "integer"}},
            ["'first.sku' may be an"],
        ),
        (
            "first",
            {"type": "object", "required": ["sku"], "patternProperties": {"^s": {"type": "null"}}},
            ["field 'first.sku' may be null"],
        ),
        ("labels", {"additionalProperties": {"type": "null"}}, ["field 'labels[]' may be null"]),
        (
            "id",
            {"if": {}, "then": {"type": "integer"}},
            ["field 'id' is not compared: its schema says by 'if'"],
        ),
        ("id", {"$dynamicRef": "#x"}, ["field 'id' is not compared: its schema says by"]),
        (
            "id",
            {"$ref": "gone.json"},
            ["field 'id' is not compared with 'gone.json', which is not"],
        ),
        ("id", {"allOf": [True, {"type": "null"}]}, ["field 'id' may be null"]),
        ("id", {"anyOf": [{}], "oneOf": [{"type": "null"}]}, ["field 'id' may be null"]),
        ("id", {"$ref": "#/properties/id"}, []),
    ],
)
def test_what_is_allowed_is_compared_or_said_not_to_be(field, schema, phrases):
    for phrase, expected in zip(compared(schema, field), phrases, strict=True):
        assert expected in phrase


def test_what_stands_beside_a_reference_counts_where_its_draft_says_so():
    schema = {"$ref": "#/$defs/open", "type": "integer"}
    integer = ["field 'id' may be an integer, expected string"]
    assert compared(schema, open={}) == integer
    assert compared(schema, draft=OLD, open={}) == []
    assert compared(schema, draft=None, open={}) == integer
    schema = {"$ref": "#/$defs/both", "type": "string"}
    both = {"type": ["string", "null"]}
    assert compared(schema, both=both) == []
    assert compared(schema, draft=OLD, both=both) == ["field 'id' may be null"]
    assert compared(schema, draft=None, both=both) == ["field 'id' may be null"]


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#here", {"$anchor": "here"}),
        ("#here", {"$id": "#here"}),
        ("https://a/b", {"$id": "https://a/b"}),
        ("urn:a:b#here", {"$id": "urn:a:b", "$anchor": "here"}),
        ("urn:a:b#/x/0", {"$id": "urn:a:b", "x": [{"type": "null"}]}),
        ("#/$defs/target", {}),
    ],
)
def test_a_reference_by_an_anchor_or_an_id_is_followed(reference, target):
    schema = {"type": "string"} if "x" in target else {"type": "null"}
    assert compared({"$ref": reference}, target=target | schema) == ["field 'id' may be null"]


def test_references_of_another_schema_are_its_own():
    other = {
        "$id": "https://shop/item.json",
        "definitions": {"text": {"type": "null"}},
        "properties": {"sku": {"$ref": "#/definitions/text"}},
        "allOf": [{"properties": {"count": {"$ref": "item.json#/definitions/text"}}}],
        "required": ["sku"],
    }
    document = json_schema(SCHEMA) | {"definitions": {"text": {"type": "string"}}}
    for name in ("item.json", "https://shop/item.json"):
        document["properties"]["first"] = {"allOf": [{"type": "object"}, {"$ref": name}]}
        phrases = set(of_document(document, (name, json.dumps(other))))
        assert phrases == {"field 'first.sku' may be null"}


def test_of_very_many_alternatives_some_are_compared_and_that_is_said():
    schema = {"anyOf": [{"type": "string"}, {"type": "string", "minLength": 1}]}
    for _ in range(30):
        schema = {"allOf": [schema, {"anyOf": [{"minLength": 1}, {"minLength": 2}]}]}
    [phrase] = compared(schema)
    assert phrase == "field 'id' is compared with 1000 of its alternatives alone"


def test_alternatives_of_several_levels_are_counted_together():
    kinds = {"sku": {"type": "string"}, "count": {"type": "integer"}}
    items = [{"type": "object", "required": ["sku"], "properties": kinds} for _ in range(40)]
    schema = {"anyOf": [{"type": "array", "items": {"anyOf": items}} for _ in range(40)]}
    assert set(compared(schema, "items")) == {
        "field 'items[]' is compared with 1000 of its alternatives alone"
    }


@pytest.mark.parametrize("draft", [OLD, NEW, None])
def test_what_is_behind_a_reference_is_said_once(draft):
    phrases = compared({"$ref": "#/$defs/n"}, draft=draft, n={"type": "integer"})
    assert phrases == ["field 'id' may be an integer, expected string"]


def nested(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"anyOf": [schema]}
    return schema


DEEP = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(1_000)}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": 7}, "'type' is 7, and no name of a type"),
        ({"type": [""]}, "'type' is"),
        ({"allOf": 7}, "'allOf' is 7, and no list"),
        ({"anyOf": {"type": "null"}}, "'anyOf' is"),
        ({"enum": 7}, "'enum' is 7, and no list"),
        ({"type": "object", "required": True}, "'required' is True, and no list"),
        ({"type": "object", "properties": ["sku"]}, "'properties' is"),
        ({"type": "object", "patternProperties": 7}, "'patternProperties' is 7, and no object"),
        ({"type": "object", "patternProperties": {r"\p{L}": {}}}, "the pattern"),
        ({"type": "object", "patternProperties": {"a{4294967296}": {}}}, "the pattern 'a{429"),
        ({"type": "object", "patternProperties": {"(" * 3_000 + ")" * 3_000: {}}}, "the pattern"),
        ({"type": "array", "prefixItems": 7}, "'prefixItems' is 7, and no list"),
        (nested(120), "its alternatives nest deeper than 100 levels"),
        ({"$ref": "#/$defs/d0"}, "its alternatives nest deeper than 100 levels"),
    ],
)
def test_what_can_t_be_compared_is_a_value_error(schema, reason):
    field = {"object": "first", "array": "items"}.get(str(schema.get("type")), "id")
    with pytest.raises(ValueError, match=reason):
        compared(schema, field, **DEEP)


@pytest.mark.parametrize("levels", [200, 480, 5_000])
def test_a_schema_that_is_nested_too_deep_is_not_compared(levels):
    text = '{"anyOf": [' * levels + "{}" + "]}" * levels
    for registered in (
        RegisteredSchema("JSON", text),
        RegisteredSchema("JSON", "{}", (("other.json", text),)),
    ):
        with pytest.raises(ValueError, match=r"it is nested (too deep|deeper than 300 levels)"):
            list(allowed_but_not_taken(registered, SCHEMA))


def test_a_divisor_beyond_a_double_is_whole():
    assert compared({"type": "number", "multipleOf": 10**400}, "count") == []


@pytest.mark.parametrize("levels", [250, 300, 900, *range(960, 1_000, 4)])
def test_a_value_that_is_nested_too_deep_is_compared_or_a_value_error(levels):
    deep = "[" * levels + "]" * levels
    values = f'{{"allOf": [{{"const": {deep}}}, {{"enum": [{deep}]}}]}}'
    text = f'{{"type": "object", "properties": {{"items": {values}}}}}'
    phrases = allowed_but_not_taken(RegisteredSchema("JSON", text), SCHEMA)
    if levels < 300:
        assert any("field 'items' may be [[" in phrase for phrase in phrases)
    else:
        with pytest.raises(ValueError, match="it is nested"):
            list(phrases)
