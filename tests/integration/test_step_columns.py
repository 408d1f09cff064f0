"""Steps of Spark that make columns which no table takes."""

from pathlib import Path

import pytest
from tests.integration.flow import Flow, click

from headrace import Lake, filter_rows
from headrace.errors import StepError
from headrace.pipelines.steps.applied import apply_steps
from headrace.service.status import State

UNTAKEN = {
    "array()": "array<void>",
    "null": "void",
    "map('a', null)": "map<string,void>",
    "named_struct('a', array(null))": "struct<a:array<void>>",
    "current_timestamp() - timestamp'2026-01-01'": "interval day to second",
    "interval '1' month": "interval month",
    "make_interval(1)": "interval",
    "parse_json('{}')": "variant",
    "current_time()": "time(6)",
}


def adding(expression, name="extra"):
    def adds_extra(rows):
        return rows.selectExpr("*", f"{expression} as `{name}`")

    return adds_extra


def drops_extra(rows):
    return rows.drop("extra")


@pytest.mark.parametrize("expression", UNTAKEN)
def test_a_column_that_no_table_takes_is_refused_with_its_step_and_type(spark, expression):
    rows = spark.range(1)
    steps = [lambda rows: rows, adding(expression), lambda rows: rows.where("id > 0")]
    with pytest.raises(StepError) as raised:
        apply_steps(steps, [rows])
    assert raised.value.step == "adds_extra"
    wanted = f"it makes column 'extra' of type {UNTAKEN[expression]}, which no table takes: "
    assert raised.value.problem.startswith(wanted)
    assert raised.value.at.startswith(__file__)


@pytest.mark.parametrize("expression", UNTAKEN)
def test_a_column_that_a_later_step_removes_is_no_fault(spark, expression):
    stepped = apply_steps([adding(expression), drops_extra], [spark.range(1)])
    assert stepped.rows.columns == ["id"]


def test_a_pipeline_with_such_a_step_fails_at_once_and_makes_no_table(broker, spark, tmp_path):
    flow = Flow(broker, spark, tmp_path, partitions=1)
    flow.send([click(1)])
    pipeline = flow.pipeline("typed", sink=Lake("typed"), steps=[adding("array()")])
    outcome = flow.run(pipeline)["typed"]
    assert (outcome.state, outcome.restarts) == (State.FAILED, 0)
    assert "adds_extra" in outcome.reason
    assert "array<void>" in outcome.reason
    assert not Path(flow.lake, "typed").exists()


def test_a_column_with_a_name_of_headraces_own_is_refused_also_where_a_later_step_drops_it(spark):
    steps = [adding("'mine'", "_Headrace_reason"), filter_rows(drop={"bot": "id = 0"})]
    with pytest.raises(StepError, match="it makes column '_Headrace_reason'") as raised:
        apply_steps(steps, [spark.range(2)])
    assert raised.value.step == "adds_extra"
