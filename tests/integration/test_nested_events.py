"""Nested events on a real broker and a real Spark, on both paths, and a class that grows."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest
from tests.integration.flow import NOW_MS, Flow

from headrace import EpochMillis, Lake, Pipeline, Precision, Topic
from headrace.service.status import State

PATHS = ("fused", "stepped")
Money = Annotated[Decimal, Precision(12, scale=2)]


@dataclass
class Impression:
    id: str
    shown_at: datetime


@dataclass
class Item:
    sku: str
    price: Money


@dataclass
class Click:
    event_id: str
    at: EpochMillis
    impression: Impression
    items: list[Item]
    labels: dict[str, int | None]
    day_of: date
    token: bytes | None
    payload: Any


@dataclass
class LargerImpression(Impression):
    site: str | None


@dataclass
class LargerItem(Item):
    count: int | None


@dataclass
class LargerClick(Click):
    impression: LargerImpression
    items: list[LargerItem]
    labels: dict[str, int | None]
    weight: float | None


def click(n, **changes):
    event = {
        "event_id": f"e{n}",
        "at": NOW_MS - 3_600_000 + n,
        "impression": {"id": f"i{n}", "shown_at": "2019-11-24T00:00:17.5Z"},
        "items": [{"sku": "a", "price": 1.5}] * n,
        "labels": {"n": n, "none": None},
        "day_of": "2019-11-24",
        "token": "AAH/",
        "payload": {"n": [n]},
    }
    return json.dumps(event | changes).encode()


@pytest.fixture
def flow(broker, spark, tmp_path):
    return Flow(broker, spark, tmp_path)


@pytest.fixture
def topic(flow):
    topic = Topic(f"{flow.name}-nested", event=Click, key="impression.id", event_time="at")
    flow.create(topic.name, 1)
    flow.create(topic.dead_letters, 1)
    return topic


def with_first_price(rows):
    from pyspark.sql import functions as F  # noqa: N812

    return rows.withColumn("first_price", F.get("items", F.lit(0))["price"])


def pipeline(topic, path):
    steps = [with_first_price] if path == "stepped" else []
    return Pipeline(path, topic, Lake(path, ("day",)), steps=steps)


def rows(flow, path):
    return sorted(flow.rows(path), key=lambda row: row["event_id"])


@pytest.mark.parametrize("path", PATHS)
def test_nested_events_land_as_structs_lists_and_maps_and_fields_are_added(flow, topic, path):
    """The fields that an event class gains are added to its table."""
    bad = [click(3, impression={"id": 3}), click(3, items=[{"sku": "a", "price": "1,5"}])]
    flow.send([click(0), *bad, click(2)], topic=topic.name)
    outcome = flow.run(pipeline(topic, path))[path]
    assert outcome.state is State.FINISHED, outcome.reason
    first, second = rows(flow, path)
    assert second["impression"] == {
        "id": "i2",
        "shown_at": datetime(2019, 11, 24, 0, 0, 17, 500_000, UTC),
    }
    assert second["items"] == [{"sku": "a", "price": Decimal("1.50")}] * 2
    assert first["items"] == []
    assert second["labels"] == [("n", 2), ("none", None)]
    assert second["day_of"] == date(2019, 11, 24)
    assert second["token"] == b"\x00\x01\xff"
    assert second["payload"] == '{"n": [2]}'
    if path == "stepped":
        assert [row["first_price"] for row in (first, second)] == [None, Decimal("1.50")]
    details = [stored.letter.detail for stored in flow.dead(topic.name)]
    assert [detail[: detail.index(" is")] for detail in details] == [
        "field 'impression.id'",
        "field 'items[0].price'",
    ]
    larger = replace(topic, event=LargerClick)
    impression = {"id": "i4", "shown_at": "2019-11-24T00:00:17Z", "site": "front"}
    items = [{"sku": "b", "price": 2, "count": 3}]
    flow.send([click(4, impression=impression, items=items, weight=0.5)], topic=topic.name)
    outcome = flow.run(pipeline(larger, path))[path]
    assert outcome.state is State.FINISHED, outcome.reason
    _, *old_and_new = rows(flow, path)
    assert [row["impression"]["site"] for row in old_and_new] == [None, "front"]
    assert [row["items"][0]["count"] for row in old_and_new] == [None, 3]
    assert [row["weight"] for row in old_and_new] == [None, 0.5]
