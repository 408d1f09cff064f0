from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypedDict

import pytest

from headrace import Lake, Pipeline, Source, Topic, count_windows, deduplicate
from headrace.pipelines.rules import pipeline_faults
from headrace.pipelines.run.figures import RunFigures
from headrace.pipelines.source.state import SourceState


class Click:
    event_id: str


CLICKS = Topic("clicks", event=Click)
DAY = timedelta(days=1)


def pipeline(*steps):
    return Pipeline("p", CLICKS, Lake("t"), steps=steps)


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        (deduplicate(by=["event_id"], within=timedelta(0)), "deduplicate.within"),
        (deduplicate(by="event_id", within=DAY), "deduplicate.by is 'event_id'"),
        (deduplicate(by=[], within=DAY), "deduplicate.by is []"),
        (deduplicate(by=["id"], within=DAY), "'id' is not a column"),
        (deduplicate(by=["event_id"], within=DAY, event_time="at"), "'at' is not a column"),
    ],
)
def test_a_wrong_declaration_is_a_fault_with_its_value(step, fault):
    [found] = [each for each in pipeline_faults(pipeline(step)) if fault in each.message]
    assert found.message.startswith("pipeline 'p': ")


class Visit:
    visit_id: str
    left_at: datetime


VISITS = Topic("visits", event=Visit, event_time="left_at")


@pytest.mark.parametrize("name", ["a.b", "`at`"])
@pytest.mark.parametrize("beside", [[], [VISITS]])
def test_a_watermark_is_on_a_column_that_spark_takes_for_no_path(name, beside):
    event = TypedDict("event", {"event_id": str, name: datetime})
    topic = Topic("clicks", event=event, event_time=name)
    watermark = None if beside else DAY
    sources = [Source(topic, watermark=watermark), *beside]
    steps = [lambda *rows: rows[0]]
    declared = Pipeline("p", sources, Lake("t"), steps=steps)
    reason = f"{name!r} can have no watermark: Spark takes it for a path"
    faults = [*pipeline_faults(declared), *count_windows(DAY, event_time=name).faults(None)]
    assert [each.message for each in faults if reason in each.message] == [
        f"pipeline 'p': the event time of topic 'clicks': {reason}",
        f"count_windows: {reason}",
    ]


@pytest.mark.parametrize("step", [deduplicate(["visit_id"], DAY), count_windows(DAY)])
def test_the_event_time_is_the_topics_unless_another_is_named(step):
    visits = Pipeline("p", VISITS, Lake("t"), steps=[step, replace(step, event_time="at")])
    assert [each.event_time for each in visits.steps_for_topic] == ["left_at", "at"]
    assert list(pipeline_faults(replace(visits, steps=[step]))) == []


@pytest.mark.parametrize("step", [deduplicate(["visit_id"], DAY), count_windows(DAY)])
def test_an_event_time_that_no_one_declares_is_a_fault_with_the_remedy(step):
    visits = Pipeline("p", Topic("visits", event=Visit), Lake("t"), steps=[step])
    [fault] = pipeline_faults(visits)
    assert "'event_time' is not a column, and is its event time" in fault.message
    assert "columns: visit_id, left_at; give one as event_time=" in fault.remedy


def test_columns_are_not_known_behind_another_step():
    step = deduplicate(by=["id"], within=DAY)
    assert list(pipeline_faults(pipeline(lambda rows: rows, step))) == []


def test_its_figures_are_the_pipelines(tmp_path):
    declared = pipeline(deduplicate(by=["event_id"], within=DAY))
    figures = RunFigures(declared, SourceState(tmp_path))
    operator = {
        "operatorName": "dedupeWithinWatermark",
        "numRowsTotal": 7,
        "numRowsDroppedByWatermark": 0,
        "customMetrics": {},
    }
    for batch_id, keys in enumerate((7, 5)):
        operators = [operator | {"numRowsTotal": keys}]
        report = {"batchId": batch_id, "stateOperators": operators, "observedMetrics": {}}
        figures.take([report | {"durationMs": {"addBatch": 40}}])
    assert figures.own({}) == {"deduplicate_state_rows": 5}
    assert "deduplicate_state_rows" in {metric.name for metric in declared.metrics}
