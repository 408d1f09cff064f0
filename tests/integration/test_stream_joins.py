"""Joins of streams that Spark takes and gets wrong, refused by `check` and at the start."""

import json
import subprocess
import sys

import pytest
from pyspark.sql import functions as F  # noqa: N812
from tests.in_process import answer

from headrace.errors import StepError
from headrace.pipelines.start.stream_joins import unsafe_operator
from headrace.pipelines.steps.applied import apply_steps

WITHIN = "at BETWEEN bt AND bt + INTERVAL 1 HOUR"


@pytest.fixture
def stream(spark):
    """``stream("a")``: a stream with aid, at (with a watermark, unless told) and ao (without)."""

    def load(name, *, delay="1 hour"):
        rows = spark.readStream.format("rate").load()
        columns = {"id": "value", "t": "timestamp", "o": "timestamp"}
        rows = rows.select(*(F.col(old).alias(name + new) for new, old in columns.items()))
        return rows if delay is None else rows.withWatermark(f"{name}t", delay)

    return load


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "left_semi"])
@pytest.mark.parametrize(
    "condition",
    [
        f"aid = bid AND {WITHIN}",
        "aid = bid AND at - INTERVAL 1 HOUR <= bt AND bt - INTERVAL 5 MINUTES < at",
        "aid = bid AND at = bt",
    ],
)
def test_a_join_within_times_of_both_watermarks_is_taken(stream, how, condition):
    assert unsafe_operator(stream("a").join(stream("b"), F.expr(condition), how)) == ""


def test_a_join_by_windows_of_both_watermarks_is_taken(stream):
    left, right = (stream(name).withColumn("hour", F.window(f"{name}t", "1 hour")) for name in "ab")
    assert unsafe_operator(left.join(right, ["hour"], "left")) == ""


@pytest.mark.parametrize("how", ["inner", "left", "left_semi"])
@pytest.mark.parametrize(
    "condition",
    [
        "aid = bid",
        "aid = bid AND at <= bt + INTERVAL 1 HOUR",
        "aid = bid AND at >= bt",
        "aid = bid AND ao BETWEEN bo AND bo + INTERVAL 1 HOUR",
        "aid = bid AND ao BETWEEN bt AND bt + INTERVAL 1 HOUR",
    ],
)
def test_a_join_without_a_limit_on_both_sides_is_refused_with_its_condition(stream, how, condition):
    problem = unsafe_operator(stream("a").join(stream("b"), F.expr(condition), how))
    assert "it joins two streams" in problem
    assert "aid = bid" in problem
    assert "Declare the pipeline's source as a Join" in problem


@pytest.mark.parametrize("without", ["a", "b"])
def test_a_join_with_a_watermark_on_one_side_is_refused(stream, without):
    left, right = (stream(name, delay=None if name == without else "1 hour") for name in "ab")
    joined = left.join(right, F.expr(f"aid = bid AND {WITHIN}"), "left")
    assert "it joins two streams (LEFT OUTER" in unsafe_operator(joined)


def test_a_join_without_a_condition_is_refused(stream):
    assert "without a condition" in unsafe_operator(stream("a").crossJoin(stream("b")))


def test_a_join_below_other_steps_is_found(stream):
    joined = stream("a").join(stream("b"), F.expr("aid = bid"))
    above = joined.groupBy(F.window("at", "1 hour")).count().where("count > 1")
    assert "it joins two streams" in unsafe_operator(above)


def test_a_join_with_a_table_is_taken(stream, spark):
    table = spark.range(3).select(F.col("id").alias("aid"))
    assert unsafe_operator(stream("a").join(table, "aid", "left")) == ""


def test_a_delay_of_zero_is_refused(stream):
    assert "a watermark on 'at' with a delay of 0" in unsafe_operator(
        stream("a", delay="0 seconds")
    )
    assert unsafe_operator(stream("a", delay="1 millisecond")) == ""


def test_a_step_that_joins_wrongly_is_named_with_its_line(stream):
    def clicked(views, clicks):
        return views.join(clicks, F.expr("aid = bid"), "left")

    with pytest.raises(StepError) as raised:
        apply_steps([clicked], [stream("a"), stream("b")])
    error = raised.value
    assert (error.step, error.at) == ("clicked", f"{__file__}:{clicked.__code__.co_firstlineno}")
    assert "it joins two streams" in error.problem


FLOW = """\
from datetime import datetime, timedelta
from headrace import Lake, Pipeline, Source, Topic

class View:
    id: str
    at: datetime

class Click:
    view: str
    clicked: datetime

views = Topic("views", event=View, event_time="at")
clicks = Topic("clicks", event=Click, event_time="clicked")

def joined(views, clicks):
    from pyspark.sql import functions as F
    return views.join(clicks, F.expr("CONDITION"), "left")

def lost(views, clicks):
    raise OSError("only there in production")

right = Pipeline("right", [views, clicks], Lake("right"), steps=[joined])
away = Pipeline("away", [views, clicks], Lake("away"), steps=[lost])
"""


def test_check_refuses_them_at_the_line_of_the_step(tmp_path):
    write_project(tmp_path, "id = view")
    command = [sys.executable, "-m", "headrace.cli", "check", "--json", "--project", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2, run.stderr
    [problem] = json.loads(run.stdout)["problems"]
    assert problem["line"] == 1 + FLOW[: FLOW.index("def joined")].count("\n")
    assert "pipeline 'right', step 'joined': it joins two streams" in problem["message"]


def test_check_takes_others_and_warns_of_a_step_that_fails_here(tmp_path, spark, monkeypatch):
    session = spark.newSession()
    monkeypatch.setattr(session, "stop", lambda: None)
    monkeypatch.setattr("headrace.spark.session.start_session", lambda *_, **__: session)
    write_project(tmp_path, "id = view AND clicked BETWEEN at AND at + INTERVAL 1 HOUR")
    [warning] = answer("check", "--project", tmp_path)["warnings"]
    assert "step 'lost': its steps could not be planned: OSError" in warning["message"]


def write_project(folder, condition):
    """Writes a project whose pipeline ``right`` joins on a condition."""
    (folder / "headrace.toml").write_text('[project]\nname = "ads"\nmodules = ["flow"]\n')
    (folder / "flow.py").write_text(FLOW.replace("CONDITION", condition))
