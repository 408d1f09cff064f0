import pytest

from headrace import Lake, Pipeline, Topic, classify, fan_out, filter_rows
from headrace.control.pipeline_rules import pipeline_faults


class Click:
    event_id: str
    kind: str


CLICKS = Topic("clicks", event=Click)


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
    assert messages(lambda rows: rows, classify("kind", rules)) == []
    assert messages(classify("", rules)) == ["pipeline 'p': classify.into is ''"]
    assert messages(classify("class", rules, default=7)) == ["pipeline 'p': classify.default is 7"]


def test_each_reason_and_each_class_has_a_metric():
    names = [metric.name for metric in filter_rows(drop={"bot": "true"}).all_metrics]
    assert names == ["filtered_rows", "filter_undecided_rows", "filtered_bot_rows"]
    names = [metric.name for metric in classify("class", {"mobile": "true"}).all_metrics]
    assert names == ["unclassified_rows", "classify_undecided_rows", "classified_mobile_rows"]
    names = [metric.name for metric in fan_out("stream", {"all": "true"}).all_metrics]
    assert names == ["fan_out_dropped_rows", "fan_out_undecided_rows", "streamed_all_rows"]
