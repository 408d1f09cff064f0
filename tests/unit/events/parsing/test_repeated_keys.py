"""A key that stands twice in an object: the last value counts, wherever it stands."""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import InvalidRecordError
from headrace.events.instances import event_reader
from headrace.model import Topic
from headrace.pipelines.source.decode.json_events import JsonDecoder


@dataclass
class Item:
    sku: str
    price: Decimal | None


@dataclass
class Order:
    id: int
    first: Item | None
    items: list[Item]
    stock: dict[str, Item]
    rest: Any


TOPIC = Topic("orders", event=Order)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=3,
)
KEYS = st.text("ab", max_size=1)
ITEM = st.fixed_dictionaries({"sku": st.text(max_size=3), "price": st.none() | st.integers(0, 9)})
ORDER = st.fixed_dictionaries(
    {
        "id": st.integers(0, 9),
        "first": st.none() | ITEM,
        "items": st.lists(ITEM, max_size=2),
        "stock": st.dictionaries(KEYS, ITEM, max_size=2),
        "rest": ANYTHING,
    }
)


@st.composite
def repeated(draw, value):
    """The JSON text of a value, in whose objects other values stand before some of the members."""
    if isinstance(value, list):
        return "[" + ",".join(draw(repeated(item)) for item in value) + "]"
    if not isinstance(value, dict):
        return json.dumps(value)
    earlier = [name for name in value if draw(st.booleans())]
    members = [(name, json.dumps(draw(ANYTHING))) for name in earlier]
    members += [(name, draw(repeated(held))) for name, held in value.items()]
    return "{" + ",".join(f"{json.dumps(name)}: {text}" for name, text in members) + "}"


@given(st.data(), ORDER)
def test_the_last_value_counts_at_any_depth_and_whatever_the_others_are(data, order):
    rest = order.pop("rest")
    text = data.draw(repeated(order)).encode()
    text = text[:-1] + f', "rest": {json.dumps(rest)}'.encode() + b"}"
    plain = json.dumps(order | {"rest": rest}).encode()
    decoder = JsonDecoder(TOPIC.schema)
    decoded = decoder.decode([text])
    assert decoded.rejected == {}
    assert without_order(decoded) == without_order(decoder.decode([plain]))
    assert event_reader(TOPIC)(text) == event_reader(TOPIC)(plain)


def without_order(decoded):
    """The rows, with maps as dicts: a key of an object has no place."""
    return [row | {"stock": dict(row["stock"])} for row in decoded.rows.to_pylist()]


@pytest.mark.parametrize(
    ("members", "reason", "sentence"),
    [
        ('"id": 1, "id": "a"', "wrong-type", "field 'id' is a string"),
        ('"id": "a", "id": null', "wrong-type", "field 'id' is null"),
        ('"id": "a", "id": 1, "more": 1e400', "", ""),
        ('"id": NaN, "id": 1', "not-json", "the value is not JSON: it holds NaN"),
        ('"id": "\\ud800", "id": 1', "lone-surrogate", "the value holds half of a surrogate pair"),
    ],
)
def test_a_last_value_that_is_wrong_is_rejected_and_so_is_what_is_no_text(
    members, reason, sentence
):
    text = f'{{"items": 7, "items": [], "stock": {{}}, {members}}}'.encode()
    rejected = JsonDecoder(TOPIC.schema).decode([text]).rejected
    if not reason:
        assert rejected == {}
        return
    assert rejected[0][0] == reason
    assert rejected[0][1].startswith(sentence)
    with pytest.raises(InvalidRecordError) as raised:
        event_reader(TOPIC)(text)
    assert (raised.value.reason, raised.value.detail) == rejected[0]
