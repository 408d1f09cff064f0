"""Columns of rows and fields of the topic's class, compared at every depth."""

from datetime import datetime
from typing import Any, TypedDict

import pyarrow as pa
import pytest

from headrace import EpochMillis, Join, Kafka, Pipeline, Topic
from headrace.errors import TableMismatchError
from headrace.pipelines.join.columns import joined_columns
from headrace.pipelines.late_data.rules import side_table_faults
from headrace.pipelines.rules import pipeline_faults
from headrace.pipelines.source.record_columns import row_columns
from headrace.sinks.api import SinkContext

FORMS = {
    "struct": lambda held: held,
    "list": lambda held: list[held],
    "map": lambda held: dict[str, held],
    "deeper": lambda held: list[dict[str, TypedDict("Deeper", {"x": held | None})]],
}
PATHS = {"struct": "item", "list": "items[]", "map": "items[]", "deeper": "items[][].x"}


def topic(name, held, form="struct"):
    field = "item" if form == "struct" else "items"
    return Topic(name, event=TypedDict("Out", {"id": str, field: FORMS[form](held)}))


def item(**fields):
    return TypedDict("Item", fields)


def refusal(rows, target):
    """What the start of a pipeline says about columns."""
    with pytest.raises(TableMismatchError) as caught:
        Kafka(target).open(SinkContext("p", "", {}), rows)
    return caught.value.reason


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (item(a=str, b=int), item(a=str), "Out.{} has no field 'b', and the rows have it"),
        (item(a=str), item(a=str, b=int | None), "the rows have no Out.{}.b"),
        (item(a=str), item(a=int), "Out.{}.a is long in the class and string in the rows"),
        (item(a=list[str]), item(a=list[bool]), "Out.{}.a[] is boolean in the class and string in"),
        (item(a=str), str, "Out.{} is string in the class and struct"),
    ],
)
def test_a_difference_is_found_at_any_depth_by_check_and_at_the_start(
    form, source, target, message
):
    source, target = topic("in", source, form), topic("out", target, form)
    faults = list(pipeline_faults(Pipeline("p", source, Kafka(target))))
    expected = message.format(PATHS[form])
    assert expected in faults[0].message
    assert faults[0].remedy
    assert expected in refusal(row_columns(source.schema, ()), target)


@pytest.mark.parametrize("form", FORMS)
def test_equal_classes_and_times_of_both_kinds_fit(form):
    source = topic("in", item(at=datetime, made=EpochMillis, any=Any, n=int), form)
    target = topic("out", item(n=int | None, any=Any, made=datetime, at=EpochMillis | None), form)
    assert list(pipeline_faults(Pipeline("p", source, Kafka(target)))) == []
    Kafka(target).open(SinkContext("p", "", {}), row_columns(source.schema, ()))


@pytest.mark.parametrize("field", [datetime, EpochMillis])
def test_a_time_without_a_zone_is_refused_at_the_start(field):
    target = Topic("out", event=TypedDict("Out", {"x": field}))
    columns = pa.schema([("x", pa.timestamp("us"))])
    assert "in the class and timestamp[us] in the rows" in refusal(columns, target)


class Shown(TypedDict):
    id: str
    at: datetime
    price: float


class Clicked(TypedDict):
    id: str
    at: datetime


JOIN = Join(
    Topic("clicks", event=Clicked, key="id", event_id="id", event_time="at"),
    Topic("shown", event=Shown, key="id", event_id="id", event_time="at"),
    on=("id", "id"),
    column="shown",
)


def test_the_joined_event_is_compared_too():
    fields = {"id": str, "at": datetime, "shown": Clicked | None}
    target = Topic("out", event=TypedDict("Out", fields))
    [fault] = pipeline_faults(Pipeline("p", JOIN, Kafka(target)))
    expected = "Out.shown has no field 'price', and the rows have it"
    assert expected in fault.message
    columns = joined_columns(*(source.topic.schema for source in JOIN.sources), "shown", ())
    assert expected in refusal(columns, target)


def test_a_side_table_is_compared_too():
    source, target = topic("in", item(a=str, b=int)), topic("late", item(a=str))
    pipeline = Pipeline("p", source, Kafka(topic("out", item(a=str, b=int))))
    faults = side_table_faults(pipeline, Kafka(target), "late_data")
    assert "Out.item has no field 'b'" in next(faults).message


def test_check_refuses_what_a_raw_topic_does_not_take():
    source = Topic("in", event=TypedDict("In", {"value": int, "other": str}))
    faults = list(pipeline_faults(Pipeline("p", source, Kafka(Topic("raw")))))
    assert "column 'value' is long" in faults[0].message
    assert "the rows have 'other'" in faults[1].message
