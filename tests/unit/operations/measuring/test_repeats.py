"""A repeated sample is made of events that were not there before."""

import json
from datetime import datetime, timedelta
from typing import Literal

import pytest

from headrace import Avro, Kafka, Lake, Pipeline, Topic, Unique
from headrace.kafka.admin.measuring import SampledRecord
from headrace.operations.measuring.pipeline import dropped_rows, isolated_pipeline, not_measured
from headrace.operations.measuring.repeats import Repetition, varied_field
from headrace.operations.measuring.result import Round
from headrace.pipelines.transforms.deduplicate import deduplicate
from headrace.settings import Settings

DAY = timedelta(days=1)


class Order:
    order_id: str
    number: int
    kind: Literal["new", "old"]
    price: float
    at: datetime


ORDERS = Topic("orders", event=Order, key="order_id", event_time="at")


def records(*events: object) -> tuple[SampledRecord, ...]:
    return tuple(SampledRecord(json.dumps(event).encode(), b"a") for event in events)


def lake(by: list[str], topic: Topic = ORDERS) -> Pipeline:
    return Pipeline("p", topic, Lake("orders", unique=Unique(by, within=DAY)))


def isolated_unique(pipeline: Pipeline) -> Unique | None:
    return isolated_pipeline(pipeline, [ORDERS]).sink.unique


@pytest.mark.parametrize(
    ("by", "field"),
    [
        (["order_id"], "order_id"),
        (["price", "number"], "number"),
        (["kind", "price", "at"], None),
        (["made_by_a_step"], None),
    ],
)
def test_texts_and_whole_numbers_can_differ(by, field):
    pipeline = lake(by)
    assert varied_field(pipeline, by) == field
    assert isolated_unique(pipeline) == (pipeline.sink.unique if field else None)
    missing = [part for part in not_measured(pipeline, SETTINGS) if "Lake.unique" in part]
    assert len(missing) == (field is None)


SETTINGS = Settings("/project", "ads", ("flow",), "/lake")


def test_records_that_are_no_json_and_ids_that_are_derived_stay():
    avro = Topic("orders", event=Order, format=Avro(), event_time="at")
    derived = Topic(
        "orders", event=Order, event_id="order_id", derive_event_id=True, event_time="at"
    )
    for topic in (avro, derived):
        assert varied_field(lake(["order_id"], topic), ["order_id"]) is None


def test_each_repetition_has_other_ids_and_everything_else():
    sample = records(
        {"order_id": "a", "number": 5, "kind": "new", "at": "2026-01-01T00:00:00Z"},
        {"order_id": "a", "number": 7, "price": 1.50},
    )
    repeated = Repetition.of(["order_id", "number"], sample)
    assert [repeated(record, 0) for record in sample] == list(sample)
    first, second = (repeated(record, 2) for record in sample)
    assert json.loads(first.value) == {
        "order_id": "a~2",
        "number": 11,
        "kind": "new",
        "at": "2026-01-01T00:00:00Z",
    }
    assert json.loads(second.value) == {"order_id": "a~2", "number": 13, "price": 1.5}
    assert first.key == second.key == b"a~2"


@pytest.mark.parametrize("value", [b"no json", b"[1]", b"\xff", b'{"order_id": null}', b"{}"])
def test_records_without_the_field_are_repeated_as_they_are(value):
    record = SampledRecord(value)
    repeated = Repetition.of(["order_id"], [record])(record, 3)
    assert repeated.value.replace(b" ", b"") == value.replace(b" ", b"")


def test_what_was_dropped_nevertheless_is_said():
    pipeline = Pipeline(
        "p", ORDERS, Kafka(Topic("out", event=Order)), steps=[deduplicate(["order_id"], DAY)]
    )
    rounds = [Round(1.0, 1_000, 10, 0.1, 400), Round(1.0, 1_000, 0, 0.1, 500)]
    [said] = dropped_rows(pipeline, rounds)
    assert "of 1,990 records that were read, 900 rows were written" in said
    assert list(dropped_rows(Pipeline("p", ORDERS, Lake("t")), rounds)) == []
    assert list(dropped_rows(pipeline, [Round(1.0, 10, 0, 0.1, 10)])) == []
