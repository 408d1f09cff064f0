from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest

from headrace import (
    Lake,
    Metric,
    Pipeline,
    Topic,
    Transform,
    classify,
    count_windows,
    deduplicate,
    enrich,
    fan_out,
    filter_rows,
)
from headrace.pipelines.rules import pipeline_faults


class Click:
    event_id: str
    kind: str
    at: datetime


CLICKS = Topic("clicks", event=Click, event_time="at")
RULES = {"mobile": "true"}
KINDS = Topic("kinds", event=Click, compaction=True, config={"min.compaction.lag.ms": "1"})
HOUR = timedelta(hours=1)


def messages(*steps):
    return [fault.message for fault in pipeline_faults(Pipeline("p", CLICKS, Lake("t"), steps))]


@pytest.mark.parametrize("rules", [{}, None, ["a"], "agent LIKE '%bot%'"])
def test_rules_that_are_none_are_a_fault_with_the_value(rules):
    assert messages(filter_rows(drop=rules)) == [f"pipeline 'p': filter_rows.drop is {rules!r}"]
    assert messages(classify("class", rules)) == [f"pipeline 'p': classify.rules is {rules!r}"]
    assert messages(fan_out("stream", rules)) == [f"pipeline 'p': fan_out.streams is {rules!r}"]


@pytest.mark.parametrize("name", ["", "in-app", "1st", "żółw", 7])
def test_a_name_that_no_metric_can_have_is_a_fault(name):
    assert messages(classify("class", {name: "true"})) == [
        f"pipeline 'p': classify.rules has the name {name!r}"
    ]


@pytest.mark.parametrize("condition", ["", "  ", None, 1])
def test_a_condition_that_is_no_text_is_a_fault(condition):
    assert messages(filter_rows(drop={"bot": condition})) == [
        f"pipeline 'p': filter_rows.drop['bot'] is {condition!r}"
    ]


def test_a_class_goes_into_a_new_column_and_is_text():
    rules = {"mobile": "true"}
    assert messages(classify("class", rules, default="other")) == []
    assert messages(classify("Kind", rules)) == [
        "pipeline 'p': classify.into is 'Kind', and 'kind' is a column"
    ]
    assert messages(fan_out("kind", rules)) == [
        "pipeline 'p': fan_out.into is 'kind', and 'kind' is a column"
    ]
    [own] = messages(lambda rows: rows, classify("_Headrace_rule", rules))
    assert own.endswith("; names that begin with '_headrace' are headrace's own")
    assert messages(classify("", rules)) == ["pipeline 'p': classify.into is ''"]
    assert messages(classify("class", rules, default=7)) == ["pipeline 'p': classify.default is 7"]


@pytest.mark.parametrize(
    ("before", "column"),
    [
        (filter_rows(drop=RULES), "kind"),
        (deduplicate(by=["event_id"], within=HOUR), "kind"),
        (classify("class", RULES), "class"),
        (fan_out("stream", RULES), "stream"),
        (enrich(KINDS, by="kind", columns=["at"], prefix="kind_"), "kind_at"),
        (count_windows(HOUR, by=["kind"]), "window_start"),
    ],
)
def test_a_column_behind_ready_made_steps_is_known(before, column):
    [message] = messages(before, classify(column.upper(), RULES))
    assert message.endswith(f"is {column.upper()!r}, and {column!r} is a column")
    assert messages(before, classify("other", RULES)) == []


def test_columns_behind_a_step_with_a_fault_or_of_ones_own_are_not_known():
    assert messages(lambda rows: rows, classify("kind", RULES)) == []
    assert len(messages(filter_rows(drop={}), classify("kind", RULES))) == 1


@pytest.mark.parametrize(
    "step",
    [
        classify("KIND", RULES),
        fan_out("kind", RULES),
        enrich(KINDS, by="at", columns=["kind"]),
    ],
)
def test_a_start_refuses_a_column_that_would_replace_one_of_any_step(step):
    rows = SimpleNamespace(columns=["event_id", "Kind"])
    with pytest.raises(ValueError, match=r"(?i)'kind', and 'kind' is a column; choose"):
        step(rows)


@pytest.mark.parametrize("name", ["count", "window", "Window_start"])
def test_a_column_that_count_windows_makes_is_none_to_count_by(name):
    message = f"pipeline 'p': count_windows.by names {name!r}, a column that it makes itself"
    assert message in messages(lambda rows: rows, count_windows(HOUR, by=["kind", name]))


@pytest.mark.parametrize(
    "step",
    [
        deduplicate(["kind"], within=timedelta.max),
        count_windows(timedelta.max),
        count_windows(HOUR, within=timedelta(days=365_001)),
    ],
)
def test_a_length_that_is_too_long_for_sparks_times_is_a_fault(step):
    [fault] = pipeline_faults(Pipeline("p", CLICKS, Lake("t"), [step]))
    assert fault.remedy == "at most timedelta(days=365000)"


def test_each_reason_and_each_class_has_a_metric():
    names = [metric.name for metric in filter_rows(drop={"bot": "true"}).all_metrics]
    assert names == ["filtered_rows", "filter_undecided_rows", "filtered_bot_rows"]
    names = [metric.name for metric in classify("class", {"mobile": "true"}).all_metrics]
    assert names == ["unclassified_rows", "classify_undecided_rows", "classified_mobile_rows"]
    names = [metric.name for metric in fan_out("stream", {"all": "true"}).all_metrics]
    assert names == ["fan_out_dropped_rows", "fan_out_undecided_rows", "streamed_all_rows"]


@dataclass(frozen=True)
class of_the_project(Transform):  # noqa: N801  a verb, as the steps of users are
    metrics: object = ()
    said: object = ()

    def __call__(self, rows):
        return rows

    def faults(self, columns):
        yield from self.said


def metric(name, meaning="rows"):
    return Metric(name, "rows", meaning, "never")


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (("odd_rows",), "metric 'odd_rows' is not a Metric"),
        ((metric("odd-rows\n"),), "metric 'odd-rows\\n': Prometheus takes no such name"),
        ((metric(""),), "metric '': Prometheus takes no such name"),
        ((metric("rows_in"),), "metric 'rows_in' is one of every pipeline"),
        ((metric("rows_in_total"),), "metric 'rows_in_total' is one of every pipeline"),
        ((metric("state"),), "metric 'state' is one of every pipeline"),
        ((metric("odd"), metric("odd", "others")), "metric 'odd' is declared in two ways"),
        (7, "its metrics can't be checked: TypeError: "),
    ],
)
def test_a_metric_that_can_not_be_exposed_is_a_fault(metrics, message):
    [text] = messages(of_the_project(metrics))
    assert text.startswith(f"pipeline 'p': {message}")


def test_code_of_the_project_that_raises_in_a_check_is_named_with_its_line():
    [text] = messages(of_the_project(said=7))
    assert text.startswith("pipeline 'p': its steps can't be checked: TypeError: ")
    assert f"({__file__}:" in text
    [text] = messages(of_the_project(said=["no fault"]))
    assert "its steps can't be checked: AttributeError: 'str' object" in text
